package registry

import (
	"context"
	"fmt"
	"io"
	"iter"

	oci "cuelabs.dev/go/oci/ociregistry"
	"cuelabs.dev/go/oci/ociregistry/ocimem"
	"github.com/opencontainers/go-digest"
)

// backend implements the requests of the registry protocol with the files of the storage.
// Before a method uses the files, it calls the guard, which checks the caller's
// authorization.
type backend struct {
	*oci.Funcs // the methods that backend does not define itself; each of them returns an unsupported error
	files      *files
	guard      *guard
	quotas     *quotaChecker
}

func (b *backend) GetBlob(ctx context.Context, repo string, d oci.Digest) (oci.BlobReader, error) {
	desc, err := b.readableBlob(ctx, repo, d)
	if err != nil {
		return nil, err
	}
	return b.files.openPart(desc, 0, -1)
}

// GetBlobRange reads a part of a blob. It returns ErrRangeInvalid if the part begins after the last
// byte of the blob (RFC 9110 section 14.1.2).
func (b *backend) GetBlobRange(ctx context.Context, repo string, d oci.Digest, from, to int64) (oci.BlobReader, error) {
	desc, err := b.readableBlob(ctx, repo, d)
	if err != nil {
		return nil, err
	}
	if from >= desc.Size {
		return nil, oci.ErrRangeInvalid
	}
	return b.files.openPart(desc, from, to)
}

// readableBlob returns the descriptor of a blob. If the caller may not pull from the repository,
// it returns an error.
func (b *backend) readableBlob(ctx context.Context, repo string, d oci.Digest) (oci.Descriptor, error) {
	if err := b.guard.allow(ctx, repo, pull); err != nil {
		return oci.Descriptor{}, err
	}
	return b.files.blobDescriptor(repo, d)
}

// ResolveBlob returns the descriptor of a blob for a HEAD request. Clients send HEAD requests to
// find out whether they must push the blob.
func (b *backend) ResolveBlob(ctx context.Context, repo string, d oci.Digest) (oci.Descriptor, error) {
	if err := b.guard.allow(ctx, repo, pull); err != nil {
		return oci.Descriptor{}, err
	}
	return b.files.touchBlob(repo, d)
}

func (b *backend) GetManifest(ctx context.Context, repo string, d oci.Digest) (oci.BlobReader, error) {
	desc, err := b.ResolveManifest(ctx, repo, d)
	if err != nil {
		return nil, err
	}
	return b.readManifest(desc)
}

func (b *backend) ResolveManifest(ctx context.Context, repo string, d oci.Digest) (oci.Descriptor, error) {
	if err := b.guard.allow(ctx, repo, pull); err != nil {
		return oci.Descriptor{}, err
	}
	return b.files.manifest(repo, d)
}

// GetTag reads the manifest to which a tag points.
func (b *backend) GetTag(ctx context.Context, repo, tag string) (oci.BlobReader, error) {
	desc, err := b.ResolveTag(ctx, repo, tag)
	if err != nil {
		return nil, err
	}
	return b.readManifest(desc)
}

