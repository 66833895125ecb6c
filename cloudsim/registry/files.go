package registry

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	oci "cuelabs.dev/go/oci/ociregistry"
	"cuelabs.dev/go/oci/ociregistry/ociref"
	"github.com/opencontainers/go-digest"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// files is the registry's storage.
//
//	DIR/blobs/HEX                  content of a blob or manifest, shared by all repositories
//	DIR/repositories/NAME/owner    identity of the record that owns the folder
//	                 .../blobs/HEX     the repository has this blob
//	                 .../manifests/HEX the repository has this manifest; the file contains the media type
//	                 .../tags/TAG      digest of the manifest
//	                 .../uploads/ID    a blob that a client is pushing
//
// NAME is escaped, so that a name with slashes becomes the name of one folder. Uploads can
// be incomplete. The registry writes each of the other files completely or not at all. The
// only state in memory is the set of uploads that running requests use.
type files struct {
	dir     string
	reserve int64 // bytes of the disk that pushes must leave free
	// The garbage collector holds this lock for writing. A request that adds a blob to a
	// repository holds this lock for reading, so that the garbage collector cannot remove the blob.
	collecting sync.RWMutex
	owning     sync.Mutex

	uploadsMu sync.Mutex
	uploads   map[string]bool // by id; true while a request has the upload open
}

// manifestFile is the content of the file manifests/HEX of a repository.
type manifestFile struct {
	MediaType string `json:"mediaType"`
}

func (f *files) blob(d digest.Digest) string { return filepath.Join(f.dir, "blobs", d.Encoded()) }

func (f *files) repo(name string, parts ...string) string {
	return filepath.Join(append([]string{f.dir, "repositories", url.PathEscape(name)}, parts...)...)
}

// check returns an error if d is not a sha256 digest. The registry allows only one
// algorithm, because otherwise the same content could have two digests.
func check(d digest.Digest) error {
	if d.Validate() != nil || d.Algorithm() != digest.SHA256 {
		return fmt.Errorf("%w: want sha256:HEX, with 64 lowercase hexadecimal digits, got %.80q", oci.ErrDigestInvalid, d)
	}
	return nil
}

// identity returns a text that identifies a repository record. The id alone is not enough,
// because the cloud reuses ids after it has loaded a saved state. The identity therefore also
// contains the project and the creation time. If the cloud's clock is stopped, two different
// records can still have the same identity.
func identity(r cloudsim.Repository) string {
	return fmt.Sprintf("%s %s %s", r.ID, r.Project, r.CreatedAt.UTC().Format(time.RFC3339Nano))
}

// claimFolder ensures that the folder of a repository name belongs to the record r. The folder can
// still belong to a deleted repository with the same name. If the folder does not belong to r,
// claimFolder calls readRecords to get the current records. If r is one of them, claimFolder
// replaces the folder with an empty folder for r. Otherwise a client has deleted r in the meantime.
// claimFolder then keeps the folder and returns ErrNameUnknown.
func (f *files) claimFolder(name string, r cloudsim.Repository, readRecords func() (map[string]cloudsim.Repository, error)) error {
	id := identity(r)
	if have, err := f.owner(name); err != nil || have == id {
		return err
	}
	f.collecting.RLock()
	defer f.collecting.RUnlock()
	f.owning.Lock()
	defer f.owning.Unlock()
	if have, err := f.owner(name); err != nil || have == id {
		return err
	}
	now, err := readRecords()
	if err != nil {
		return err
	}
	if n, ok := now[name]; !ok || identity(n) != id {
		return oci.ErrNameUnknown
	}
	if err := os.RemoveAll(f.repo(name)); err != nil {
		return err
	}
	for _, part := range []string{"blobs", "manifests", "tags", "uploads"} {
		if err := os.MkdirAll(f.repo(name, part), 0o700); err != nil {
			return err
		}
	}
	return f.write(f.repo(name, "owner"), []byte(id))
}

// owner returns the identity of the repository that owns the folder with the given name. The
// identity is a result of the function identity. If the folder has no owner, owner returns "".
func (f *files) owner(name string) (id string, err error) {
	raw, err := os.ReadFile(f.repo(name, "owner"))
	return string(raw), replaceNotExist(err, nil)
}

