package registry

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// decide starts a cloud with its audit trail in dir, and adds n decisions to
// the trail. It returns the resources of the first and the last entry, and the
// number of entries.
func decide(t *testing.T, dir string, n int, name string) (first, last string, length int) {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "cloud.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	e := engine.New(slog.New(slog.DiscardHandler), st, engine.Default())
	if err := e.Prepare(); err != nil {
		t.Fatal(err)
	}
	d, err := keepDecisions(dir, e)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for i := range n {
		e.AuditRegistry(cloudsim.RegistryDecision{Operation: cloudsim.RegistryPull, Resource: fmt.Sprintf("%s/%d", name, i)}, nil)
	}
	l, err := e.ListRegistryDecisions(t.Context())
	if err != nil || len(l.Items) == 0 {
		t.Fatal(l, err)
	}
	return l.Items[0].Resource, l.Items[len(l.Items)-1].Resource, len(l.Items)
}

// TestDecisionsAreKept proves that the audit trail continues after a restart,
// even if the last line of its file is incomplete. If the file is full, the
// trail continues in a new file.
func TestDecisionsAreKept(t *testing.T) {
	dir := t.TempDir()
	decide(t, dir, 3, "one")
	path := filepath.Join(dir, decisionsFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw[:len(raw)-9], 0o600); err != nil {
		t.Fatal(err)
	}
	if first, last, n := decide(t, dir, 1, "two"); first != "one/0" || last != "two/0" || n != 3 {
		t.Errorf("decisions after a restart: got %s to %s, %d decisions; want one/0 to two/0, 3 decisions", first, last, n)
	}
	if first, last, n := decide(t, dir, 1, "again"); first != "one/0" || last != "again/0" || n != 4 {
		t.Errorf("decisions after an incomplete line: got %s to %s, %d decisions; want one/0 to again/0, 4 decisions", first, last, n)
	}
	if first, last, n := decide(t, dir, 1500, "three"); first != "three/500" || last != "three/1499" || n != 1000 {
		t.Errorf("last decisions: got %s to %s, %d decisions; want three/500 to three/1499, 1000 decisions", first, last, n)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("\n", maxDecisionsFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	decide(t, dir, 2, "four")
	if first, last, n := decide(t, dir, 1, "five"); first != "four/0" || last != "five/0" || n != 3 {
		t.Errorf("decisions after the file was full: got %s to %s, %d decisions; want four/0 to five/0, 3 decisions", first, last, n)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > 1024 || info.Mode().Perm() != 0o600 {
		t.Errorf("file of the decisions: got %v, error %v; want at most 1 KiB and mode 0600", info, err)
	}
}
