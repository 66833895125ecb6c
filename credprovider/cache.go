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
// runs of the plugin use a lock file, so that only one run calls the cloud. All
// waiting runs then use the cached credential. So if a node starts two hundred
// pods that use the node's credential, the plugin makes only one call. If the
// plugin cannot use the cache, every run calls the cloud.
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
	unlock, err := lockFile(ctx, path+".lock")
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
	_ = writeCache(path, cred) // after an error of writeCache, the next run calls the cloud
	prune(c.CacheDir)
	return cred, nil
}

// keepFiles is the age at which prune deletes a file of the cache. It is longer
// than the life of a password, so prune deletes no valid credential. It is also
// longer than one run of the plugin, so prune deletes no temporary file of a
// running plugin.
const keepFiles = 2 * time.Hour

// prune deletes old files of the cache. The cache has separate files for each
// token of a pod, so without prune the number of files would grow without
// limit. prune also deletes the temporary files of killed runs.
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

// cacheFile returns the file for a credential. The node's credential has one
// file for each registry. For credentials of service accounts, each pair of
// token and repository has a separate file. So one identity never gets the
// credential of another identity. The file name also depends on the URL of the
// cloud. cacheFile creates the folder of the cache. If other users can access
// the folder, cacheFile returns an error.
func (c Config) cacheFile(host, repo, token string) (string, error) {
	if err := os.MkdirAll(c.CacheDir, 0o700); err != nil {
		return "", err
	}
	info, err := os.Lstat(c.CacheDir)
	switch {
	case err != nil:
		return "", err
	case !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !isOwned(info):
		return "", fmt.Errorf("the cache folder %s must be a folder that only the plugin's user can access", c.CacheDir)
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

// readCache returns a cached credential that is still usable. The plugin uses a cached credential
// only for the first half of the credential's life. So after the cloud rotates its signing keys,
// the plugin stops the use of old credentials within half of their life.
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
	fresh := kept.remainingLife() > max(life/2, minLife) && !kept.MadeAt.After(time.Now())
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
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // creates the file with the mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// lockEvery is the time between two attempts to get the lock. lockFile uses no
// blocking call, because the cancellation of ctx would not end this call.
const lockEvery = 20 * time.Millisecond

// lockFile waits until it holds the lock of the file at path. If the
// process ends, the kernel releases the lock.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
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
			_ = os.Chtimes(path, now, now) // so that prune in another process does not delete the lock file; without this file, other processes would make additional calls
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
