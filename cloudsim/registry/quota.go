package registry

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	oci "cuelabs.dev/go/oci/ociregistry"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// quotaChecker limits the storage of a project's repositories. The limit is not exact, because
// checkBytes reuses a measurement until it is older than usageAge. Until the next measurement,
// checkBytes does not count new data.
type quotaChecker struct {
	engine *engine.Engine
	files  *files

	mu    sync.Mutex
	usage map[cloudsim.ProjectID]usage
}

// usage is the measured storage of a project's repositories.
type usage struct {
	at    time.Time
	bytes int64 // size of blobs, manifests and open uploads; a blob in two repositories counts twice
}

// usageAge is the maximum age of a measurement that checkBytes reuses. checkBytes does not measure
// on every call, because a measurement of 10,000 blobs takes about 50 ms.
const usageAge = 5 * time.Second

// checkUploads returns an error if one more open upload would exceed the
// project's quota.
func (q *quotaChecker) checkUploads(project cloudsim.ProjectID) error {
	records, err := q.engine.Repositories()
	if err != nil {
		return err
	}
	open := 0
	for name, r := range records {
		if r.Project != project {
			continue
		}
		uploads, err := os.ReadDir(q.files.repo(name, "uploads"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		open += len(uploads)
	}
	return overQuota(q.engine.CheckQuota(project, cloudsim.QuotaRegistryUploads, int64(open), 1))
}

// checkBytes returns an error if the project has used up its storage quota. If q is nil, the
// storage has no limit.
func (q *quotaChecker) checkBytes(project cloudsim.ProjectID) error {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	u, known := q.usage[project]
	if !known || now.Sub(u.at) > usageAge {
		bytes, err := q.measure(project)
		if err != nil {
			return err
		}
		if q.usage == nil {
			q.usage = map[cloudsim.ProjectID]usage{}
		}
		u = usage{now, bytes}
		q.usage[project] = u
	}
	return overQuota(q.engine.CheckQuota(project, cloudsim.QuotaRegistryGiB, u.bytes>>30, 1))
}

func (q *quotaChecker) measure(project cloudsim.ProjectID) (bytes int64, err error) {
	records, err := q.engine.Repositories()
	if err != nil {
		return 0, err
	}
	for name, r := range records {
		if r.Project != project {
			continue
		}
		content := func(hex string) string { return filepath.Join(q.files.dir, "blobs", hex) }
		for part, path := range map[string]func(string) string{
			"blobs": content, "manifests": content,
			"uploads": func(id string) string { return q.files.repo(name, "uploads", id) },
		} {
			all, err := os.ReadDir(q.files.repo(name, part))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return 0, err
			}
			for _, e := range all {
				if info, err := os.Stat(path(e.Name())); err == nil { // skips a file that was removed in the meantime
					bytes += info.Size()
				}
			}
		}
	}
	return bytes, nil
}

// overQuota replaces the engine's quota error, which has status 429. The new error has status 403,
// because clients repeat a request after status 429.
func overQuota(err error) error {
	if errors.Is(err, cloudsim.Exhausted) {
		return errWithCode(oci.ErrDenied, err.Error())
	}
	return err
}
