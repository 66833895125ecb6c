package lab

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestKubeconfigNeedsNoOtherFile(t *testing.T) {
	p := newPKI(t)
	path := p.dir + "/kubeconfig"
	if err := p.writeKubeconfig(path, "https://127.0.0.1:8181", "admin"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
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
		t.Errorf("got %v", conf)
	}
}

func TestEnvScriptIsSafeInAShell(t *testing.T) {
	dir := Dir(t.TempDir() + "/it's a $(false) \"dir\"")
	if err := os.Mkdir(string(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir.EnvFile(), []byte(envScript(dir, "http://127.0.0.1:8180")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", `. "$1"; printf '%s\n' "$KUBECONFIG" "$CLOUDSIM_URL" "$CLOUDSIM_TOKEN_FILE" "$CLOUDSIM_DATA_DIR" "${PATH%%:*}"`, "sh", dir.EnvFile()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := strings.Join([]string{dir.Kubeconfig(), "http://127.0.0.1:8180", dir.AdminToken(), string(dir), dir.Bin(), ""}, "\n")
	if string(out) != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}
