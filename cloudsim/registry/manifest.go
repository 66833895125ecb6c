package registry

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"

	oci "cuelabs.dev/go/oci/ociregistry"
)

// maxManifest is the size that the distribution specification lets a registry
// refuse above.
const maxManifest = 4 << 20

// manifest is what the registry reads of manifests and indexes, of OCI and of
// Docker.
type manifest struct {
	MediaType    string           `json:"mediaType"`
	ArtifactType string           `json:"artifactType"`
	Config       *oci.Descriptor  `json:"config"`
	Layers       []oci.Descriptor `json:"layers"`
	Manifests    []oci.Descriptor `json:"manifests"`
	Subject      *oci.Descriptor  `json:"subject"`
	Annotations  map[string]string
}

// blobs are the blobs that m needs. Layers that are elsewhere on purpose have
// URLs.
func (m manifest) blobs() (all []oci.Descriptor) {
	if m.Config != nil {
		all = append(all, *m.Config)
	}
	for _, l := range m.Layers {
		if len(l.URLs) == 0 {
			all = append(all, l)
		}
	}
	return all
}

func parse(raw []byte) (m manifest, err error) {
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("%w: %.200v", oci.ErrManifestInvalid, err) //nolint:errorlint // the client gets the words, cut, and no more
	}
	return m, nil
}

// references refuses a manifest that is none, says that it is another kind
// than it was sent as, or refers to what its repository does not have.
func (f *files) references(repo, mediaType string, raw []byte) error {
	if kind, _, err := mime.ParseMediaType(mediaType); err != nil || kind == "application/octet-stream" {
		return fmt.Errorf("%w: send its Content-Type", oci.ErrManifestInvalid)
	}
	m, err := parse(raw)
	if err != nil {
		return err
	}
	if m.MediaType != "" && m.MediaType != mediaType {
		return fmt.Errorf("%w: it says that it is %.100q and was sent as %.100q", oci.ErrManifestInvalid, m.MediaType, mediaType)
	}
	for _, b := range m.blobs() {
		if _, err := f.descriptor(repo, b.Digest); err != nil {
			return fmt.Errorf("%w: %.100s", oci.ErrManifestBlobUnknown, b.Digest)
		}
	}
	for _, c := range m.Manifests {
		if _, err := f.manifest(repo, c.Digest); err != nil {
			return fmt.Errorf("%w: %.100s", oci.ErrManifestBlobUnknown, c.Digest)
		}
	}
	return nil
}

// read reads a manifest that is stored.
func (f *files) read(desc oci.Descriptor) (manifest, error) {
	r, err := f.open(desc, 0, -1)
	if err != nil {
		return manifest{}, err
	}
	defer r.Close()
	raw, err := io.ReadAll(io.LimitReader(r, maxManifest))
	if err != nil {
		return manifest{}, err
	}
	return parse(raw)
}

// referrer is the descriptor of a manifest whose subject is another.
func (m manifest) referrer(desc oci.Descriptor) oci.Descriptor {
	desc.ArtifactType, desc.Annotations = m.ArtifactType, m.Annotations
	if desc.ArtifactType == "" && m.Config != nil {
		desc.ArtifactType = m.Config.MediaType
	}
	return desc
}
