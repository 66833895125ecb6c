package archive

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Write writes the image and its name as an OCI archive. It checks the digests of each layer,
// and returns the number of bytes of all unpacked layers.
func (m Image) Write(w io.Writer) (unpacked int64, err error) {
	out := tar.NewWriter(w)
	manifest, err := m.image.RawManifest()
	if err != nil {
		return 0, explainMissing(err)
	}
	config, err := m.image.RawConfigFile()
	if err != nil {
		return 0, explainMissing(err)
	}
	layers, err := m.image.Layers()
	if err != nil {
		return 0, explainMissing(err)
	}
	written := map[v1.Hash]bool{}
	for n, l := range layers {
		size, err := writeLayer(out, l, written)
		if err != nil {
			return 0, fmt.Errorf("layer %d of image %s: %w", n+1, m.Name, explainMissing(err))
		}
		unpacked += size
	}
	c, err := m.image.ConfigName()
	if err != nil {
		return 0, err
	}
	d, err := m.image.Digest()
	if err != nil {
		return 0, err
	}
	typ, err := m.image.MediaType()
	if err != nil {
		return 0, err
	}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{
		{MediaType: typ, Digest: d, Size: int64(len(manifest)), Annotations: map[string]string{nameAnnotation: m.Name}},
	}})
	if err != nil {
		return 0, err
	}
	for _, f := range []struct {
		name    string
		content []byte
	}{{blobPath(c), config}, {blobPath(d), manifest}, {"index.json", index}, {"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}} {
		if err := entry(out, f.name, int64(len(f.content)), bytes.NewReader(f.content)); err != nil {
			return 0, explain(err)
		}
	}
	return unpacked, explain(out.Close())
}

// writeLayer returns the unpacked size of a layer. If the map written does not contain the layer's
// digest yet, writeLayer also writes the layer and adds the digest to the map.
func writeLayer(out *tar.Writer, l v1.Layer, written map[v1.Hash]bool) (unpacked int64, err error) {
	d, err := l.Digest()
	if err != nil {
		return 0, err
	}
	size, err := l.Size()
	if err != nil {
		return 0, err
	}
	if !written[d] {
		written[d] = true
		err := readAll(l.Compressed, d, func(r io.Reader) error { return entry(out, blobPath(d), size, r) })
		if err != nil {
			return 0, err
		}
	}
	id, err := l.DiffID()
	if err != nil {
		return 0, err
	}
	err = readAll(l.Uncompressed, id, func(r io.Reader) (err error) {
		unpacked, err = io.Copy(io.Discard, r)
		return err
	})
	return unpacked, err
}

// readAll calls fn with the content of a layer. It returns an error if the content does not have
// the given digest.
func readAll(open func() (io.ReadCloser, error), digest v1.Hash, fn func(io.Reader) error) (err error) {
	r, err := open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	sum, err := v1.Hasher(digest.Algorithm)
	if err != nil {
		return err
	}
	if err := fn(io.TeeReader(r, sum)); err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", sum.Sum(nil)); got != digest.Hex {
		return fmt.Errorf("the archive is damaged: the digest is %s:%s, want %s; create or copy it again", digest.Algorithm, got, digest)
	}
	return nil
}

func entry(out *tar.Writer, name string, size int64, content io.Reader) error {
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}); err != nil {
		return err
	}
	n, err := io.Copy(out, content)
	if err == nil && n < size {
		return io.ErrUnexpectedEOF
	}
	return err
}

func blobPath(d v1.Hash) string { return path.Join("blobs", d.Algorithm, d.Hex) }
