package registry_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/registry"
)

// TestTLSWithoutKey proves that TLS writes no certificate if it cannot write the key. Otherwise
// clients could trust a certificate that the next call of TLS replaces.
func TestTLSWithoutKey(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ca.key"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.TLS(dir, []string{"localhost"}); err == nil {
		t.Error("TLS returned no error")
	}
	if _, err := os.Stat(filepath.Join(dir, registry.CAFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: got error %v, want ErrNotExist", registry.CAFile, err)
	}
}

// TestTLSWritesAtomically proves that TLS writes each file of the authority under another name, and
// then renames the file. So a crash cannot leave a part of a file. The test puts a link at each name.
// Only a rename replaces a link.
func TestTLSWritesAtomically(t *testing.T) {
	dir := t.TempDir()
	names := []string{"ca.key", registry.CAFile}
	for _, name := range names {
		if err := os.Symlink("target-of-"+name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := registry.TLS(dir, []string{"localhost"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s is not a regular file (error %v)", name, err)
		}
	}
}
