package credprovider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cloudsim-dev/allinone/internal/flock"
)

// credential returns a credential from the cache or from the cloud. Concurrent
// runs share a lock: one run calls the cloud, and the others use its result. A
// node that starts two hundred pods thus makes one call. If the cache is not
// usable, every run calls the cloud.
func (c Config) credential(ctx context.Context, host, repo, token string) (credential, error) {
	if c.CacheDir == "" {
		return c.fetch(ctx, host, repo, token)
	}
	path, err := c.cacheFile(host, repo, token)
	if err != nil {
		return c.fetch(ctx, host, repo, token)
	}
	if cred, ok := readCache(path); ok {
		return cred, nil
	}
	unlock, err := lock(ctx, path+".lock")
	if err != nil {
		return c.fetch(ctx, host, repo, token)
	}
	defer unlock()
	if cred, ok := readCache(path); ok {
		return cred, nil
	}
	cred, err := c.fetch(ctx, host, repo, token)
	if err != nil {
		return cred, err
	}
	_ = writeCache(path, cred) // on an error the next run calls the cloud
	prune(c.CacheDir)
	return cred, nil
}

// keepFiles is longer than the life of a password and the duration of a run.
const keepFiles = 2 * time.Hour

// prune removes files that are no longer usable. Each pod's token has its own
// files, and a run that was killed leaves a temporary file.
func prune(dir string) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range all {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > keepFiles {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// cacheFile returns the file for a credential. The node has one file, and each
// pair of token and repository has its own, so identities never share a
// credential. The name also depends on the cloud. cacheFile creates the folder.
// It returns an error for a folder that other users can access.
func (c Config) cacheFile(host, repo, token string) (string, error) {
	if err := os.MkdirAll(c.CacheDir, 0o700); err != nil {
		return "", err
	}
	info, err := os.Lstat(c.CacheDir)
	switch {
	case err != nil:
		return "", err
	case !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !owned(info):
		return "", fmt.Errorf("%s can be reached by others", c.CacheDir)
	}
	words := []string{"node", c.CloudURL, c.MetadataURL, host}
	if token != "" {
		words = []string{"serviceAccount", c.CloudURL, host, repo, token}
	}
	raw, err := json.Marshal(words)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return filepath.Join(c.CacheDir, hex.EncodeToString(sum[:16])+".json"), nil
}

// readCache returns a cached credential that is still usable. A run uses a
// credential for half of its life. The next run then gets a new credential while
// the old one still works. After a rotation of the cloud's keys, the plugin
// therefore stops using the old key before the overlap ends.
func readCache(path string) (cred credential, ok bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return cred, false
	}
	var kept keptCredential
	if json.Unmarshal(raw, &kept) != nil || kept.Password == "" {
		return cred, false
	}
	life := kept.ExpiresAt.Sub(kept.MadeAt)
	fresh := kept.left() > max(life/2, minLife) && !kept.MadeAt.After(time.Now())
	return kept.credential, fresh
}

type keptCredential struct {
	credential
	MadeAt time.Time `json:"madeAt"`
}

func writeCache(path string, cred credential) error {
	raw, err := json.Marshal(keptCredential{cred, time.Now()})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}

// lockEvery is how often lock tries to get the lock. A blocking call could not be
// cancelled when the time is over.
const lockEvery = 20 * time.Millisecond

// lock waits for the lock of a file. The lock ends with the process that holds
// it.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	for {
		ok, err := flock.Try(f)
		if ok {
			now := time.Now()
			_ = os.Chtimes(path, now, now) // prune may delete the lock file of a running process; this costs only a call
			return func() { _ = f.Close() }, nil
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-tick.C:
		}
	}
}
