// Command image writes the image of a release as an OCI image layout. The image has the same
// contents as the target allinone of the Dockerfile: the program and one user, without a shell.
// The same arguments and programs give the same bytes.
//
//	image DIR VERSION SECONDS ARCH=PROGRAM...
//
// SECONDS is the creation time of the image, in seconds since 1970.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 4 {
		return errors.New("usage: image DIR VERSION SECONDS ARCH=PROGRAM...")
	}
	seconds, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return fmt.Errorf("the creation time: %w", err)
	}
	created := time.Unix(seconds, 0).UTC()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range args[3:] {
		arch, program, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%s: want ARCH=PROGRAM", arg)
		}
		img, err := build(program, arch, args[1], created)
		if err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: arch},
		}})
	}
	path, err := layout.Write(args[0], empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": args[1]}))
}

func build(program, arch, version string, created time.Time) (v1.Image, error) {
	content, err := files(program, created)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: created}, CreatedBy: "hack/release",
	}})
	if err != nil {
		return nil, err
	}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = "linux", arch, v1.Time{Time: created}
	c.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"allinone"},
		Env: []string{"PATH=/usr/local/bin", "HOME=/tmp"},
		Labels: map[string]string{
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.source":   "https://github.com/cloudsim-dev/allinone",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, c)
}

func files(program string, created time.Time) ([]byte, error) {
	code, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range []struct {
		name string
		mode int64
		data []byte
	}{
		{"etc/passwd", 0o644, []byte("cloudsim:x:65532:65532::/tmp:/bin/bash\n")},
		{"etc/group", 0o644, []byte("cloudsim:x:65532:\n")},
		{"usr/local/bin/allinone", 0o755, code},
	} {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: created, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return buf.Bytes(), err
}
