package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cloudsim-dev/allinone/internal/flock"
)

// Dir is a lab's data dir: an absolute path. What a lab has on the host is named
// after it, so one folder must always be the same Dir: see DirAt.
type Dir string

// DirAt is the data dir at a path, whichever of its paths it is: without symbolic
// links, as far as it is there.
func DirAt(path string) (Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for there, rest := path, ""; ; there, rest = filepath.Dir(there), filepath.Join(filepath.Base(there), rest) {
		if resolved, err := filepath.EvalSymlinks(there); err == nil {
			return Dir(filepath.Join(resolved, rest)), nil
		}
		if there == filepath.Dir(there) {
			return Dir(path), nil
		}
	}
}

// Files of a data dir.
const (
	markerFile = "CLOUDSIM_LAB"
	markerText = "This folder holds a cloudsim lab. `allinone reset` empties it.\n"
)

func (d Dir) path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// Kubeconfig is the cluster administrator's kubeconfig.
func (d Dir) Kubeconfig() string { return d.path("kubeconfig") }

// EnvFile is a shell script that sets what kubectl and the cloud's CLI need.
func (d Dir) EnvFile() string { return d.path("env") }

// Bin holds links to kubectl and allinone.
func (d Dir) Bin() string { return d.path("bin") }

// AdminToken is the file with the cloud administrator's token.
func (d Dir) AdminToken() string { return d.path("cloud", "admin.token") }

// CourseFile says how far the person is in the course of the docs.
func (d Dir) CourseFile() string { return d.path("course.json") }

// CourseProgress is what KeepCourseProgress was last given; nil if it never was.
func (d Dir) CourseProgress() ([]byte, error) { return readIfThere(d.CourseFile()) }

// KeepCourseProgress keeps what the course remembers.
func (d Dir) KeepCourseProgress(raw []byte) error { return writeFile(d.CourseFile(), raw) }

// LogFile is where a component writes.
func (d Dir) LogFile(component string) string { return d.path("logs", component+".log") }

func (d Dir) configFile(name string) string { return d.path("config", name) }

// isOurs reports whether the folder carries our marker.
func (d Dir) isOurs() bool {
	_, err := os.Stat(d.path(markerFile))
	return err == nil
}

// claim makes the folder a data dir. It refuses one that holds something else,
// because Reset would delete it.
func (d Dir) claim() error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("data dir %s cannot be made: %w; choose another with --data-dir", d, errors.Unwrap(err))
	}
	if !d.isOurs() {
		there, err := os.ReadDir(string(d))
		if err != nil {
			return fmt.Errorf("data dir %s cannot be read: %w; choose another with --data-dir", d, errors.Unwrap(err))
		}
		if len(there) > 0 {
			return fmt.Errorf("data dir %s is not empty and not a lab's; choose another with --data-dir", d)
		}
	}
	// Written each time: it is also how we learn that the folder is writable.
	if err := writeFile(d.path(markerFile), []byte(markerText)); err != nil {
		return fmt.Errorf("data dir %s is not writable: %w; choose another with --data-dir", d, errors.Unwrap(err))
	}
	for _, sub := range []string{"bin", "pki", "config", "logs", "etcd", "cloud"} {
		if err := os.MkdirAll(d.path(sub), 0o700); err != nil {
			return fmt.Errorf("data dir: %w", err)
		}
	}
	return d.ensureSocketDir()
}

// errLocked is returned when another process has locked the folder.
var errLocked = errors.New("the data dir is in use")

// lock locks the folder for this process until unlock. It returns errLocked if
// another process has it. The lock is on the folder itself, so no lock file stays
// behind, and the kernel releases it when the process dies.
func (d Dir) lock() (unlock func(), err error) {
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

// empty deletes what is in the folder, the marker last, so that an interrupted
// reset can be repeated. It refuses a folder without the marker.
func (d Dir) empty() error {
	if !d.isOurs() {
		return fmt.Errorf("%s is not a lab's data dir (no %s in it): nothing was deleted", d, markerFile)
	}
	there, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	for _, e := range there {
		if e.Name() == markerFile {
			continue
		}
		if err := os.RemoveAll(d.path(e.Name())); err != nil {
			return err
		}
	}
	return os.Remove(d.path(markerFile))
}

// writeFile replaces a file in one step, mode 0600: a reader, or the death of
// this process, sees the old content or the new.
func writeFile(path string, data []byte) error { return replace(path, data, false) }

// writeDurably is writeFile that also outlives a power cut. It costs a few
// milliseconds: for what cannot be made again.
func writeDurably(path string, data []byte) error { return replace(path, data, true) }

func replace(path string, data []byte, sync bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// readIfThere is the content of a file, or nil if there is none.
func readIfThere(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
