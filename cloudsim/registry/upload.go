package registry

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	oci "cuelabs.dev/go/oci/ociregistry"
	"github.com/opencontainers/go-digest"
)

var uploadRE = regexp.MustCompile(`^[0-9a-f]{32}$`)

// upload is a blob that a client is pushing in one or more requests. A file
// contains the data that has arrived.
type upload struct {
	files           *files
	repo            string
	id              string
	file            *os.File
	size            int64
	want            int64 // required offset of the next byte; -1: Write does not check the offset
	bytesUntilCheck int64 // bytes that the upload may write before the next check of the free space
	about           *session

	quotas *quotaChecker
}

func (f *files) startUpload(about *session, repo string) (*upload, error) {
	id := newUploadID()
	f.takeUpload(id)
	file, err := os.OpenFile(f.repo(repo, "uploads", id), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		f.releaseUpload(id)
		return nil, replaceNotExist(err, oci.ErrNameUnknown)
	}
	return &upload{files: f, repo: repo, id: id, file: file, want: -1, about: about}, nil
}

// resumeUpload continues an upload. If the offset is neither 0 nor the size of the upload,
// resumeUpload returns ErrRangeInvalid. It accepts 0 for an upload of any size, because the OCI
// library also passes 0 if the client sent no offset. If the request contains data, the method
// Write later checks that the offset is equal to the size of the upload.
func (f *files) resumeUpload(about *session, repo, id string, offset int64) (*upload, error) {
	if !uploadRE.MatchString(id) {
		return nil, oci.ErrBlobUploadUnknown
	}
	if !f.takeUpload(id) {
		return nil, fmt.Errorf("%w: another request uses this upload: wait until that request has ended", oci.ErrRangeInvalid)
	}
	file, err := os.OpenFile(f.repo(repo, "uploads", id), os.O_RDWR, 0)
	if err != nil {
		f.releaseUpload(id)
		return nil, replaceNotExist(err, oci.ErrBlobUploadUnknown)
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil && offset > 0 && offset != size {
		err = oci.ErrRangeInvalid
	}
	if err != nil {
		f.releaseUpload(id)
		return nil, errors.Join(err, file.Close())
	}
	return &upload{files: f, repo: repo, id: id, file: file, size: size, want: offset, about: about}, nil
}

// takeUpload reserves an upload for one request. It returns false if another request has reserved
// the upload. Without the reservation, a request could write to the file after another request has
// stored the file as a shared blob.
func (f *files) takeUpload(id string) bool {
	f.uploadsMu.Lock()
	defer f.uploadsMu.Unlock()
	if f.uploads[id] {
		return false
	}
	if f.uploads == nil {
		f.uploads = map[string]bool{}
	}
	f.uploads[id] = true
	return true
}

func (f *files) releaseUpload(id string) {
	f.uploadsMu.Lock()
	defer f.uploadsMu.Unlock()
	delete(f.uploads, id)
}

// Write appends p to the upload. The first Write returns ErrRangeInvalid if the client's offset is
// not the size of the upload.
func (u *upload) Write(p []byte) (int, error) {
	if u.want >= 0 && u.want != u.size && len(p) > 0 {
		return 0, oci.ErrRangeInvalid
	}
	n, err := u.write(p)
	u.size += int64(n)
	u.want = -1
	u.about.unwritten = err
	return n, err
}

func (u *upload) write(p []byte) (int, error) {
	if u.bytesUntilCheck -= int64(len(p)); u.bytesUntilCheck < 0 {
		if err := errors.Join(u.files.checkFreeSpace(spaceCheckInterval), u.quotas.checkBytes(u.about.project)); err != nil {
			return 0, err
		}
		u.bytesUntilCheck = spaceCheckInterval
	}
	return u.file.Write(p)
}

// Close releases the upload for other requests. A second call of Close does
// nothing.
func (u *upload) Close() error {
	err := u.file.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	u.files.releaseUpload(u.id)
	return err
}

func (u *upload) Size() int64    { return u.size }
func (u *upload) ChunkSize() int { return 1 << 16 }
func (u *upload) ID() string     { return u.id }

// Commit checks the digest of all written data and stores the data as a blob.
func (u *upload) Commit(d oci.Digest) (oci.Descriptor, error) {
	if err := check(d); err != nil {
		return oci.Descriptor{}, err
	}
	if _, err := u.file.Seek(0, io.SeekStart); err != nil {
		return oci.Descriptor{}, err
	}
	got, err := digest.SHA256.FromReader(u.file)
	if err != nil {
		return oci.Descriptor{}, err
	}
	if got != d {
		return oci.Descriptor{}, fmt.Errorf("%w: the digest of the data is %s", oci.ErrDigestInvalid, got)
	}
	if err := u.file.Sync(); err != nil {
		return oci.Descriptor{}, err
	}
	defer func() { _ = u.Close() }() // another request may open the upload only after the file has moved
	if err := u.files.keep(u.repo, d, u.files.repo(u.repo, "uploads", u.id)); err != nil {
		return oci.Descriptor{}, replaceNotExist(err, oci.ErrBlobUploadUnknown)
	}
	return oci.Descriptor{MediaType: "application/octet-stream", Digest: d, Size: u.size}, nil
}

// Cancel removes the upload.
func (u *upload) Cancel() error {
	return errors.Join(u.Close(), replaceNotExist(os.Remove(u.files.repo(u.repo, "uploads", u.id)), nil))
}
