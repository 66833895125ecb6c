package real

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab/real/archive"
)

// containerd has a record for each name of an image. An image can also have records with a digest
// in place of a name. The removal of the last name also removes the records with a digest.
func TestRemovalIncludesDigestRecords(t *testing.T) {
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

// The user root of a machine can change the machine's /etc/hostname. EnterCommand and Images do not
// read this file, so they still find the machine by the name of its node.
func TestNodeNamesOfMachines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a [lab]")
	for _, id := range []string{"i-000001", "i-000002"} {
		if err := os.MkdirAll(filepath.Join(dir, "machines", id, "etc"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f := folder(filepath.Join(dir, "machines", "i-000001"))
	if err := writeName(f, "node-1"); err != nil {
		t.Fatal(err)
	}
	if err := f.writeText("etc/hostname", "node-9\n"); err != nil {
		t.Fatal(err)
	}
	_, off, err := Images{Dir: dir, Name: "cloudsim-test"}.runningMachines()
	if diff := cmp.Diff([]string{"node-1", "i-000002"}, off); err != nil || diff != "" {
		t.Errorf("names of the machines (-want +got): %v\n%s", err, diff)
	}
	for node, want := range map[string]string{"node-1": "instance i-000001, is off", "node-9": "no machine has the name"} {
		if _, err := EnterCommand(dir, "cloudsim-test", node, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", node, err, want)
		}
	}
}

// writeName writes the file from which the lab reads the host name of a machine.
func writeName(f folder, name string) error {
	_, err := f.writeSpec(f.spec(cloudsim.Instance{Meta: cloudsim.Meta{Name: name}}, Programs{
		Machine: "/m", Plugin: "/p", Allinone: "/a", Kubelet: "/k", Proxy: "/x", Kubectl: "/c",
	}, nil))
	return err
}

// If an archive contains no image, Load leaves no files.
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
		t.Errorf(`Load of a bad archive: got error %v, want "not an image archive"`, err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, loadedDir)); err != nil || len(left) > 0 {
		t.Errorf("files after the load: %v, %v", left, err)
	}
	if err := m.Remove(t.Context(), PauseImage); err == nil || !strings.Contains(err.Error(), "built-in image of each machine") {
		t.Errorf("removal of the pause image: got error %v", err)
	}
	m.Nodes = []string{"node-9"}
	if _, _, err := m.Load(t.Context(), path, nil, ""); err == nil || !strings.Contains(err.Error(), `"node-9" has no running machine`) {
		t.Errorf("missing node: got error %v", err)
	}
}

// Load checks the size of an archive before it writes files. If the archive comes from a stream,
// Load does not know the size. If the disk becomes full in this case, Load deletes the files that
// it wrote.
func TestLoadFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a small disk needs root")
	}
	built, err := archive.New("example.org/large:1", make([]byte, 3<<20), archive.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var large bytes.Buffer
	if _, err := built.Write(&large); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "large.tar")
	if err := os.WriteFile(path, large.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	m := Images{Dir: dir, Name: "cloudsim-test"}
	if _, _, err := m.Load(t.Context(), path, nil, ""); err == nil || !strings.Contains(err.Error(), "the archive needs 6 MiB") || !strings.Contains(err.Error(), "delete files") {
		t.Errorf("archive: got error %v", err)
	}
	if _, _, err := m.Load(t.Context(), "", &large, ""); err == nil || !strings.Contains(err.Error(), "too large for the disk; delete files") {
		t.Errorf("stdin: got error %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, loadedDir)); err != nil || len(left) > 0 {
		t.Errorf("files after the loads: %v, %v", left, err)
	}
	if err := m.checkFreeSpace("copying the images to the machines", 1<<10); err != nil {
		t.Error(err)
	}
}

// If a user kills a command while it loads an image, temporary files remain. removeUnfinishedLoads
// deletes these files, but keeps the archives of loaded images.
func TestRemoveUnfinishedLoads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a [lab]")
	for _, path := range []string{"load-123/layout/blob", "abc.tar"} {
		path = filepath.Join(dir, loadedDir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeUnfinishedLoads(dir); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, loadedDir)); err != nil || len(left) != 1 || left[0].Name() != "abc.tar" {
		t.Errorf("files after the removal: got %v, error %v; want abc.tar", left, err)
	}
}
