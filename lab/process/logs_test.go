package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLogs(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), "a [lab]"))
	for _, file := range []string{
		"logs/ccm.log", "logs/lab.log", "logs/lab.log.old", "real/machines/i-000002/console.log",
		"real/machines/i-000001/disk/log/kubelet.log", "real/machines/i-000001/disk/kubelet/secret.log", "cloud/admin.token",
	} {
		if err := os.MkdirAll(filepath.Dir(d.path(file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.path(file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := d.Logs()
	if err != nil {
		t.Fatal(err)
	}
	want := []LogFile{
		{"ccm", "", d.LogFile("ccm")}, {"lab", "", d.LogFile("lab")},
		{"kubelet", "i-000001", d.path("real/machines/i-000001/disk/log/kubelet.log")},
		{"console", "i-000002", d.path("real/machines/i-000002/console.log")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("logs (-want +got):\n%s", diff)
	}
}
