package proxycli

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestConfigReplacesNoFile proves that the config command fails if one of its files exists, and
// keeps this file.
func TestConfigReplacesNoFile(t *testing.T) {
	for _, name := range []string{"egress.yaml", "manifests.yaml", "agent.key"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := &proxyConfigFlags{Out: dir, Image: "allinone"}
		if err := f.run(io.Discard); err == nil {
			t.Errorf("%s exists: got no error", name)
		}
		if raw, err := os.ReadFile(path); err != nil || string(raw) != "mine" {
			t.Errorf("%s: got %q, error %v, want the old content", name, raw, err)
		}
	}
}
