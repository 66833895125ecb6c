package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A commit that was logged, and then failed for want of room, was refused: it is
// not done by a start.
func TestRefusedForWantOfRoom(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a small disk needs root")
	}
	m := newMachine(t, 15)
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	m.path = filepath.Join(dir, "cloud.db")
	m.up()
	for range 50 {
		m.change(false)
	}
	var on unix.Statfs_t
	if err := unix.Statfs(dir, &on); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	free := int64(on.Bavail) * int64(on.Bsize) //nolint:unconvert // it is 32 bits wide elsewhere
	if err := os.WriteFile(filler, make([]byte, free), 0o600); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 50_000)
	var want [32]byte
	refused := error(nil)
	for n := uint64(0); refused == nil; n++ {
		want = m.content()
		refused = m.s.Update("", func(tx *Tx) error { return Notes[string]{Name: "n"}.Put(tx, string(u64(n)), large) })
	}
	if !errors.Is(refused, unix.ENOSPC) || m.s.redo.plain {
		t.Fatalf("%v; plain: %v", refused, m.s.redo.plain)
	}
	m.kill()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	m.up()
	m.check(want, "after a start")
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
}
