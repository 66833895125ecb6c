package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"
)

func newImage(t *testing.T, arch string) v1.Image {
	t.Helper()
	m, err := random.Image(4096, 2)
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", arch
	if m, err = mutate.ConfigFile(m, c); err != nil {
		t.Fatal(err)
	}
	return m
}

func dockerTar(t *testing.T, m v1.Image) []byte {
	t.Helper()
	tag, err := name.NewTag("web:v1")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tarball.Write(tag, m, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func layoutDir(t *testing.T, m v1.Image, annotations map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.AppendImage(m, layout.WithAnnotations(annotations)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func tarOf(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.AddFS(os.DirFS(dir)), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gz(t *testing.T, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(raw)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zst(t *testing.T, raw []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(raw, nil)
}

// load reads an archive. It also calls Write for each image, because Write checks the digests. It
// discards the output of Write.
func load(t *testing.T, raw []byte) (all []Image, err error) {
	t.Helper()
	all, err = Read(t.Context(), bytes.NewReader(raw), t.TempDir())
	for _, m := range all {
		if _, err := m.Write(io.Discard); err != nil {
			return nil, err
		}
	}
	return all, err
}

// For each archive format, Read returns the original image with its full name. For an OCI layout
// directory, Open returns the image with its full name.
func TestFormats(t *testing.T) {
	m := newImage(t, runtime.GOARCH)
	docker, oci := dockerTar(t, m), tarOf(t, layoutDir(t, m, map[string]string{"org.opencontainers.image.ref.name": "web:v1"}))
	for format, raw := range map[string][]byte{
		"docker-archive": docker, "docker-archive, gzip": gz(t, docker), "docker-archive, zstd": zst(t, docker),
		"OCI archive": oci, "OCI archive, gzip": gz(t, oci), "OCI archive, zstd": zst(t, oci),
	} {
		all, err := load(t, raw)
		if err != nil || len(all) != 1 || all[0].Name != "docker.io/library/web:v1" {
			t.Errorf("%s: got %+v, %v", format, all, err)
			continue
		}
		want, err1 := m.ConfigName()
		got, err2 := all[0].image.ConfigName()
		if err := errors.Join(err1, err2); err != nil || got != want {
			t.Errorf("%s: configuration %s, want %s, %v", format, got, want, err)
		}
	}
	all, err := Open(t.Context(), layoutDir(t, m, map[string]string{nameAnnotation: "example.org/a:1"}), t.TempDir())
	if err != nil || len(all) != 1 || all[0].Name != "example.org/a:1" {
		t.Errorf("OCI layout directory: got %+v, %v", all, err)
	}
}

// The output of Write is an OCI archive that Read accepts.
func TestWrite(t *testing.T) {
	all, err := Read(t.Context(), bytes.NewReader(dockerTar(t, newImage(t, runtime.GOARCH))), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if unpacked, err := all[0].Write(&b); err != nil || unpacked < 2*4096 {
		t.Fatalf("unpacked size %d, %v", unpacked, err)
	}
	got, err := load(t, b.Bytes())
	if err != nil || len(got) != 1 || got[0].Name != all[0].Name {
		t.Errorf("Read of the output of Write: got %+v, %v", got, err)
	}
}

// New returns an image for this host. Write accepts this image.
func TestNew(t *testing.T) {
	layer := tarOf(t, t.TempDir())
	m, err := New("example.org/a:1", layer, Config{Cmd: []string{"run"}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if unpacked, err := m.Write(&b); err != nil || unpacked != int64(len(layer)) {
		t.Errorf("unpacked size: got %d, want %d, %v", unpacked, len(layer), err)
	}
	all, err := load(t, b.Bytes())
	if err != nil || len(all) != 1 || all[0].Name != m.Name {
		t.Fatalf("Read of the written image: got %+v, error %v; want one image with the name %s", all, err, m.Name)
	}
	if c, err := all[0].image.ConfigFile(); err != nil || len(c.Config.Cmd) != 1 || c.Config.Cmd[0] != "run" {
		t.Errorf("configuration: got %+v, error %v; want the command run", c, err)
	}
}

// Read chooses the image for this host from an index with images for several platforms.
func TestPlatforms(t *testing.T) {
	mine := newImage(t, runtime.GOARCH)
	add := func(m v1.Image, arch string) mutate.IndexAddendum {
		return mutate.IndexAddendum{Add: m, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}}
	}
	write := func(all ...mutate.IndexAddendum) []byte {
		dir := t.TempDir()
		l, err := layout.Write(dir, empty.Index)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.AppendIndex(mutate.AppendManifests(empty.Index, all...), layout.WithAnnotations(map[string]string{nameAnnotation: "web:v1"})); err != nil {
			t.Fatal(err)
		}
		return tarOf(t, dir)
	}
	all, err := load(t, write(add(newImage(t, "s390x"), "s390x"), add(mine, runtime.GOARCH)))
	if err != nil || len(all) != 1 {
		t.Fatalf("Read of an index with two platforms: got %+v, error %v; want one image", all, err)
	}
	want, err1 := mine.Digest()
	got, err2 := all[0].image.Digest()
	if err := errors.Join(err1, err2); err != nil || got != want {
		t.Errorf("got image %s, want %s, %v", got, want, err)
	}
	_, err = load(t, write(add(newImage(t, "s390x"), "s390x")))
	if err == nil || !strings.Contains(err.Error(), "s390x") || !strings.Contains(err.Error(), runtime.GOARCH) {
		t.Errorf("index without this platform: got error %v", err)
	}
}

// The error for a bad archive names the cause and contains advice for the user.
func TestBadArchives(t *testing.T) {
	m := newImage(t, runtime.GOARCH)
	docker := dockerTar(t, m)
	oci := tarOf(t, layoutDir(t, m, map[string]string{nameAnnotation: "web:v1"}))
	noImages := t.TempDir()
	if _, err := layout.Write(noImages, empty.Index); err != nil {
		t.Fatal(err)
	}
	noDocker, other := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(noDocker, "manifest.json"), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := layoutDir(t, m, map[string]string{nameAnnotation: "web:v1"})
	layers, err := m.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	blob := filepath.Join(damaged, filepath.FromSlash(blobPath(digest)))
	raw, err := os.ReadFile(blob)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(blob, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	incomplete := layoutDir(t, m, map[string]string{nameAnnotation: "web:v1"})
	if err := os.Remove(filepath.Join(incomplete, filepath.FromSlash(blobPath(digest)))); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), other, t.TempDir()); err == nil || !strings.Contains(err.Error(), "the folder that contains index.json") {
		t.Errorf("another folder: got error %v", err)
	}
	for name, c := range map[string]struct {
		raw  []byte
		want []string
	}{
		"text":                      {[]byte(strings.Repeat("text", 1000)), []string{"not an image archive", "docker save"}},
		"empty":                     {nil, []string{"not an image archive"}},
		"another tar":               {tarOf(t, other), []string{"not an image archive"}},
		"OCI archive, no image":     {tarOf(t, noImages), []string{"contains no images", "save at least one"}},
		"docker-archive, no image":  {tarOf(t, noDocker), []string{"contains no images"}},
		"truncated docker-archive":  {docker[:len(docker)/2], []string{"truncated", "again"}},
		"truncated OCI archive":     {oci[:len(oci)/2], []string{"truncated", "again"}},
		"truncated gzip":            {gz(t, docker)[:len(docker)/2], []string{"truncated", "again"}},
		"damaged layer":             {tarOf(t, damaged), []string{"damaged", "again"}},
		"missing layer":             {tarOf(t, incomplete), []string{"incomplete", "again"}},
		"docker-archive, s390x":     {dockerTar(t, newImage(t, "s390x")), []string{"linux/s390x", "linux/" + runtime.GOARCH, "--platform"}},
		"docker-archive with no OS": {dockerTar(t, newImage(t, "")), []string{runtime.GOARCH}},
	} {
		_, err := load(t, c.raw)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %v, want %q in it", name, err, want)
			}
		}
	}
}

// Save sends the image's name to the socket of Docker or Podman. If no engine has the image, the
// error contains advice for the user.
func TestSave(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/images/get" || r.URL.Query().Get("names") != "web:v1" {
			http.Error(w, "no such image", http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "archive")
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	sockets := []string{filepath.Join(t.TempDir(), "none"), socket}
	body, err := Save(t.Context(), sockets, "web:v1")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil || string(raw) != "archive" {
		t.Errorf("body of Save: got %q, error %v; want archive", raw, err)
	}
	if _, err := Save(t.Context(), sockets, "other:v1"); err == nil || !strings.Contains(err.Error(), "no such image") || !strings.Contains(err.Error(), "pull or build") {
		t.Errorf(`missing image: got error %v, want "no such image" and "pull or build"`, err)
	}
	if _, err := Save(t.Context(), sockets[:1], "web:v1"); err == nil || !strings.Contains(err.Error(), "start Docker or Podman") {
		t.Errorf("no engine: got error %v", err)
	}
}
