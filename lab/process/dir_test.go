package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClaim(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		dir  Dir
		want string // "" means success
	}{
		{"new", Dir(filepath.Join(base, "a", "b")), ""},
		{"again", Dir(filepath.Join(base, "a", "b")), ""},
		{"path below a file", Dir(filepath.Join(file, "sub")), "not created: not a directory"},
		{"foreign", Dir(base), "is not empty and does not belong to a lab"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.dir.claim()
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// DirAt returns one Dir for all paths that lead to one folder, even if the folder does not exist
// yet. The names of machines contain a hash of the Dir. If a second path to the same folder led to
// another Dir, the lab would not find its machines.
func TestDirAt(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(base, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "real", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(base)
	for path, want := range map[string]string{
		"real": "real", base + "/link": "real", "link/": "real", "link/../real": "real",
		"real/a/b": "real/a/b", "link/a/b": "real/a/b", "new": "new", "loop/a": "loop/a",
	} {
		if got, err := DirAt(path); got != Dir(filepath.Join(base, want)) || err != nil {
			t.Errorf("DirAt(%q) = %s, %v; want %s", path, got, err, want)
		}
	}
	made, err := DirAt("link/lab")
	if err != nil {
		t.Fatal(err)
	}
	if err := made.claim(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"link/lab", "real/lab"} {
		if d, err := DirAt(path); err != nil || d.machineName() != made.machineName() || d.cable() != made.cable() {
			t.Errorf("DirAt(%q) of the claimed lab %s: got %s, error %v; want a Dir with the same machine name and cable", path, made, d, err)
		}
	}
}

func TestLock(t *testing.T) {
	d := newDir(t)
	unlock, err := d.lockDir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.lockDir(); !errors.Is(err, errLocked) {
		t.Errorf("second lock: %v", err)
	}
	unlock()
	unlock, err = d.lockDir()
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

// ensureSocketDir refuses a symbolic link, and a folder to which other users have access. The path
// is predictable and in os.TempDir(), so an attacker could create a link or folder at this path.
func TestSocketDir(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	long := Dir(filepath.Join(t.TempDir(), strings.Repeat("d", 100)))
	dir := long.socketDir()
	for name, prepare := range map[string]func() error{
		"writable by other users": func() error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		"symbolic link":           func() error { return os.Symlink(t.TempDir(), dir) },
	} {
		if err := prepare(); err != nil {
			t.Fatal(err)
		}
		if err := long.ensureSocketDir(); err == nil || !strings.Contains(err.Error(), "shorter --data-dir") {
			t.Errorf(`ensureSocketDir, %s: got error %v, want "shorter --data-dir"`, name, err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := long.ensureSocketDir(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory for sockets: got %v, error %v; want mode 0700", info, err)
	}
	if err := Dir(t.TempDir()).ensureSocketDir(); err != nil {
		t.Errorf("ensureSocketDir of a short data directory: got error %v, want none", err)
	}
}

func TestResetRefusesForeignFolders(t *testing.T) {
	dir := t.TempDir()
	keep := filepath.Join(dir, "keep")
	if err := os.WriteFile(keep, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Reset(t.Context(), Dir(dir), 0)
	if err == nil || !strings.Contains(err.Error(), "is not the data dir of a lab") {
		t.Errorf(`Reset of a foreign folder: got error %v, want "is not the data dir of a lab"`, err)
	}
	if err := Dir(dir).deleteContents(); err == nil {
		t.Error("deleteContents accepts a folder without the marker file")
	}
	if err := Reset(t.Context(), Dir(keep), 0); err == nil || !strings.Contains(err.Error(), "cannot be read: not a directory") {
		t.Errorf("reset of a path that is no folder: got error %v, want the reason", err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}

func TestOpenLogRotates(t *testing.T) {
	d := newDir(t)
	if err := os.WriteFile(d.LogFile("x"), make([]byte, maxLog+1), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := d.openLog("x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() != 0 || info.Mode().Perm() != 0o600 {
		t.Errorf("new log: %v, %v", info, err)
	}
	if info, err := os.Stat(d.LogFile("x") + ".old"); err != nil || info.Size() != maxLog+1 {
		t.Errorf("old log: %v, %v", info, err)
	}
}

func TestLastLogLines(t *testing.T) {
	d := newDir(t)
	content := strings.Repeat("begin\n", 1000) + "the port is taken\nthe port is taken\n\n"
	if err := os.WriteFile(d.LogFile("x"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := d.lastWords("x"), "begin\nthe port is taken"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
