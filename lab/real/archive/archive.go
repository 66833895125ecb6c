// Package archive reads container images from docker-archives, OCI archives and OCI layout
// directories. It also creates images with one layer. It writes each image as an OCI archive. It
// checks the platform of each image that it reads, and the digests of all layers that it writes.
// Save gets an image from Docker or Podman. The package sends no requests to registries.
package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// nameAnnotation is the annotation with an image's full name. Docker and containerd write this
// annotation.
const nameAnnotation = "io.containerd.image.name"

// maxMetadata is the largest permitted size of the file index.json, in bytes.
const maxMetadata = 8 << 20

// Image is an image for the platform of this host.
type Image struct {
	// Name is the full name, such as docker.io/library/alpine:3. It is "" if the archive
	// contains no name.
	Name string
	// image reads the archive's file or folder, so this file or folder must exist until Write
	// returns.
	image v1.Image
}

// Config is the configuration of an image, such as its entry point.
type Config = v1.Config

// New returns an image with one layer, for the platform of this host. The layer is an uncompressed
// tar. The same arguments give the same digests.
func New(name string, layer []byte, config Config) (Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, static.NewLayer(layer, types.OCIUncompressedLayer))
	if err != nil {
		return Image{}, err
	}
	c, err := image.ConfigFile()
	if err != nil {
		return Image{}, err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Config = "linux", runtime.GOARCH, config
	image, err = mutate.ConfigFile(image, c)
	return Image{name, image}, err
}

// Open returns the images of the archive or OCI layout directory at path. An archive may be
// compressed with gzip or zstd. Open writes temporary files into the folder at the path work. This
// folder must be empty. The method Image.Write reads these files or the layout directory. So the
// caller must keep this folder and the layout directory until the last call of Image.Write has
// returned.
func Open(ctx context.Context, path, work string) ([]Image, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return atLeastOne(fromLayout(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(ctx, f, work)
}

// Read does the same as Open, but reads the archive from r.
func Read(ctx context.Context, r io.Reader, work string) ([]Image, error) {
	plain, closeIt, err := decompress(contextReader{ctx, r})
	if err != nil {
		return nil, err
	}
	defer closeIt()
	file := filepath.Join(work, "archive.tar")
	kind, err := spool(plain, file)
	if err != nil {
		return nil, explain(err)
	}
	if kind == ociArchive {
		dir := filepath.Join(work, "layout")
		if err := extract(file, dir); err != nil {
			return nil, explain(err)
		}
		return atLeastOne(fromLayout(dir))
	}
	return atLeastOne(fromDocker(file))
}

func atLeastOne(images []Image, err error) ([]Image, error) {
	if err == nil && len(images) == 0 {
		err = errors.New("the archive contains no images; save at least one image")
	}
	return images, err
}

// contextReader reads from its Reader until ctx ends. After that, Read returns the cause of ctx's
// end.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

func decompress(r io.Reader) (io.Reader, func(), error) {
	in := bufio.NewReader(r)
	head, _ := in.Peek(4) // a shorter file is neither gzip nor zstd
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		return z, func() {}, explain(err)
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return in, func() {}, nil
}

// kind is the format of an archive.
type kind int

const (
	dockerArchive kind = iota + 1
	ociArchive
)

// errNotImage is the error for a tar without images, and for a file that is not a tar.
var errNotImage = errors.New("this is not an image archive: neither index.json nor manifest.json is in it; create an archive with `docker save` or `podman save`")

// spool copies the tar r to a new file, and returns the kind of the archive.
func spool(r io.Reader, file string) (k kind, err error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	copied := io.TeeReader(r, out)
	in := tar.NewReader(copied)
	for n := 0; ; n++ {
		h, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			if k == 0 {
				return 0, errNotImage
			}
			_, err = io.Copy(io.Discard, copied) // the checksum of a compressed archive is at its end
			return k, err
		case errors.Is(err, tar.ErrHeader) && n == 0:
			return 0, errNotImage
		case err != nil:
			return 0, err
		}
		switch path.Clean(h.Name) {
		case "index.json":
			k = ociArchive
		case "manifest.json":
			k = max(k, dockerArchive)
		}
	}
}

// extract unpacks the file index.json and all files below blobs/ from a tar into the new folder
// dir. It skips all other files of the tar.
func extract(file, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(h.Name)
		if h.Typeflag != tar.TypeReg || name != "index.json" && !strings.HasPrefix(name, "blobs/") {
			continue
		}
		if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return err
		}
		out, err := root.Create(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in) //nolint:gosec // the archive is not compressed any more
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
}

// explain adds advice for the user to an error. It does this if the disk is full, or if the archive
// is truncated or damaged. It returns other errors unchanged.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: the archive is too large for the disk; delete files or images that you do not need", err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, zstd.ErrMagicMismatch):
		return fmt.Errorf("the archive is truncated: %w; create or copy it again", err)
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.Is(err, tar.ErrHeader):
		return fmt.Errorf("the archive is damaged: %w; create or copy it again", err)
	}
	return err
}

