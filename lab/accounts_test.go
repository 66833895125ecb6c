package lab_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/lab"
)

// TestEnsureAccessKey proves that EnsureAccessKey keeps a valid credentials file, and replaces a
// lost file, a damaged file and a file with a deleted access key.
func TestEnsureAccessKey(t *testing.T) {
	c := cloudtest.Start(t)
	file := filepath.Join(t.TempDir(), "aws.token")
	ensure := func() string {
		t.Helper()
		if err := lab.EnsureAccessKey(t.Context(), c, lab.Account{Name: "aws", Role: cloudsim.RoleWriter}, file); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := c.ListAccessKeys(t.Context(), cloudsim.ListOptions{}); err != nil || len(l.Items) != 1 || l.Items[0].ID != cloudsim.ParseCredentialsFile(string(raw)).ID {
			t.Errorf("access keys: got %+v, error %v; want only the key of the file %s", l.Items, err, raw)
		}
		return string(raw)
	}
	first := ensure()
	if second := ensure(); second != first {
		t.Errorf("second call: got %s, want the same file %s", second, first)
	}
	for name, spoil := range map[string]func() error{
		"lost file":    func() error { return os.Remove(file) },
		"damaged file": func() error { return os.WriteFile(file, []byte("aws_access_key_id"), 0o600) },
		"deleted key": func() error {
			raw, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			return c.DeleteAccessKey(t.Context(), cloudsim.ParseCredentialsFile(string(raw)).ID)
		},
	} {
		before := ensure()
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if ensure() == before {
			t.Errorf("%s: got the same credentials file, want another", name)
		}
	}
}
