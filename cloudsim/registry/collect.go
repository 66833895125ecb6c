package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// collect removes unused files from the storage, and returns the number of removed files and
// folders. First it removes the folders of repositories without a current record in the cloud. Then
// it removes the following files if they are older than the grace period:
//   - abandoned uploads and temporary files
//   - a repository's links to blobs that no manifest of the repository needs
//   - content to which no repository links
//
// Manifests stay until a caller deletes them, because a client may use an untagged manifest by its
// digest.
//
// Pushes, deletions of content and HEAD requests for blobs wait during a collection. GET requests
// do not wait. collect reads the repository records only after it has blocked the pushes, so that
// the records are current.
func (f *files) collect(ctx context.Context, grace time.Duration, records func() (map[string]cloudsim.Repository, error)) (removed int, err error) {
	f.collecting.Lock()
	defer f.collecting.Unlock()
	ids, err := records()
	if err != nil {
		return 0, err
	}
	if removed, err = f.collectDeleted(ids); err != nil {
		return removed, err
	}
	names, err := f.listRepositories()
	if err != nil {
		return removed, err
	}
	old := time.Now().Add(-grace)
	used := map[string]bool{}
	var damaged []error
	for _, name := range names {
		if ctx.Err() != nil {
			return removed, nil
		}
		n, err := f.collectRepository(name, old, used)
		removed += n
		if err != nil { // a damaged repository keeps its files, and the collection continues with the other repositories
			damaged = append(damaged, fmt.Errorf("repository %s: %w", name, err))
			if err := f.markUsed(name, used); err != nil {
				return removed, errors.Join(append(damaged, err)...)
			}
		}
	}
	blobs, err1 := sweep(filepath.Join(f.dir, "blobs"), old, func(hex string) bool { return used[hex] })
	folders, err2 := sweep(f.dir, old, func(name string) bool { return !strings.HasPrefix(name, ".new-") })
	return removed + blobs + folders, errors.Join(append(damaged, err1, err2)...)
}

// markUsed adds the digests of all manifests and blobs of a repository to the map inUse. The
// collection keeps the content with these digests.
func (f *files) markUsed(name string, inUse map[string]bool) error {
	for _, part := range []string{"manifests", "blobs"} {
		all, err := f.listFiles(name, part)
		if err != nil {
			return err
		}
		for _, hex := range all {
			inUse[hex] = true
		}
	}
	return nil
}

// collectDeleted removes the folders that belong to no current record.
func (f *files) collectDeleted(ids map[string]cloudsim.Repository) (removed int, err error) {
	names, err := f.listRepositories()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		owned, err := f.isCurrent(name, ids)
		if err != nil { // the folder may belong to a record, so the folder must stay
			return removed, err
		}
		if owned {
			continue
		}
		if err := os.RemoveAll(f.repo(name)); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// collectRepository removes unreferenced blobs and uploads from a repository if they were last
// modified before the time old. It adds the digests of the remaining blobs and manifests to the map
// inUse.
func (f *files) collectRepository(name string, old time.Time, inUse map[string]bool) (int, error) {
	manifests, err := f.listFiles(name, "manifests")
	if err != nil {
		return 0, err
	}
	needed := map[string]bool{}
	for _, hex := range manifests {
		inUse[hex] = true
		desc, err := f.manifest(name, digest.NewDigestFromEncoded(digest.SHA256, hex))
		if err != nil {
			return 0, err
		}
		m, err := f.read(desc)
		if err != nil {
			return 0, err
		}
		for _, b := range m.requiredBlobs() {
			if err := check(b.Digest); err != nil {
				return 0, fmt.Errorf("manifest %s: %w", hex, err)
			}
			needed[b.Digest.Encoded()] = true
		}
	}
	n, err1 := sweep(f.repo(name, "blobs"), old, func(hex string) bool { return needed[hex] })
	m, err2 := sweep(f.repo(name, "uploads"), old, func(string) bool { return false })
	left, err3 := f.listFiles(name, "blobs")
	for _, hex := range left {
		inUse[hex] = true
	}
	return n + m, errors.Join(err1, err2, err3)
}

// sweep removes the files of the folder dir that were last modified before the given time. It keeps
// a file if mustKeep returns true for the file's name.
func sweep(dir string, old time.Time, mustKeep func(name string) bool) (removed int, err error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range all {
		if e.IsDir() || mustKeep(e.Name()) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().After(old) {
			continue
		}
		if err != nil {
			return removed, err
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}
