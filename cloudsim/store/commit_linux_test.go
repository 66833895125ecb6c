package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
	"github.com/cloudsim-dev/allinone/cloudsim/store/storetest"
)

var note = Notes[string]{Name: "n"}

func putNote(s *Store, key, value string) error {
	return s.Update("", func(tx *Tx) error { return note.Put(tx, key, value) })
}

// wantNotes fails the test if a given key has no note, or if another key has a
// note.
func wantNotes(t *testing.T, s *Store, keys ...string) {
	t.Helper()
	var got []string
	if err := s.View(func(tx *Tx) error {
		got = nil
		b := tx.read([]byte("note/" + note.Name))
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, _ []byte) error { got = append(got, string(k)); return nil })
	}); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(keys) {
		t.Errorf("notes: got %q, want %q", got, keys)
	}
}

func openStore(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReadOnlyAfterAFailedSync proves that the store makes no more commits
// after a failed sync, until the next Open. The store stays read-only even if
// the disk works again. The reason is that the kernel may have lost pages, and
// that the next sync would not report this loss again (see Store.finish).
func TestReadOnlyAfterAFailedSync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cloud.db")
	s := openStore(t, path)
	if err := putNote(s, "before", "x"); err != nil {
		t.Fatal(err)
	}
	mend := storetest.BreakSync(t, path)
	if err := putNote(s, "lost", "x"); !errors.Is(err, cloudsim.Unavailable) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("put with a failed sync: got error %v, want Unavailable and read-only", err)
	}
	mend()
	for operation, err := range map[string]error{"put": putNote(s, "later", "x"), "probe": s.Probe()} {
		if !errors.Is(err, cloudsim.Unavailable) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%s after the failed sync: got error %v, want Unavailable and read-only", operation, err)
		}
	}
	wantNotes(t, s, "before")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, path)
	wantNotes(t, s, "before")
	if err := putNote(s, "again", "x"); err != nil {
		t.Errorf("put after a restart: got error %v", err)
	}
	if err := errors.Join(s.CheckFile(), s.Close()); err != nil {
		t.Error(err)
	}
}

// TestFailedCommitIsNotShown proves that View and Archive return an error instead of the data of a
// failed transaction. bbolt shows this data if it wrote the meta page of the transaction, but the
// sync of this page failed.
func TestFailedCommitIsNotShown(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "cloud.db"))
	defer s.Close()
	var last int
	if err := s.db.View(func(tx *bolt.Tx) error { last = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	reads := map[string]func() error{
		"View":    func() error { return s.View(func(*Tx) error { return nil }) },
		"Archive": func() error { return s.Archive(statefile.NewWriter(io.Discard), nil) },
	}
	_ = s.fail(last+1, syscall.EIO)
	for name, readFn := range reads {
		if err := readFn(); err != nil {
			t.Errorf("%s without the failed transaction: got error %v", name, err)
		}
	}
	_ = s.fail(last, syscall.EIO)
	for name, readFn := range reads {
		if err := readFn(); !errors.Is(err, cloudsim.Unavailable) || !errors.Is(err, syscall.EIO) {
			t.Errorf("%s with the failed transaction: got error %v, want Unavailable and EIO", name, err)
		}
	}
}

func TestDiskFull(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&os.PathError{Op: "write", Err: syscall.ENOSPC}, true},
		{&os.PathError{Op: "write", Err: syscall.EDQUOT}, true},
		{&os.PathError{Op: "write", Err: syscall.EFBIG}, true},
		{&os.PathError{Op: "write", Err: syscall.EIO}, false},
		{&os.PathError{Op: "sync", Err: syscall.ENOSPC}, false},
		{syscall.ENOSPC, false}, // the error of a failed fdatasync
		{fmt.Errorf("%w: nil map", errPanic), false},
	} {
		if got := diskFull(fmt.Errorf("commit: %w", c.err)); got != c.want {
			t.Errorf("diskFull(%v): got %v", c.err, got)
		}
	}
}

// TestDiskIsFullForAWhile proves that a commit to a full disk changes nothing, and that the store
// commits again when the disk has space.
func TestDiskIsFullForAWhile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small filesystem")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("cannot mount a small filesystem: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "cloud.db")
	s := openStore(t, path)
	if err := putNote(s, "before", "x"); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 8<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 2<<20)
	for range 3 {
		if err := putNote(s, "large", large); !errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), "read-only") {
			t.Errorf("put to a full disk: got error %v, want ENOSPC", err)
		}
	}
	wantNotes(t, s, "before")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := putNote(s, "small", large[:100<<10]); err != nil {
		t.Errorf("put after disk space was freed: got error %v", err)
	}
	wantNotes(t, s, "before", "small")
	if err := errors.Join(s.CheckFile(), s.Close()); err != nil {
		t.Error(err)
	}
}
