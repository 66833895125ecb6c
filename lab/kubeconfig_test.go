package lab

import (
	"os"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestKubeconfigNeedsNoOtherFile(t *testing.T) {
	p := newPKI(t)
	path := p.Dir + "/kubeconfig"
	if err := p.WriteKubeconfig(path, "https://127.0.0.1:8181", "admin"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig: got mode %v, error %v; want 0600", info.Mode(), err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	if conf.Host != "https://127.0.0.1:8181" || len(conf.CAData) == 0 || len(conf.CertData) == 0 || len(conf.KeyData) == 0 {
		t.Errorf("kubeconfig: got %v, want the server https://127.0.0.1:8181 with an authority, a certificate and a key", conf)
	}
}
