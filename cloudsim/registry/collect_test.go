package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	oci "cuelabs.dev/go/oci/ociregistry"
	"github.com/opencontainers/go-digest"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const (
	grace         = time.Hour
	imageManifest = "application/vnd.oci.image.manifest.v1+json"
	imageIndex    = "application/vnd.oci.image.index.v1+json"
)

// disk is the storage of a registry with two repositories.
type disk struct {
	*files
	t   *testing.T
	ids map[string]cloudsim.Repository
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{&files{dir: t.TempDir()}, t, map[string]cloudsim.Repository{"a/web": {ID: "repo-000001"}, "b/api": {ID: "repo-000002"}}}
	for _, dir := range []string{"blobs", "repositories"} {
		d.ok(os.Mkdir(filepath.Join(d.dir, dir), 0o700))
	}
	for name, r := range d.ids {
		d.ok(d.claimFolder(name, r, d.records))
	}
	return d
}

func (d *disk) ok(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) blobOf(repo, content string) oci.Descriptor {
	d.t.Helper()
	u, err := d.startUpload(&session{}, repo)
	d.ok(err)
	_, err = u.Write([]byte(content))
	d.ok(err)
	desc, err := u.Commit(digest.FromString(content))
	d.ok(err)
	return desc
}

func (d *disk) manifestOf(repo, tag, mediaType string, m any) (oci.Descriptor, error) {
	d.t.Helper()
	raw, err := json.Marshal(m)
	d.ok(err)
	return d.putManifest(repo, tag, raw, mediaType)
}

// image pushes an image with one layer.
func (d *disk) image(repo, tag, layer string) oci.Descriptor {
	d.t.Helper()
	desc, err := d.manifestOf(repo, tag, imageManifest, map[string]any{
		"schemaVersion": 2, "mediaType": imageManifest, "config": d.blobOf(repo, "config of "+layer), "layers": []oci.Descriptor{d.blobOf(repo, layer)},
	})
	d.ok(err)
	return desc
}

// age sets the modification time of all files to two hours ago.
func (d *disk) age() {
	d.t.Helper()
	then := time.Now().Add(-2 * grace)
	d.ok(filepath.WalkDir(d.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, then, then)
	}))
}

func (d *disk) collects(want int) {
	d.t.Helper()
	n, err := d.collect(d.t.Context(), grace, d.records)
	if err != nil || n != want {
		d.t.Errorf("collect: got %d files, error %v; want %d files and no error", n, err, want)
	}
}

func (d *disk) records() (map[string]cloudsim.Repository, error) { return d.ids, nil }

func (d *disk) totalBytes() (n int64) {
	d.t.Helper()
	d.ok(filepath.WalkDir(d.dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}

func (d *disk) has(repo, content string) bool {
	_, err := d.blobDescriptor(repo, digest.FromString(content))
	return err == nil
}

// TestClaimWithOutdatedRecord tests a request that began before the deletion of its repository.
// The request still uses the record of the deleted repository. In the meantime, a client has
// created a new repository with the same name. The test proves that the request does not empty
// the folder of the new repository.
func TestClaimWithOutdatedRecord(t *testing.T) {
	d := newDisk(t)
	before := d.ids["a/web"]
	d.ids["a/web"] = cloudsim.Repository{ID: "repo-000003"}
	d.ok(d.claimFolder("a/web", d.ids["a/web"], d.records))
	d.image("a/web", "v1", "layer")
	if err := d.claimFolder("a/web", before, d.records); !errors.Is(err, oci.ErrNameUnknown) {
		t.Errorf("claimFolder with an outdated record: got error %v, want ErrNameUnknown", err)
	}
	if !d.has("a/web", "layer") {
		t.Error("claimFolder with an outdated record deleted the images of the current repository")
	}
}

// TestCollectWithDamagedRepository proves that a damaged repository keeps its files and
// does not block the collection of other repositories.
func TestCollectWithDamagedRepository(t *testing.T) {
	for name, raw := range map[string]string{"empty": "", "without a valid digest": `{"layers":[{"digest":"x"}]}`} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			m := d.image("a/web", "v1", "layer of a")
			d.blobOf("b/api", "of no image")
			d.ok(os.WriteFile(d.blob(m.Digest), []byte(raw), 0o600))
			d.age()
			n, err := d.collect(t.Context(), grace, d.records)
			if err == nil || !strings.Contains(err.Error(), "repository a/web") {
				t.Errorf("collect: got error %v, want an error with the name of repository a/web", err)
			}
			if n == 0 || d.has("b/api", "of no image") || !d.has("a/web", "layer of a") {
				t.Errorf("collect removed %d files; the unreferenced blob of b/api exists: %t, want false; the layer of a/web exists: %t, want true", n, d.has("b/api", "of no image"), d.has("a/web", "layer of a"))
			}
		})
	}
}