// write creates or replaces a file atomically.
func (f *files) write(path string, raw []byte) error {
	tmp, err := os.CreateTemp(f.dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // the file no longer exists after a successful rename
	_, err = tmp.Write(raw)
	if err == nil {
		err = tmp.Sync() // without a sync, a power failure can leave an empty file under the name
	}
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// blobDescriptor returns the descriptor of a blob in a repository. It returns ErrBlobUnknown if
// the repository does not have the blob.
func (f *files) blobDescriptor(repo string, d digest.Digest) (oci.Descriptor, error) {
	if err := check(d); err != nil {
		return oci.Descriptor{}, err
	}
	if _, err := os.Stat(f.repo(repo, "blobs", d.Encoded())); err != nil {
		return oci.Descriptor{}, replaceNotExist(err, oci.ErrBlobUnknown)
	}
	info, err := os.Stat(f.blob(d))
	if err != nil {
		return oci.Descriptor{}, replaceNotExist(err, oci.ErrBlobUnknown)
	}
	return oci.Descriptor{MediaType: "application/octet-stream", Digest: d, Size: info.Size()}, nil
}

// replaceNotExist returns unknownErr if err means that a file does not exist. Otherwise it
// returns err.
func replaceNotExist(err error, unknownErr error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return unknownErr
	}
	return err
}

func (f *files) manifest(repo string, d digest.Digest) (oci.Descriptor, error) {
	if err := check(d); err != nil {
		return oci.Descriptor{}, err
	}
	raw, err := os.ReadFile(f.repo(repo, "manifests", d.Encoded()))
	if err != nil {
		return oci.Descriptor{}, replaceNotExist(err, oci.ErrManifestUnknown)
	}
	var s manifestFile
	if err := json.Unmarshal(raw, &s); err != nil {
		return oci.Descriptor{}, fmt.Errorf("manifest %s of %s is damaged: %w", d, repo, err)
	}
	info, err := os.Stat(f.blob(d))
	if err != nil {
		return oci.Descriptor{}, replaceNotExist(err, oci.ErrManifestUnknown)
	}
	return oci.Descriptor{MediaType: s.MediaType, Digest: d, Size: info.Size()}, nil
}

func (f *files) tag(repo, tag string) (oci.Descriptor, error) {
	if !ociref.IsValidTag(tag) {
		return oci.Descriptor{}, oci.ErrManifestUnknown
	}
	raw, err := os.ReadFile(f.repo(repo, "tags", tag))
	if err != nil {
		return oci.Descriptor{}, replaceNotExist(err, oci.ErrManifestUnknown)
	}
	return f.manifest(repo, digest.Digest(raw))
}

type reader struct {
	io.Reader
	io.Closer
	desc oci.Descriptor
}

func (r *reader) Descriptor() oci.Descriptor { return r.desc }

// openPart returns a reader for a part of a blob or manifest. The part contains the bytes at the
// offsets from start to end-1. If the parameter end is negative or too large, the reader reads all
// bytes from start to the last byte.
func (f *files) openPart(desc oci.Descriptor, start, end int64) (oci.BlobReader, error) {
	file, err := os.Open(f.blob(desc.Digest))
	if err != nil {
		return nil, replaceNotExist(err, oci.ErrBlobUnknown)
	}
	if end < 0 || end > desc.Size {
		end = desc.Size
	}
	if start > end {
		return nil, errors.Join(oci.ErrRangeInvalid, file.Close())
	}
	return &reader{io.NewSectionReader(file, start, end-start), file, desc}, nil
}

// link adds a blob to a repository. The content must already be in the folder DIR/blobs.
func (f *files) link(repo string, d digest.Digest) error {
	return f.write(f.repo(repo, "blobs", d.Encoded()), nil)
}

// keep turns a temporary file into a blob of a repository.
func (f *files) keep(repo string, d digest.Digest, tmp string) error {
	f.collecting.RLock()
	defer f.collecting.RUnlock()
	if err := os.Rename(tmp, f.blob(d)); err != nil {
		return err
	}
	return f.link(repo, d)
}

func (f *files) mount(source, target string, d digest.Digest) (oci.Descriptor, error) {
	f.collecting.RLock()
	defer f.collecting.RUnlock()
	desc, err := f.blobDescriptor(source, d)
	if err != nil {
		return desc, err
	}
	return desc, f.link(target, d)
}

// putManifest checks and stores a manifest. If tag is not empty, the method
// moves the tag to the manifest. The repository must have all blobs and
// manifests to which the manifest refers.
func (f *files) putManifest(repo, tag string, raw []byte, mediaType string) (oci.Descriptor, error) {
	f.collecting.RLock()
	defer f.collecting.RUnlock()
	d := digest.FromBytes(raw)
	if tag != "" && !ociref.IsValidTag(tag) {
		return oci.Descriptor{}, fmt.Errorf("%w: %.150q is not a valid tag", oci.ErrManifestInvalid, tag)
	}
	if err := f.checkReferences(repo, mediaType, raw); err != nil {
		return oci.Descriptor{}, err
	}
	if err := f.checkFreeSpace(int64(len(raw))); err != nil {
		return oci.Descriptor{}, err
	}
	about, err := json.Marshal(manifestFile{mediaType})
	if err != nil {
		return oci.Descriptor{}, err
	}
	if err := f.write(f.blob(d), raw); err != nil {
		return oci.Descriptor{}, err
	}
	if err := f.write(f.repo(repo, "manifests", d.Encoded()), about); err != nil {
		return oci.Descriptor{}, err
	}
	if tag != "" {
		err = f.write(f.repo(repo, "tags", tag), []byte(d))
	}
	return oci.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(raw))}, err
}

