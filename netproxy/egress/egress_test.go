package egress_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/egressselector"

	"github.com/cloudsim-dev/allinone/netproxy/certs"
	"github.com/cloudsim-dev/allinone/netproxy/egress"
)

// The code of kube-apiserver accepts the configuration that the method YAML returns.
func TestKubeAPIServerAcceptsYAML(t *testing.T) {
	dir := t.TempDir()
	if err := certs.Make(dir, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	for name, s := range map[string]egress.Selector{
		"grpc":    {Socket: "/run/proxy.sock"},
		"connect": {Socket: "/run/proxy.sock", HTTPConnect: true},
		"tcp":     {URL: "https://127.0.0.1:8090", CABundle: file("frontend-ca.crt"), ClientCert: file("kube-apiserver.crt"), ClientKey: file("kube-apiserver.key")},
	} {
		raw, err := s.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file(name+".yaml"), raw, 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := egressselector.ReadEgressSelectorConfiguration(file(name + ".yaml"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		selector, err := egressselector.NewEgressSelector(config)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if dial, err := selector.Lookup(egressselector.Cluster.AsNetworkContext()); err != nil || dial == nil {
			t.Errorf("%s: no dialer for the network cluster: %v", name, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	for want, s := range map[string]egress.Selector{
		"either a socket or a URL":      {},
		"absolute path":                 {Socket: "proxy.sock"},
		"https://":                      {URL: "http://127.0.0.1:8090", CABundle: "a", ClientCert: "b", ClientKey: "c"},
		"needs a certificate authority": {URL: "https://127.0.0.1:8090"},
	} {
		if _, err := s.YAML(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", s, err, want)
		}
	}
}
