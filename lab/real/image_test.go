package real

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readArchive returns the contents of a tar file by name.
func readArchive(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[h.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}

// An archive follows the OCI image layout: an index refers to a manifest, and the manifest
// to a configuration and a layer, each by its digest.
func TestImageArchive(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/true\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	m := image{ref: "example.org/a:1", program: program, at: "bin", args: []string{"run"}, files: map[string]string{"etc/group": "root:x:0:\n"}}
	var first, second bytes.Buffer
	if err := errors.Join(m.writeArchive(&first), m.writeArchive(&second)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same image produced two different archives")
	}
	files := readArchive(t, &first)
	for name, content := range files {
		sum := sha256.Sum256(content)
		if filepath.Dir(name) == "blobs/sha256" && name != blobPath(digest(sum[:])) {
			t.Errorf("%s has another digest: %x", name, sum)
		}
	}
	var index struct{ Manifests []blob }
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("index: %v, %s", err, files["index.json"])
	}
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != m.ref {
		t.Errorf("name of the image: got %q, want %q", got, m.ref)
	}
	var manifest struct {
		Config blob
		Layers []blob
	}
	if err := json.Unmarshal(files[blobPath(index.Manifests[0].Digest)], &manifest); err != nil || len(manifest.Layers) != 1 {
		t.Fatalf("manifest: %v", err)
	}
	var config struct {
		Config struct{ Entrypoint, Cmd []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(files[blobPath(manifest.Config.Digest)], &config); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/bin"}, config.Config.Entrypoint); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{manifest.Layers[0].Digest}, config.RootFS.DiffIDs); diff != "" {
		t.Error(diff)
	}
	layer := readArchive(t, bytes.NewReader(files[blobPath(manifest.Layers[0].Digest)]))
	if string(layer["bin"]) != "#!/bin/true\n" || string(layer["etc/group"]) != "root:x:0:\n" {
		t.Errorf("layer: %q", layer)
	}
}

// The function clone makes links to the image files of the store, and copies of the store's
// databases. After an interrupted clone, the next call makes a complete clone.
func TestClone(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	for name, content := range map[string]string{"layer/file": "layer", "meta.db": "database"} {
		path := filepath.Join(from, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(to+".new", "half"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := clone(from, to); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(to, "half")); err == nil {
		t.Error("the new copy contains files of an interrupted copy")
	}
	if err := os.WriteFile(filepath.Join(to, "meta.db"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(from, "meta.db")); err != nil || string(got) != "database" {
		t.Errorf("database of the store: got %q, %v", got, err)
	}
	a, errA := os.Stat(filepath.Join(from, "layer/file"))
	b, errB := os.Stat(filepath.Join(to, "layer/file"))
	if err := errors.Join(errA, errB); err != nil || !os.SameFile(a, b) {
		t.Errorf("the copies do not share the file of a layer: %v", err)
	}
	if err := clone(filepath.Join(from, "nowhere"), to); err != nil {
		t.Errorf("an existing disk was created again: %v", err)
	}
}
