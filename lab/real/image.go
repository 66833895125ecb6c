package real

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/cloudsim-dev/allinone/lab/real/archive"
)

// image is a container image that the lab builds from a program. So the first start of a lab
// needs no registry.
type image struct {
	ref     string
	program string            // path of the program on the host
	at      string            // path of the program in the image
	args    []string          // default arguments
	files   map[string]string // contents of other files by path
	// tools is the path of a file on the host. The file contains names of tools, one name per line.
	// The program contains all these tools. The image has a link to the program for each name, and
	// no entry point. If tools is "", the image has no links, and the program is the entry point.
	tools string
}

// Names of images that every machine has. Kubernetes' own manifests and tests use the names of the
// first three images, so these manifests and tests need no changes.
const (
	PauseImage   = "registry.k8s.io/pause:3.10.2"
	CoreDNSImage = "registry.k8s.io/coredns/coredns:v1.14.2"
	// TestImage is agnhost, Kubernetes' test server and client.
	TestImage = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
	// ShellImage has a shell and common tools. It is this project's own image.
	ShellImage = "cloudsim.dev/shell:v1"
)

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
		{ref: ShellImage, program: filepath.Join(dir, "shell"), at: "bin/shell", tools: filepath.Join(dir, "shell.tools"), args: []string{"sh"}, files: accounts},
	}
}

// writeArchive writes the image as an OCI archive with one layer. Two images with the same contents
// always have the same digests.
func (m image) writeArchive(w io.Writer) error {
	var layer bytes.Buffer
	if err := m.writeLayer(&layer); err != nil {
		return err
	}
	config := archive.Config{
		Cmd: m.args, WorkingDir: "/",
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
	if m.tools == "" {
		config.Entrypoint = []string{"/" + m.at}
	}
	built, err := archive.New(m.ref, layer.Bytes(), config)
	if err != nil {
		return err
	}
	_, err = built.Write(w)
	return err
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
		if err := writeEntry(out, name, int64(len(m.files[name])), 0o644, strings.NewReader(m.files[name])); err != nil {
			return err
		}
	}
	if err := m.writeTools(out); err != nil {
		return err
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
	return errors.Join(writeEntry(out, m.at, info.Size(), 0o755, f), out.Close())
}

func (m image) writeTools(out *tar.Writer) error {
	if m.tools == "" {
		return nil
	}
	names, err := os.ReadFile(m.tools)
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(names)) {
		link := &tar.Header{Typeflag: tar.TypeSymlink, Name: path.Join(path.Dir(m.at), name), Linkname: path.Base(m.at), Mode: 0o777}
		if err := out.WriteHeader(link); err != nil {
			return err
		}
	}
	return nil
}

func writeEntry(out *tar.Writer, name string, size, mode int64, content io.Reader) error {
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: mode}); err != nil {
		return err
	}
	_, err := io.Copy(out, content)
	return err
}
