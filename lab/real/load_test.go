package real

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The removal of an image's last name also removes the records without a tag.
func TestWithRecords(t *testing.T) {
	all := parseList(`REF TYPE DIGEST SIZE PLATFORMS LABELS
example.org/a:1 application/vnd.oci.image.manifest.v1+json sha256:aa 61.0 MiB linux/amd64 -
sha256:cc application/vnd.oci.image.manifest.v1+json sha256:aa 61.0 MiB linux/amd64 -
example.org/b:1 application/vnd.oci.image.manifest.v1+json sha256:bb 1.0 MiB linux/amd64 -
example.org/b:2 application/vnd.oci.image.manifest.v1+json sha256:bb 1.0 MiB linux/amd64 -
sha256:dd application/vnd.oci.image.manifest.v1+json sha256:bb 1.0 MiB linux/amd64 -
`)
	for name, want := range map[string][]string{
		"example.org/a:1": {"example.org/a:1", "sha256:cc"},
		"example.org/b:1": {"example.org/b:1"},
		"example.org/c:1": nil,
	} {
		if diff := cmp.Diff(want, withRecords(all, name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Load leaves no files if an archive is not an image.
func TestLoadBadArchive(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "other.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tar.NewWriter(f).Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	m := Images{Dir: dir, Name: "cloudsim-test"}
	if _, _, err := m.Load(t.Context(), path, nil, ""); err == nil || !strings.Contains(err.Error(), "not an image archive") {
		t.Errorf("got error %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, loadedDir)); err != nil || len(left) > 0 {
		t.Errorf("files after the load: %v, %v", left, err)
	}
	if err := m.Remove(t.Context(), PauseImage); err == nil || !strings.Contains(err.Error(), "part of each machine") {
		t.Errorf("removal of the pause image: got error %v", err)
	}
	m.Nodes = []string{"node-9"}
	if _, _, err := m.Load(t.Context(), path, nil, ""); err == nil || !strings.Contains(err.Error(), `"node-9" has no running machine`) {
		t.Errorf("missing node: got error %v", err)
	}
}

// The free space check names the needed and the free space.
func TestCheckFreeSpace(t *testing.T) {
	m := Images{Dir: t.TempDir()}
	if err := m.checkFreeSpace([]prepared{{size: 1 << 10}}, 1); err != nil {
		t.Error(err)
	}
	if err := m.checkFreeSpace([]prepared{{size: 1 << 60}}, 1); err == nil || !strings.Contains(err.Error(), "MiB are free") {
		t.Errorf("got error %v", err)
	}
}
