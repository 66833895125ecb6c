package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	put := func(n uint64) error {
		return m.s.Update("", func(tx *Tx) error { return Notes[string]{Name: "n"}.Put(tx, string(u64(n)), large) })
	}
	var want [32]byte
	refused := error(nil)
	for n := uint64(0); refused == nil; n++ {
		want = m.content()
		refused = put(n)
	}
	if !errors.Is(refused, unix.ENOSPC) || m.s.redo.plain {
		t.Fatalf("%v; plain: %v", refused, m.s.redo.plain)
	}
	m.check(want, "what was refused")
	refusedBesideProbes(t, m, put)
	want = m.content()
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

// refusedBesideProbes has commits fail while others, which change nothing, succeed.
// What the log has is what the file has since its base.
func refusedBesideProbes(t *testing.T, m *machine, put func(uint64) error) {
	t.Helper()
	var beside sync.WaitGroup
	stop := make(chan struct{})
	beside.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := m.s.Probe(); err != nil && !errors.Is(err, unix.ENOSPC) {
				t.Errorf("a probe: %v", err)
			}
		}
	})
	refused := 0
	for n := range uint64(300) {
		switch err := put(1000 + n); {
		case errors.Is(err, unix.ENOSPC):
			refused++
		case err != nil:
			t.Errorf("a change: %v", err)
		}
	}
	close(stop)
	beside.Wait()
	if refused == 0 {
		t.Error("none was refused")
	}
	r := &m.s.redo
	all, err := r.entries(r.head.Epoch)
	if err != nil {
		t.Fatal(err)
	}
	if r.at > 0 && r.base.ID()+len(all) != m.last() {
		t.Errorf("the base is %d, the log has %d more, and the file has come to %d", r.base.ID(), len(all), m.last())
	}
}
