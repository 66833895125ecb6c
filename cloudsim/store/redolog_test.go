package store_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// header reads a file of testdata/redo. Each file contains the first two blocks of a redo log. An
// earlier version of the program left this log when a signal killed the process. The log "killed"
// contains the last commits before the signal. The log "settled" lacks the last commit, because
// this commit was too large for the log. The header of "settled" states that bbolt's file contains
// all commits.
func header(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "redo", name+".redo"))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestOpenRefusesARedoLogWithCommits(t *testing.T) {
	killed := header(t, "killed")
	for name, file := range map[string][]byte{"of a file": writtenFile(t, 3), "without a file": nil} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cloud.db")
			if file != nil {
				writeFile(t, path, file)
			}
			writeFile(t, path+".redo", killed)
			_, err := store.Open(path)
			if err == nil || !strings.Contains(err.Error(), path+".redo") || !strings.Contains(err.Error(), "Start that version once") {
				t.Errorf("open: got error %v, want an error that tells to start the earlier version", err)
			}
			if got, err := os.ReadFile(path); !bytes.Equal(got, file) || (file == nil) != errors.Is(err, fs.ErrNotExist) {
				t.Errorf("file after the refused open: got %d bytes, error %v; want the unchanged file of %d bytes (exists: %t)", len(got), err, len(file), file != nil)
			}
			if got, err := os.ReadFile(path + ".redo"); !bytes.Equal(got, killed) {
				t.Errorf("open changed the redo log: %v", err)
			}
		})
	}
}

func TestOpenRemovesARedoLogWithoutCommits(t *testing.T) {
	file, killed := writtenFile(t, 3), header(t, "killed")
	torn := bytes.Clone(killed)
	torn[4096+100] ^= 1 // damages the only header in the log
	for name, log := range map[string][]byte{
		"settled": header(t, "settled"), "empty": {}, "short": killed[:4096+100], "zeros": make([]byte, len(killed)), "torn": torn,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cloud.db")
			writeFile(t, path, file)
			writeFile(t, path+".redo", log)
			s := open(t, path)
			if _, err := os.Stat(path + ".redo"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("redo log after open: got error %v, want ErrNotExist", err)
			}
			if err := s.View(func(tx *store.Tx) error {
				if n := projects.Count(tx, "color", "red", 10); n != 3 {
					t.Errorf("projects: got %d, want 3", n)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOpenKeepsTheRedoLogOfAnOpenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cloud.db")
	open(t, path)
	settled := header(t, "settled")
	writeFile(t, path+".redo", settled)
	if _, err := store.Open(path); err == nil || !strings.Contains(err.Error(), "in use by another cloud") {
		t.Errorf("open: got error %v, want that another cloud uses the file", err)
	}
	if got, err := os.ReadFile(path + ".redo"); !bytes.Equal(got, settled) {
		t.Errorf("open changed the redo log: %v", err)
	}
}

func writeFile(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