func fromDocker(file string) ([]Image, error) {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil {
		return nil, fmt.Errorf("manifest.json of the archive: %w", err)
	}
	var all []Image
	for n, d := range manifest {
		if len(d.RepoTags) == 0 && len(manifest) > 1 {
			return nil, fmt.Errorf("image %d of the archive has no name; save each image with its name", n+1)
		}
		names := d.RepoTags
		if len(names) == 0 {
			names = []string{""}
		}
		for _, imageName := range names {
			image, err := dockerImage(file, imageName)
			if err != nil {
				return nil, fmt.Errorf("image %q: %w", imageName, explain(err))
			}
			one, err := checkImage(imageName, image)
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	return all, nil
}

func fromLayout(dir string) ([]Image, error) {
	info, err := os.Stat(filepath.Join(dir, "index.json"))
	if err != nil {
		return nil, fmt.Errorf("%s is not an OCI image layout: %w; give the folder that contains index.json", dir, err)
	}
	if info.Size() > maxMetadata {
		return nil, fmt.Errorf("index.json is larger than %d bytes", maxMetadata)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	var all []Image
	for _, d := range list.Manifests {
		imageName := d.Annotations[nameAnnotation]
		if imageName == "" {
			// The annotation org.opencontainers.image.ref.name contains a full name or only a tag.
			if ref := d.Annotations["org.opencontainers.image.ref.name"]; strings.Contains(ref, ":") {
				imageName = ref
			}
		}
		image, err := find(index, d, 0)
		if err != nil {
			return nil, fmt.Errorf("image %q: %w", imageName, explainMissing(err))
		}
		if image == nil {
			continue
		}
		one, err := checkImage(imageName, image)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// find returns the image that d describes. If d describes an index, the function returns the
// index's image for this host. If d describes neither an image nor an index, the function returns
// nil.
func find(index v1.ImageIndex, d v1.Descriptor, depth int) (v1.Image, error) {
	switch {
	case d.MediaType.IsImage():
		return index.Image(d.Digest)
	case !d.MediaType.IsIndex():
		return nil, nil
	case depth > 3:
		return nil, errors.New("too many levels of nested indexes")
	}
	child, err := index.ImageIndex(d.Digest)
	if err != nil {
		return nil, err
	}
	list, err := child.IndexManifest()
	if err != nil {
		return nil, err
	}
	var others []string
	for _, d := range list.Manifests {
		p := d.Platform
		if p == nil || p.OS == "linux" && p.Architecture == runtime.GOARCH {
			return find(child, d, depth+1)
		}
		if p.OS != "unknown" { // an entry with the OS unknown is an attestation, not an image
			others = append(others, p.String())
		}
	}
	return nil, wrongPlatform(strings.Join(others, ", "))
}

func wrongPlatform(platform string) error {
	return fmt.Errorf("the image is for %s, but the machines are linux/%s; save the image with --platform linux/%[2]s", platform, runtime.GOARCH)
}

// explainMissing adds advice for the user to the error of a missing blob. For other errors, it does
// the same as explain.
func explainMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the archive is incomplete: %w; create or copy it again", err)
	}
	return explain(err)
}

// checkImage returns an Image with the full form of imageName as its Name. If imageName is "", the
// Name is "" too. It returns an error if imageName is invalid or the image is for another platform.
func checkImage(imageName string, image v1.Image) (Image, error) {
	one := Image{image: image}
	if imageName != "" {
		name, err := FullName(imageName)
		if err != nil {
			return one, err
		}
		one.Name = name
	}
	c, err := image.ConfigFile()
	if err != nil {
		return one, fmt.Errorf("configuration of image %q: %w", imageName, explainMissing(err))
	}
	if c.OS != "linux" || c.Architecture != runtime.GOARCH {
		return one, fmt.Errorf("image %q: %w", imageName, wrongPlatform(c.OS+"/"+c.Architecture))
	}
	return one, nil
}

// FullName returns the full name of an image. For example, the full name of alpine is
// docker.io/library/alpine:latest.
func FullName(image string) (string, error) {
	ref, err := reference.ParseDockerRef(image)
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", image, err)
	}
	return ref.String(), nil
}

// dockerImage reads a docker-archive, and returns the image with the given name. If imageName is
// "", the archive must contain only one image, and dockerImage returns this image.
func dockerImage(file, imageName string) (v1.Image, error) {
	if imageName == "" {
		return tarball.ImageFromPath(file, nil)
	}
	tag, err := name.NewTag(imageName)
	if err != nil {
		return nil, err
	}
	return tarball.ImageFromPath(file, &tag)
}
