package real

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// image is a container image that the lab builds from a program. So the first start of a lab
// needs no registry.
type image struct {
	ref     string
	program string            // path of the program on the host; the program is the image's entry point
	at      string            // path of the program in the image
	args    []string          // default arguments
	files   map[string]string // contents of other files by path
}

// These are the names of images that every machine has. Kubernetes' own manifests and tests
// use the same names, so these manifests and tests work unchanged.
const (
	PauseImage   = "registry.k8s.io/pause:3.10.2"
	CoreDNSImage = "registry.k8s.io/coredns/coredns:v1.14.2"
	// TestImage is agnhost, Kubernetes' test server and client.
	TestImage = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
)

// builtImages returns the images that are built from the programs in the folder dir.
func builtImages(dir string) []image {
	accounts := map[string]string{ //nolint:gosec // the accounts have no passwords and no shell
		"etc/passwd":        "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n",
		"etc/group":         "root:x:0:\nnogroup:x:65534:\n",
		"etc/nsswitch.conf": "hosts: files dns\n",
	}
	return []image{
		{ref: PauseImage, program: filepath.Join(dir, "pause"), at: "pause"},
		{ref: CoreDNSImage, program: filepath.Join(dir, "coredns"), at: "coredns", files: accounts},
		{ref: TestImage, program: filepath.Join(dir, "agnhost"), at: "agnhost", args: []string{"pause"}, files: accounts},
	}
}

// blob describes a part of an image by its digest.
type blob struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// These are media types of the OCI image format v1.1.
const (
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeIndex    = "application/vnd.oci.image.index.v1+json"
)

// writeArchive writes the image as an OCI archive with one layer. The same program always
// gives the same digests.
func (m image) writeArchive(w io.Writer) (err error) {
	layer, err := os.CreateTemp("", "layer-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, layer.Close(), os.Remove(layer.Name())) }()
	sum := sha256.New()
	if err := m.writeLayer(io.MultiWriter(layer, sum)); err != nil {
		return fmt.Errorf("image %s: %w", m.ref, err)
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	out := tar.NewWriter(w)
	root := blob{MediaType: typeLayer, Digest: digest(sum.Sum(nil)), Size: size}
	if err := entry(out, blobPath(root.Digest), root.Size, 0o644, layer); err != nil {
		return err
	}
	config, err := addJSON(out, typeConfig, m.config(root.Digest))
	if err != nil {
		return err
	}
	manifest, err := addJSON(out, typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": []blob{root},
	})
	if err != nil {
		return err
	}
	manifest.Annotations = map[string]string{"io.containerd.image.name": m.ref}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []blob{manifest}})
	if err != nil {
		return err
	}
	return errors.Join(
		entry(out, "index.json", int64(len(index)), 0o644, strings.NewReader(string(index))),
		entry(out, "oci-layout", 30, 0o644, strings.NewReader(`{"imageLayoutVersion":"1.0.0"}`)),
		out.Close())
}

func (m image) config(layer string) map[string]any {
	return map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"Entrypoint": []string{"/" + m.at}, "Cmd": m.args, "WorkingDir": "/",
			"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layer}},
	}
}

// writeLayer writes the image's files as a tar. All files belong to root and have no
// timestamps.
func (m image) writeLayer(w io.Writer) error {
	out := tar.NewWriter(w)
	for _, dir := range []string{"etc/", "root/", "tmp/", "var/"} {
		mode := int64(0o755)
		if dir == "tmp/" {
			mode = 0o1777
		}
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode}); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(m.files) {
		if err := entry(out, name, int64(len(m.files[name])), 0o644, strings.NewReader(m.files[name])); err != nil {
			return err
		}
	}
	f, err := os.Open(m.program)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return errors.Join(entry(out, m.at, info.Size(), 0o755, f), out.Close())
}

func addJSON(out *tar.Writer, mediaType string, v any) (blob, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return blob{}, err
	}
	sum := sha256.Sum256(raw)
	b := blob{MediaType: mediaType, Digest: digest(sum[:]), Size: int64(len(raw))}
	return b, entry(out, blobPath(b.Digest), b.Size, 0o644, strings.NewReader(string(raw)))
}

func entry(out *tar.Writer, name string, size, mode int64, content io.Reader) error {
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: mode}); err != nil {
		return err
	}
	_, err := io.Copy(out, content)
	return err
}

func digest(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

func blobPath(digest string) string {
	algorithm, sum, _ := strings.Cut(digest, ":")
	return path.Join("blobs", algorithm, sum)
}
