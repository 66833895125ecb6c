package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cloudsim-dev/allinone/internal/flock"
	"github.com/cloudsim-dev/allinone/lab"
)

// Dir is the absolute path of a lab's data dir. The names of the lab's
// resources on the host contain a hash of this path. If two different Dirs led
// to one folder, a second process would not find the resources of the first
// process. So DirAt returns the same Dir for all paths that lead to one folder.
type Dir string

// DirAt returns the Dir for a path. It resolves the symbolic links in the part of the
// path that exists.
func DirAt(path string) (Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for prefix, rest := path, ""; ; prefix, rest = filepath.Dir(prefix), filepath.Join(filepath.Base(prefix), rest) {
		if resolved, err := filepath.EvalSymlinks(prefix); err == nil {
			return Dir(filepath.Join(resolved, rest)), nil
		}
		if prefix == filepath.Dir(prefix) {
			return Dir(path), nil
		}
	}
}

// Marker file of a data dir.
const (
	markerFile = "CLOUDSIM_LAB"
	markerText = "This folder holds a cloudsim lab. `allinone reset` empties it.\n"
)

func (d Dir) path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// Kubeconfig returns the path of the cluster administrator's kubeconfig.
func (d Dir) Kubeconfig() string { return d.path("kubeconfig") }

// EnvFile returns the path of a shell script that sets the variables for kubectl and the cloud's
// CLI.
func (d Dir) EnvFile() string { return d.path("env") }

// Bin returns the folder with links to kubectl and allinone.
func (d Dir) Bin() string { return d.path("bin") }

// AdminToken returns the path of the cloud administrator's token.
func (d Dir) AdminToken() string { return d.path("cloud", "admin.token") }

// CourseFile returns the path of the file with the user's progress in the course of docs/labs.
func (d Dir) CourseFile() string { return d.path("course.json") }

// CourseProgress returns the bytes that the last call of KeepCourseProgress
// saved, or nil before the first call.
func (d Dir) CourseProgress() ([]byte, error) { return lab.ReadIfThere(d.CourseFile()) }

// KeepCourseProgress saves the progress of the course.
func (d Dir) KeepCourseProgress(raw []byte) error { return lab.WriteFile(d.CourseFile(), raw) }

// LogFile returns the path of a component's log.
func (d Dir) LogFile(component string) string { return d.path("logs", component+".log") }

func (d Dir) configFile(name string) string { return d.path("config", name) }

// isOurs reports whether the folder contains the lab's marker file.
func (d Dir) isOurs() (bool, error) {
	_, err := os.Stat(d.path(markerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// checkOurs returns an error if the folder does not contain the lab's marker file.
func (d Dir) checkOurs() error {
	hasMarker, err := d.isOurs()
	if err != nil {
		return fmt.Errorf("data dir %s cannot be read: %w: nothing was deleted", d, rootCause(err))
	}
	if !hasMarker {
		return fmt.Errorf("%s is not the data dir of a lab (it has no %s): nothing was deleted", d, markerFile)
	}
	return nil
}

// claim makes the folder a data dir. It refuses a non-empty folder without the marker,
// because Reset would delete all files in the folder.
func (d Dir) claim() error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("data dir %s not created: %w; choose another with --data-dir", d, rootCause(err))
	}
	hasMarker, err := d.isOurs()
	if err != nil {
		return fmt.Errorf("data dir %s cannot be read: %w; choose another with --data-dir", d, rootCause(err))
	}
	if !hasMarker {
		entries, err := os.ReadDir(string(d))
		if err != nil {
			return fmt.Errorf("data dir %s cannot be read: %w; choose another with --data-dir", d, rootCause(err))
		}
		if len(entries) > 0 {
			return fmt.Errorf("data dir %s is not empty and does not belong to a lab; choose another with --data-dir", d)
		}
	}
	// The lab writes the marker on each start, to check that the folder is writable.
	if err := lab.WriteFile(d.path(markerFile), []byte(markerText)); err != nil {
		return fmt.Errorf("data dir %s is not writable: %w; choose another with --data-dir", d, rootCause(err))
	}
	for _, sub := range []string{"bin", "pki", "config", "logs", "etcd", "cloud"} {
		if err := os.MkdirAll(d.path(sub), 0o700); err != nil {
			return fmt.Errorf("data dir: %w", err)
		}
	}
	return d.ensureSocketDir()
}

// errLocked means that another process has locked the data dir.
var errLocked = errors.New("the data dir is in use")

// lockDir locks the folder for this process until the caller calls unlock. It returns errLocked if
// another process holds the lock. The lock is on the folder itself, so the lab needs no lock file.
// The kernel releases the lock when the process dies.
func (d Dir) lockDir() (unlock func(), err error) {
	f, err := os.Open(string(d))
	if err != nil {
		return nil, err
	}
	locked, err := flock.Try(f)
	if err != nil {
		err = fmt.Errorf("locking %s: %w", d, err)
	} else if !locked {
		err = errLocked
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// deleteContents deletes the contents of the folder. It deletes the marker
// last, so that a later reset can finish an interrupted reset. It refuses a
// folder without the marker.
func (d Dir) deleteContents() error {
	if err := d.checkOurs(); err != nil {
		return err
	}
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == markerFile {
			continue
		}
		if err := os.RemoveAll(d.path(e.Name())); err != nil {
			return err
		}
	}
	return os.Remove(d.path(markerFile))
}