// TestCollect proves that a collection removes old unreferenced files and keeps referenced
// files. A file stays until a caller removes the last reference to the file. An untagged
// image also stays.
func TestCollect(t *testing.T) {
	d := newDisk(t)
	first, second := d.image("a/web", "v1", "shared layer"), d.image("b/api", "v1", "shared layer")
	d.blobOf("a/web", "of no image")
	u, err := d.startUpload(&session{}, "a/web")
	d.ok(err)
	d.ok(u.Close())
	d.ok(os.WriteFile(filepath.Join(d.dir, ".new-1"), nil, 0o600))
	d.collects(0) // all files are new
	d.age()
	d.collects(4) // the unreferenced content, the repository's link to this content, the upload and the temporary file
	if d.has("a/web", "of no image") || !d.has("a/web", "shared layer") {
		t.Errorf("unreferenced content of a/web exists: %t, want false; shared layer of a/web exists: %t, want true", d.has("a/web", "of no image"), d.has("a/web", "shared layer"))
	}

	d.ok(d.untag("a/web", "v1"))
	d.age()
	d.collects(0)
	if _, err := d.manifest("a/web", first.Digest); err != nil {
		t.Errorf("pull of an image without a tag by its digest: got error %v", err)
	}
	d.ok(d.forget("a/web", first.Digest))
	d.age()
	d.collects(2) // the links of a/web to the config and the layer; b/api still needs the content
	if d.has("a/web", "shared layer") || !d.has("b/api", "shared layer") {
		t.Errorf("layer of the deleted image: a/web has it: %t, want false; b/api has it: %t, want true", d.has("a/web", "shared layer"), d.has("b/api", "shared layer"))
	}
	d.ok(d.forget("b/api", second.Digest))
	d.age()
	d.collects(5)
	if all, err := os.ReadDir(filepath.Join(d.dir, "blobs")); err != nil || len(all) > 0 {
		t.Errorf("blobs after the last repository was deleted: got %v, error %v; want none", all, err)
	}
}

// TestInvalidTag proves that the registry stores nothing if the tag of a manifest is not valid.
func TestInvalidTag(t *testing.T) {
	d := newDisk(t)
	before := d.totalBytes()
	_, err := d.manifestOf("a/web", "not a tag", imageIndex, map[string]any{"schemaVersion": 2, "mediaType": imageIndex, "manifests": []oci.Descriptor{}})
	if !errors.Is(err, oci.ErrManifestInvalid) {
		t.Errorf("got error %v, want %v", err, oci.ErrManifestInvalid)
	}
	if now := d.totalBytes(); now != before {
		t.Errorf("the registry stored %d bytes", now-before)
	}
}

// TestCollectKeepsAnIndex proves that a garbage collection keeps the images of an index, and the
// layers of these images.
func TestCollectKeepsAnIndex(t *testing.T) {
	d := newDisk(t)
	one := d.image("a/web", "", "for amd64")
	_, err := d.manifestOf("a/web", "v1", imageIndex, map[string]any{"schemaVersion": 2, "mediaType": imageIndex, "manifests": []oci.Descriptor{one}})
	d.ok(err)
	d.age()
	d.collects(0)
	if !d.has("a/web", "for amd64") {
		t.Error("collect removed the layer of an image index")
	}
}

// TestCollectADeletedRepository proves that a collection removes the content of a deleted
// repository, but keeps the content that another repository also has. The catalog does not
// list the deleted repository.
func TestCollectADeletedRepository(t *testing.T) {
	d := newDisk(t)
	d.image("a/web", "v1", "shared layer")
	d.image("b/api", "v1", "shared layer")
	d.image("a/web", "v2", string(bytes.Repeat([]byte("large"), 1<<20)))
	delete(d.ids, "a/web")
	if names, err := d.listOwned(d.ids); err != nil || fmt.Sprint(names) != "[b/api]" {
		t.Errorf("owned: got %v, error %v; want b/api", names, err)
	}
	d.age()
	d.collects(4) // the folder; the manifest, config and layer of v2
	if n := d.totalBytes(); n > 4096 || !d.has("b/api", "shared layer") {
		t.Errorf("disk usage: got %d bytes, want at most 4096 and the layer of b/api", n)
	}
}

// TestCollectKeepsUnreadableRepositories proves that the garbage collection keeps a repository with
// an unreadable owner file, and returns an error.
func TestCollectKeepsUnreadableRepositories(t *testing.T) {
	d := newDisk(t)
	d.image("a/web", "v1", "layer")
	d.ok(os.Remove(d.repo("a/web", "owner")))
	d.ok(os.Mkdir(d.repo("a/web", "owner"), 0o700))
	d.age()
	if n, err := d.collect(t.Context(), grace, d.records); err == nil {
		t.Errorf("collect removed %d files and returned no error", n)
	}
	if _, err := d.tag("a/web", "v1"); err != nil {
		t.Errorf("tag after collect: got error %v", err)
	}
}

// TestCollectKeepsRequestedBlobs proves that a collection keeps an old blob if a client has
// just checked that the blob exists. The client relies on this check and does not push the
// blob again.
func TestCollectKeepsRequestedBlobs(t *testing.T) {
	d := newDisk(t)
	config, layer := d.blobOf("a/web", "config"), d.blobOf("a/web", "layer")
	d.age()
	for _, b := range []oci.Descriptor{config, layer} {
		if _, err := d.touchBlob("a/web", b.Digest); err != nil {
			t.Fatal(err)
		}
	}
	d.collects(0)
	if _, err := d.manifestOf("a/web", "v1", imageManifest, map[string]any{"schemaVersion": 2, "config": config, "layers": []oci.Descriptor{layer}}); err != nil {
		t.Error(err)
	}
}

// TestCollectWhileAPushRuns proves that a garbage collection does not remove the layers of an image
// that a client is pushing.
func TestCollectWhileAPushRuns(t *testing.T) {
	d := newDisk(t)
	for n := range 20 {
		d.blobOf("a/web", fmt.Sprintf("layer %d", n))
		d.age()
		collected := make(chan error, 1)
		go func() {
			_, err := d.collect(t.Context(), grace, d.records)
			collected <- err
		}()
		desc := d.image("a/web", "v1", fmt.Sprintf("layer %d", n))
		if err := <-collected; err != nil {
			t.Fatal(err)
		}
		if !d.has("a/web", fmt.Sprintf("layer %d", n)) {
			t.Fatalf("push %d: collect removed its layer", n)
		}
		d.ok(d.forget("a/web", desc.Digest))
	}
}
