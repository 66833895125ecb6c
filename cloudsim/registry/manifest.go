package registry

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"

	oci "cuelabs.dev/go/oci/ociregistry"
)

// maxManifest is the largest size of a manifest in bytes. The distribution
// specification allows a registry to refuse larger manifests.
const maxManifest = 4 << 20

// manifest contains the fields that the registry reads from manifests and image indexes of
// OCI and Docker.
type manifest struct {
	MediaType    string           `json:"mediaType"`
	ArtifactType string           `json:"artifactType"`
	Config       *oci.Descriptor  `json:"config"`
	Layers       []oci.Descriptor `json:"layers"`
	Manifests    []oci.Descriptor `json:"manifests"`
	Subject      *oci.Descriptor  `json:"subject"`
	Annotations  map[string]string
}

// requiredBlobs returns the blobs that the repository of m must have. It leaves out
// layers with URLs, because the content of these layers is at the URLs, not in the
// registry.
func (m manifest) requiredBlobs() (all []oci.Descriptor) {
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
		return m, fmt.Errorf("%w: %.200v", oci.ErrManifestInvalid, err) //nolint:errorlint // the client gets only the text, cut to a maximum length
	}
	return m, nil
}

// checkReferences returns an error if a manifest is not valid, or if the manifest's
// mediaType field differs from the Content-Type of the request. It also returns an error if
// the manifest refers to content that the repository does not have.
func (f *files) checkReferences(repo, mediaType string, raw []byte) error {
	if kind, _, err := mime.ParseMediaType(mediaType); err != nil || kind == "application/octet-stream" {
		return fmt.Errorf("%w: Content-Type is %.100q: send the media type of the manifest", oci.ErrManifestInvalid, mediaType)
	}
	m, err := parse(raw)
	if err != nil {
		return err
	}
	if m.MediaType != "" && m.MediaType != mediaType {
		return fmt.Errorf("%w: its mediaType is %.100q, but Content-Type is %.100q: send the same media type in both", oci.ErrManifestInvalid, m.MediaType, mediaType)
	}
	for _, b := range m.requiredBlobs() {
		if _, err := f.blobDescriptor(repo, b.Digest); err != nil {
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

func (f *files) read(desc oci.Descriptor) (manifest, error) {
	r, err := f.openPart(desc, 0, -1)
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

// referrer adds the artifact type and the annotations of m to the descriptor
// desc. A list of referrers contains descriptors with these fields.
func (m manifest) referrer(desc oci.Descriptor) oci.Descriptor {
	desc.ArtifactType, desc.Annotations = m.ArtifactType, m.Annotations
	if desc.ArtifactType == "" && m.Config != nil {
		desc.ArtifactType = m.Config.MediaType
	}
	return desc
}