// touchBlob returns the same result as blobDescriptor. It also renews the modification time of the
// repository's link to the blob, so that the garbage collector keeps the blob. The reason is that a
// client does not push a blob that already exists. The client pushes only a manifest that refers to
// the blob, and this push would fail without the blob.
func (f *files) touchBlob(repo string, d digest.Digest) (oci.Descriptor, error) {
	f.collecting.RLock()
	defer f.collecting.RUnlock()
	desc, err := f.blobDescriptor(repo, d)
	if err != nil {
		return desc, err
	}
	now := time.Now()
	return desc, replaceNotExist(os.Chtimes(f.repo(repo, "blobs", d.Encoded()), now, now), oci.ErrBlobUnknown)
}

func (f *files) unlink(repo string, d digest.Digest) error {
	f.collecting.RLock()
	defer f.collecting.RUnlock()
	if _, err := f.blobDescriptor(repo, d); err != nil {
		return err
	}
	return replaceNotExist(os.Remove(f.repo(repo, "blobs", d.Encoded())), oci.ErrBlobUnknown)
}

// untag removes a tag. The manifest stays.
func (f *files) untag(repo, tag string) error {
	if _, err := f.tag(repo, tag); err != nil {
		return err
	}
	return replaceNotExist(os.Remove(f.repo(repo, "tags", tag)), oci.ErrManifestUnknown)
}

// forget removes a manifest and the tags that point to this manifest.
func (f *files) forget(repo string, d digest.Digest) error {
	f.collecting.RLock()
	defer f.collecting.RUnlock()
	if _, err := f.manifest(repo, d); err != nil {
		return err
	}
	tags, err := f.listFiles(repo, "tags")
	if err != nil {
		return err
	}
	for _, tag := range tags {
		if raw, err := os.ReadFile(f.repo(repo, "tags", tag)); err == nil && string(raw) == string(d) {
			if err := replaceNotExist(os.Remove(f.repo(repo, "tags", tag)), nil); err != nil {
				return err
			}
		}
	}
	return replaceNotExist(os.Remove(f.repo(repo, "manifests", d.Encoded())), oci.ErrManifestUnknown)
}

// listFiles lists the names of the files in a folder of a repository, in
// alphabetical order.
func (f *files) listFiles(repo, part string) ([]string, error) {
	all, err := os.ReadDir(f.repo(repo, part))
	if err != nil {
		return nil, replaceNotExist(err, oci.ErrNameUnknown)
	}
	names := make([]string, 0, len(all))
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// listOwned lists the names of the repositories whose folder belongs to one of
// the records. The names are in alphabetical order.
func (f *files) listOwned(records map[string]cloudsim.Repository) ([]string, error) {
	names, err := f.listRepositories()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		owned, err := f.isCurrent(name, records)
		return err != nil || !owned
	}), nil
}

// isCurrent reports whether the folder of the named repository belongs to the
// current record of this repository.
func (f *files) isCurrent(name string, records map[string]cloudsim.Repository) (bool, error) {
	r, known := records[name]
	id, err := f.owner(name)
	return known && id == identity(r), err
}

// listRepositories lists the names of the repositories that have a folder, in
// alphabetical order.
func (f *files) listRepositories() ([]string, error) {
	all, err := os.ReadDir(filepath.Join(f.dir, "repositories"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range all {
		name, err := url.PathUnescape(e.Name())
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func newUploadID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never returns an error: if it fails, crypto/rand ends the process
	return hex.EncodeToString(b[:])
}
