package real

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab/real/boot"
)

// A machine's agent is called as its node and has its keys to itself.
func TestNetworkProxy(t *testing.T) {
	f := folder(t.TempDir())
	if err := os.MkdirAll(f.path(etcKubernetes), 0o755); err != nil {
		t.Fatal(err)
	}
	var s boot.Spec
	if err := f.networkProxy(&s, cloudsim.Instance{}, nil); err != nil || len(s.Programs) > 0 {
		t.Errorf("without a network proxy it starts %v, %v", s.Programs, err)
	}
	from := t.TempDir()
	n := &NetworkProxy{Server: "10.100.255.2:8188", CA: filepath.Join(from, "ca"), Issue: func(i cloudsim.Instance) (cert, key []byte, err error) {
		return []byte("cert of " + i.Name), []byte("key of " + i.Name), nil
	}}
	if err := f.networkProxy(&s, cloudsim.Instance{}, n); err == nil {
		t.Error("an agent without an authority is started")
	}
	if err := os.WriteFile(n.CA, []byte("ca"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := cloudsim.Instance{}
	i.Name = "node-7"
	if err := f.networkProxy(&s, i, n); err != nil || len(s.Programs) != 1 {
		t.Fatalf("it starts %v, %v", s.Programs, err)
	}
	for _, want := range []string{"--agent-id=node-7", "--agent-identifiers-from-metadata", "--proxy-server-host=10.100.255.2:8188"} {
		if !slices.Contains(s.Programs[0].Args, want) {
			t.Errorf("the agent is started without %s: %v", want, s.Programs[0].Args)
		}
	}
	for name, want := range map[string]string{"proxy-ca.crt": "ca", "proxy-agent.crt": "cert of node-7", "proxy-agent.key": "key of node-7"} {
		info, err := os.Stat(f.path(etcKubernetes, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", name, info, err)
			continue
		}
		if raw, err := os.ReadFile(f.path(etcKubernetes, name)); string(raw) != want {
			t.Errorf("%s is %q, %v", name, raw, err)
		}
	}
}
