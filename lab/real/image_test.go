package real

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

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
		if h.Typeflag == tar.TypeSymlink {
			all[h.Name] = []byte("-> " + h.Linkname)
		}
	}
}

// An archive follows the OCI image layout: an index contains the digest of a manifest, and the
// manifest contains the digests of a configuration and a layer.
func TestImageArchive(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/true\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	m := image{ref: "example.org/a:1", program: program, at: "program", args: []string{"run"}, files: map[string]string{"etc/group": "root:x:0:\n"}}
	var first, second bytes.Buffer
	if err := errors.Join(m.writeArchive(&first), m.writeArchive(&second)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same image produced two different archives")
	}
	config, layer := readImage(t, &first, m.ref)
	if diff := cmp.Diff([][]string{{"/program"}, {"run"}}, config); diff != "" {
		t.Error(diff)
	}
	if string(layer["program"]) != "#!/bin/true\n" || string(layer["etc/group"]) != "root:x:0:\n" {
		t.Errorf("layer: got %q, want the files program and etc/group", layer)
	}
}

// An image with tools has a link for each tool. The image has no entry point, so a container runs
// its arguments as a command.
func TestToolsImage(t *testing.T) {
	dir := t.TempDir()
	m := image{ref: "example.org/tools:1", program: filepath.Join(dir, "program"), at: "bin/program", tools: filepath.Join(dir, "tools"), args: []string{"sh"}}
	if err := errors.Join(os.WriteFile(m.program, []byte("all tools"), 0o600), os.WriteFile(m.tools, []byte("ls\nsh\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := m.writeArchive(&b); err != nil {
		t.Fatal(err)
	}
	config, layer := readImage(t, &b, m.ref)
	if diff := cmp.Diff([][]string{nil, {"sh"}}, config); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"bin/ls", "bin/sh"} {
		if string(layer[name]) != "-> program" {
			t.Errorf("%s: got %q, want a link", name, layer[name])
		}
	}
	if string(layer["bin/program"]) != "all tools" {
		t.Errorf(`layer: got %q, want "all tools" in bin/program`, layer)
	}
}

// readImage checks the digests and the name of an OCI archive with one image. It returns the
// image's entry point and default arguments, and the contents of the files in its layer.
func readImage(t *testing.T, r io.Reader, name string) (config [][]string, layer map[string][]byte) {
	t.Helper()
	type part struct {
		Digest      string
		Annotations map[string]string
	}
	path := func(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }
	files := readArchive(t, r)
	for name, content := range files {
		if digest := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); filepath.Dir(name) == "blobs/sha256" && name != path(digest) {
			t.Errorf("%s has another digest: %s", name, digest)
		}
	}
	var index struct{ Manifests []part }
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("index: %v, %s", err, files["index.json"])
	}
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != name {
		t.Errorf("name of the image: got %q, want %q", got, name)
	}
	var manifest struct {
		Config part
		Layers []part
	}
	if err := json.Unmarshal(files[path(index.Manifests[0].Digest)], &manifest); err != nil || len(manifest.Layers) != 1 {
		t.Fatalf("manifest: %v", err)
	}
	var c struct {
		Config struct{ Entrypoint, Cmd []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(files[path(manifest.Config.Digest)], &c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{manifest.Layers[0].Digest}, c.RootFS.DiffIDs); diff != "" {
		t.Error(diff)
	}
	return [][]string{c.Config.Entrypoint, c.Config.Cmd}, readArchive(t, bytes.NewReader(files[path(manifest.Layers[0].Digest)]))
}

// cloneStore makes hard links to the image files of the store, and copies of the store's
// databases. If a call is interrupted, the next call deletes the incomplete copy and begins again.
func TestClone(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	for name, content := range map[string]string{"layer/file": "layer", "meta.db": "database"} {
		path := filepath.Join(from, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("file", filepath.Join(from, "layer/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(to+".new", "half"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := cloneStore(from, to); err != nil {
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
	if got, err := os.Readlink(filepath.Join(to, "layer/link")); err != nil || got != "file" {
		t.Errorf("link of a layer: got %q, %v", got, err)
	}
	a, errA := os.Stat(filepath.Join(from, "layer/file"))
	b, errB := os.Stat(filepath.Join(to, "layer/file"))
	if err := errors.Join(errA, errB); err != nil || !os.SameFile(a, b) {
		t.Errorf("the copies do not share the file of a layer: %v", err)
	}
	if err := cloneStore(filepath.Join(from, "nowhere"), to); err != nil {
		t.Errorf("cloneStore for an existing disk: got error %v, want none", err)
	}
}

// TestCloneOfImages proves that cloneStore copies the files of an image without changes. Folders
// keep their owners. Otherwise, a container that does not run as root cannot write to its folders.
// Folders also keep their attributes, because a folder with the attribute trusted.overlay.opaque
// hides files of lower layers. The image also contains files with the ending .db, which cloneStore
// must not treat as databases of containerd.
func TestCloneOfImages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	const snapshot, opaque = "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs", "trusted.overlay.opaque"
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	homeDir, was := filepath.Join(from, snapshot, "home"), time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	if err := errors.Join(
		os.MkdirAll(homeDir, 0o700), os.Chown(homeDir, 1000, 1001),
		os.WriteFile(filepath.Join(homeDir, "users.db"), nil, 0o600), os.Chmod(filepath.Join(homeDir, "users.db"), 0o644),
		os.Symlink("/nowhere/a.db", filepath.Join(homeDir, "link.db")),
		unix.Mknod(filepath.Join(homeDir, "deleted.db"), unix.S_IFCHR, 0), // marks a file that a lower layer contains
		os.Chtimes(homeDir, was, was),
	); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(homeDir, opaque, []byte("y"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Fatal(err)
	}
	if err := cloneStore(from, to); err != nil {
		t.Fatal(err)
	}
	describe := func(root string) (all []string) {
		dir := filepath.Join(root, snapshot, "home")
		for _, name := range []string{"", "users.db", "link.db", "deleted.db"} {
			var s unix.Stat_t
			if err := unix.Lstat(filepath.Join(dir, name), &s); err != nil {
				t.Fatal(err)
			}
			mark := make([]byte, 8)
			n, _ := unix.Lgetxattr(filepath.Join(dir, name), opaque, mark)
			all = append(all, fmt.Sprintf("%q: mode %o, owner %d:%d, changed %d, opaque %q", name, s.Mode, s.Uid, s.Gid, s.Mtim.Sec, mark[:max(n, 0)]))
		}
		return all
	}
	if diff := cmp.Diff(describe(from), describe(to)); diff != "" {
		t.Errorf("files of the machine (-store +machine):\n%s", diff)
	}
}

// TestStoreKey proves that a change of any input file of the store changes the key of the store.
func TestStoreKey(t *testing.T) {
	s := imageStore{programs: t.TempDir(), images: t.TempDir(), more: t.TempDir(), loaded: t.TempDir()}
	inputs := []string{filepath.Join(s.programs, "containerd")}
	for _, name := range []string{"pause", "coredns", "agnhost", "shell", "shell.tools"} {
		inputs = append(inputs, filepath.Join(s.images, name))
	}
	for _, dir := range []string{s.images, s.more, s.loaded} {
		inputs = append(inputs, filepath.Join(dir, "a.tar"))
	}
	key := func() string {
		t.Helper()
		k, err := s.key()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for _, path := range inputs {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range inputs {
		before := key()
		if err := os.WriteFile(path, []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
		if key() == before {
			t.Errorf("a change of %s did not change the key", path)
		}
	}
}

// TestFillStoreInLongFolder proves that the path of containerd's socket is short, even if the path
// of the store is long. It also proves that fill does not wait for a containerd that has ended.
func TestFillStoreInLongFolder(t *testing.T) {
	s := imageStore{dir: filepath.Join(t.TempDir(), strings.Repeat("d", 120)), programs: t.TempDir(), images: t.TempDir()}
	work := filepath.Join(s.dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	stub := "#!/bin/sh\ngrep address $2\necho broken\nexit 1\n"
	if err := os.WriteFile(filepath.Join(s.programs, "containerd"), []byte(stub), 0o700); err != nil { //nolint:gosec // the test executes the file
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	err := s.fill(ctx, work)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "broken") {
		t.Fatalf("got error %v, %v, want the exit status and the output of containerd", err, ctx.Err())
	}
	at := regexp.MustCompile(`address = "(.+)"`).FindStringSubmatch(err.Error())
	if at == nil || len(at[1]+".ttrpc") > 104 {
		t.Fatalf("address of the socket: got %q, want at most 104 bytes", at)
	}
	if _, err := os.Stat(filepath.Dir(at[1])); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("folder of the socket after fill: %v", err)
	}
}