// readManifest reads a manifest into memory. The OCI library does not close the reader that
// readManifest returns, so this reader must not use an open file.
func (b *backend) readManifest(desc oci.Descriptor) (oci.BlobReader, error) {
	r, err := b.files.openPart(desc, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	return ocimem.NewBytesReader(content, desc), err
}

func (b *backend) ResolveTag(ctx context.Context, repo, tag string) (oci.Descriptor, error) {
	if err := b.guard.allow(ctx, repo, pull); err != nil {
		return oci.Descriptor{}, err
	}
	return b.files.tag(repo, tag)
}

// PushBlob stores a blob that arrives in one request.
func (b *backend) PushBlob(ctx context.Context, repo string, desc oci.Descriptor, r io.Reader) (oci.Descriptor, error) {
	if err := b.guard.allow(ctx, repo, push); err != nil {
		return oci.Descriptor{}, err
	}
	u, err := b.startUpload(ctx, repo)
	if err != nil {
		return oci.Descriptor{}, err
	}
	defer func() { _ = u.Cancel() }() // Cancel does nothing after the commit
	if _, err := io.Copy(u, r); err != nil {
		return oci.Descriptor{}, fmt.Errorf("%w: %w", oci.ErrBlobUploadInvalid, err)
	}
	if desc.Size >= 0 && u.Size() != desc.Size {
		return oci.Descriptor{}, oci.ErrSizeInvalid
	}
	return u.Commit(desc.Digest)
}

// PushBlobChunked starts an upload.
func (b *backend) PushBlobChunked(ctx context.Context, repo string, _ int) (oci.BlobWriter, error) {
	if err := b.guard.allow(ctx, repo, push); err != nil {
		return nil, err
	}
	u, err := b.startUpload(ctx, repo)
	if err != nil {
		return nil, err
	}
	return u, nil
}

func (b *backend) startUpload(ctx context.Context, repo string) (*upload, error) {
	about := sessionOf(ctx)
	if err := b.quotas.checkUploads(about.project); err != nil {
		return nil, err
	}
	u, err := b.files.startUpload(about, repo)
	if err == nil {
		u.quotas = b.quotas
	}
	return u, err
}

func (b *backend) PushBlobChunkedResume(ctx context.Context, repo, id string, offset int64, _ int) (oci.BlobWriter, error) {
	if err := b.guard.allow(ctx, repo, push); err != nil {
		return nil, err
	}
	u, err := b.files.resumeUpload(sessionOf(ctx), repo, id, offset)
	if err != nil {
		return nil, err
	}
	u.quotas = b.quotas
	return u, nil
}

// MountBlob adds a blob of the repository source to the repository target. The caller needs the
// permission to pull from the source repository, and the permission to push to the target
// repository.
func (b *backend) MountBlob(ctx context.Context, source, target string, d oci.Digest) (oci.Descriptor, error) {
	if err := b.guard.allow(ctx, target, push); err != nil {
		return oci.Descriptor{}, err
	}
	if err := b.quotas.checkBytes(sessionOf(ctx).project); err != nil {
		return oci.Descriptor{}, err
	}
	if err := b.guard.allow(ctx, source, pull); err != nil {
		return oci.Descriptor{}, err
	}
	return b.files.mount(source, target, d)
}

// mayMount reports whether the repository source has the blob and the caller may pull from this
// repository. If mayMount returns false, the client must upload the blob.
func (b *backend) mayMount(ctx context.Context, source string, d oci.Digest) bool {
	if b.guard.allow(ctx, source, pull) != nil {
		return false
	}
	_, err := b.files.blobDescriptor(source, d)
	return err == nil
}

func (b *backend) PushManifest(ctx context.Context, repo, tag string, raw []byte, mediaType string) (oci.Descriptor, error) {
	if err := b.guard.allow(ctx, repo, push); err != nil {
		return oci.Descriptor{}, err
	}
	if err := b.quotas.checkBytes(sessionOf(ctx).project); err != nil {
		return oci.Descriptor{}, err
	}
	return b.files.putManifest(repo, tag, raw, mediaType)
}

func (b *backend) DeleteBlob(ctx context.Context, repo string, d oci.Digest) error {
	if err := b.guard.allow(ctx, repo, remove); err != nil {
		return err
	}
	return b.files.unlink(repo, d)
}

// DeleteManifest removes a manifest and the tags that point to this manifest.
func (b *backend) DeleteManifest(ctx context.Context, repo string, d oci.Digest) error {
	if err := b.guard.allow(ctx, repo, remove); err != nil {
		return err
	}
	return b.files.forget(repo, d)
}

// DeleteTag removes a tag. The manifest stays.
func (b *backend) DeleteTag(ctx context.Context, repo, tag string) error {
	if err := b.guard.allow(ctx, repo, remove); err != nil {
		return err
	}
	return b.files.untag(repo, tag)
}

// Repositories lists every repository of the registry. The caller needs the permission
// registry.catalog.
func (b *backend) Repositories(ctx context.Context, after string) iter.Seq2[string, error] {
	if err := b.guard.allowCatalog(ctx); err != nil {
		return one[string](err)
	}
	return namesAfter(ctx, after, func() ([]string, error) {
		ids, err := b.guard.engine.Repositories()
		if err != nil {
			return nil, err
		}
		return b.files.listOwned(ids)
	})
}

func (b *backend) Tags(ctx context.Context, repo, after string) iter.Seq2[string, error] {
	if err := b.guard.allow(ctx, repo, pull); err != nil {
		return one[string](err)
	}
	return namesAfter(ctx, after, func() ([]string, error) { return b.files.listFiles(repo, "tags") })
}

// Referrers lists the manifests whose subject field contains the given digest. It reads all
// manifests of the repository.
func (b *backend) Referrers(ctx context.Context, repo string, subject oci.Digest, artifactType string) iter.Seq2[oci.Descriptor, error] {
	if err := b.guard.allow(ctx, repo, pull); err != nil {
		return one[oci.Descriptor](err)
	}
	return func(yield func(oci.Descriptor, error) bool) {
		all, err := b.files.listFiles(repo, "manifests")
		if err != nil {
			yield(oci.Descriptor{}, err)
			return
		}
		for _, hex := range all {
			desc, err := b.files.manifest(repo, digest.NewDigestFromEncoded(digest.SHA256, hex))
			if err != nil {
				continue // deleted in the meantime
			}
			m, err := b.files.read(desc)
			if err != nil || m.Subject == nil || m.Subject.Digest != subject {
				continue
			}
			desc = m.referrer(desc)
			if artifactType != "" && desc.ArtifactType != artifactType {
				continue
			}
			if !yield(desc, nil) {
				return
			}
		}
	}
}

func one[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}

// namesAfter returns an iterator over the names that listNames returns. The iterator keeps the
// order of listNames. It yields only names that follow the given name in alphabetical order. If the
// request in ctx has the query parameter n=0, the iterator yields no names.
func namesAfter(ctx context.Context, after string, listNames func() ([]string, error)) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		all, err := listNames()
		if err != nil {
			yield("", err)
			return
		}
		if sessionOf(ctx).noNames {
			return
		}
		for _, name := range all {
			if name > after && !yield(name, nil) {
				return
			}
		}
	}
}
