package store

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

var hosts = Table[cloudsim.Project]{
	Kind: cloudsim.KindProject, Prefix: "host",
	ID:    func(p *cloudsim.Project) string { return string(p.ID) },
	Meta:  func(p *cloudsim.Project) *cloudsim.Meta { return &p.Meta },
	Index: map[string]func(*cloudsim.Project) []string{"name": func(p *cloudsim.Project) []string { return []string{p.Name} }},
}

// machine is a machine whose power can be cut: what was on its disk at the last
// time that bbolt's file was synced, and what was written since.
type machine struct {
	*testing.T
	path   string
	r      *rand.Rand
	boots  int
	now    time.Time
	s      *Store
	synced []byte // bbolt's file
	had    []byte // bbolt's file before the last change
	hadLog []byte // and the log
}

func newMachine(t *testing.T, seed uint64) *machine {
	t.Helper()
	if bootID() == "" {
		t.Skip("there is no redo log on this system")
	}
	was := bootID
	t.Cleanup(func() { bootID = was })
	m := &machine{T: t, path: filepath.Join(t.TempDir(), "cloud.db"), now: time.Unix(0, 0), r: rand.New(rand.NewPCG(seed, 1))}
	m.up()
	return m
}

func (m *machine) up() {
	m.Helper()
	m.boots++
	boot := fmt.Sprintf("%036d", m.boots)
	bootID = func() string { return boot }
	s, err := Open(m.path)
	if err != nil {
		m.Fatal(err)
	}
	m.s, m.synced = s, m.read(m.path)
	s.Now = func() time.Time { // so that a seed is a course of events
		m.now = m.now.Add(time.Millisecond)
		return m.now
	}
	s.redo.sync = func() error {
		err := s.db.Sync()
		m.synced = m.read(m.path)
		return err
	}
}

// last is the last transaction.
func (m *machine) last() (id int) {
	m.Helper()
	if err := m.s.db.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil }); err != nil {
		m.Fatal(err)
	}
	return id
}

// read is a file; nil if there is none.
func (m *machine) read(path string) []byte {
	m.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.Fatal(err)
	}
	return b
}

// overwrite writes a file in its place.
func (m *machine) overwrite(path string, b []byte) {
	m.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		m.Fatal(err)
	}
	_, err = f.WriteAt(b, 0)
	if err := errors.Join(err, f.Truncate(int64(len(b))), f.Close()); err != nil {
		m.Fatal(err)
	}
}

// content is all that the store holds.
func (m *machine) content() [32]byte {
	m.Helper()
	var out bytes.Buffer
	if err := m.s.Archive(&out, nil); err != nil {
		m.Fatal(err)
	}
	return sha256.Sum256(out.Bytes())
}

// full reports whether the log may have no room for the next entry.
func (m *machine) full() bool {
	r := &m.s.redo
	return r.at == 0 || r.at > redoSize-mostOfOne-redoBlock
}

// change does something. What was there before is known after it if there was a
// look.
func (m *machine) change(look bool) {
	m.Helper()
	if look {
		m.had, m.hadLog = m.read(m.path), m.read(m.path+".redo")
	}
	if err := m.s.Update("", m.something); err != nil {
		m.Fatal(err)
	}
	if m.s.redo.plain { // bbolt synced it
		m.synced = m.read(m.path)
	}
}

// mostOfOne is the most that one change logs, if it is not too much for the log.
const mostOfOne = 48 << 10

func (m *machine) something(tx *Tx) error {
	some := func(n int) string { return strings.Repeat(string(rune('a'+m.r.IntN(26))), 1+m.r.IntN(n)) }
	note := Notes[string]{Name: "n" + some(1)}
	switch n := m.r.IntN(22); n {
	case 0:
		_, err := tx.Compact(10, 100)
		return err
	case 1:
		_, err := tx.TakeDue(2)
		return err
	case 2, 3:
		return tx.Later(tx.Now.Add(time.Duration(m.r.IntN(3)-2)*time.Second), Work{ID: some(9)})
	case 4, 5:
		_, err := tx.Take("p", 1000)
		return err
	case 6:
		return tx.Give("p", uint64(m.r.IntN(50)))
	case 7:
		return note.Delete(tx, some(1))
	case 8:
		return note.Put(tx, some(1), some(20_000))
	case 9: // what is too much to log
		switch m.r.IntN(40) {
		case 0:
			return tx.Replace(nil, cloudsim.KindProject)
		case 1:
			return note.Put(tx, some(1), some(3*redoEntry))
		}
		return nil
	case 10, 11, 12, 13:
		for h := range hosts.Scan(tx, "", fmt.Sprintf("host-%06x", m.r.IntN(40))) {
			return hosts.Delete(tx, &h)
		}
		return nil
	}
	id, err := hosts.NextID(tx)
	if err != nil {
		return err
	}
	return hosts.Put(tx, &cloudsim.Project{ID: cloudsim.ProjectID(id), Meta: cloudsim.Meta{Name: some(2000)}})
}

// torn is a file of which some pages are those of one and some those of another.
func (m *machine) torn(old, now []byte) []byte {
	const page = 4096
	b := bytes.Clone(now)
	for at := 0; at < len(old) && at < len(now); at += page {
		if m.r.IntN(2) == 0 {
			copy(b[at:], old[at:min(at+page, len(old), len(now))])
		}
	}
	return b
}

// kill ends the process.
func (m *machine) kill() {
	m.Helper()
	r := &m.s.redo
	if r.base != nil {
		if err := r.base.Rollback(); err != nil {
			m.Fatal(err)
		}
	}
	if r.file != nil {
		_ = r.file.Close()
	}
	if err := errors.Join(m.s.db.Close(), m.s.room.file.Close()); err != nil {
		m.Fatal(err)
	}
}

// check compares what there is with what there was.
func (m *machine) check(want [32]byte, what string) {
	m.Helper()
	if err := errors.Join(m.s.CheckFile(), m.s.View(hosts.Check), m.s.View((*Tx).CheckJournal)); err != nil {
		m.Fatalf("%s: damaged: %v", what, err)
	}
	if m.content() != want {
		m.Fatalf("%s: what was answered is not there", what)
	}
}

// What was answered is there after the power was cut, whichever pages of bbolt's
// file had been written by then; and once more when it is cut while that is mended.
func TestPowerCut(t *testing.T) {
	changes := 4000
	if testing.Short() {
		changes = 400
	}
	m := newMachine(t, 7)
	logged := 0
	for n := range changes {
		m.change(false)
		if !m.s.redo.plain {
			logged++
		}
		if m.r.IntN(40) > 0 {
			continue
		}
		want := m.content()
		m.kill()
		now, log := m.read(m.path), m.read(m.path+".redo")
		cut := m.torn(m.synced, now)
		m.overwrite(m.path, cut)
		m.up()
		m.check(want, fmt.Sprintf("change %d", n))
		if log == nil {
			continue
		}
		m.kill()
		m.overwrite(m.path, m.torn(cut, m.read(m.path)))
		if err := os.WriteFile(m.path+".redo", log, 0o600); err != nil {
			t.Fatal(err)
		}
		m.up()
		m.check(want, fmt.Sprintf("change %d, cut twice", n))
	}
	if logged < changes/3 {
		t.Errorf("%d of %d changes were logged", logged, changes)
	}
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
	if there, _ := filepath.Glob(m.path + "*"); len(there) != 1 {
		t.Errorf("when it is closed there are %q", there)
	}
}

// An entry that is not whole was never answered, and a header that is not whole
// leaves the one before it.
func TestPowerCutInTheLog(t *testing.T) {
	m := newMachine(t, 8)
	entries, headers := 0, 0
	for n := range 4000 {
		from, epoch, plain := m.s.redo.at, m.s.redo.head.Epoch, m.s.redo.plain
		full := m.full()
		cut := !plain && (full || n%300 == 0)
		var before [32]byte
		if cut {
			before = m.content()
		}
		synced := m.synced
		m.change(cut)
		r := &m.s.redo
		if !cut || r.plain {
			continue
		}
		log := m.read(m.path + ".redo")
		switch {
		case r.head.Epoch != epoch:
			headers++
			log = m.hadLog
			for at := range 8 + m.r.IntN(100) {
				log[int(r.head.Epoch%2)*redoBlock+at] = byte(m.r.Uint32())
			}
		case !full && from+redoHead < r.at:
			entries++
			last := from + redoHead - 1 + int64(m.r.IntN(int(r.at-from-redoHead)))
			for log[last] == 0 { // what fills up the block may be anything
				last--
			}
			log[last] = ^log[last]
		default:
			continue
		}
		m.kill()
		m.overwrite(m.path, m.torn(synced, m.had))
		m.overwrite(m.path+".redo", log)
		m.up()
		m.check(before, fmt.Sprintf("%d entries and %d headers were cut", entries, headers))
	}
	if entries < 5 || headers < 5 {
		t.Errorf("%d entries and %d headers were cut", entries, headers)
	}
}

// A log whose middle cannot be read is refused: what follows was answered, too.
func TestLogIsDamaged(t *testing.T) {
	m := newMachine(t, 17)
	for range 50 {
		m.change(false)
	}
	r := &m.s.redo
	all, err := r.entries(r.head.Epoch)
	if err != nil || len(all) < 5 {
		t.Fatalf("%d entries, %v", len(all), err)
	}
	m.kill()
	m.overwrite(m.path, m.torn(m.synced, m.read(m.path)))
	log := m.read(m.path + ".redo")
	third := redoFirst
	for range 2 {
		_, size := entryAt(log, third, r.head.Epoch)
		third += size
	}
	log[third+redoHead] ^= 1
	m.overwrite(m.path+".redo", log)
	before := m.read(m.path)
	if s, err := Open(m.path); err == nil || !strings.Contains(err.Error(), m.path+".redo is damaged: after 2 commits") {
		t.Errorf("%v, %v", s, err)
	}
	if !bytes.Equal(m.read(m.path), before) || !bytes.Equal(m.read(m.path+".redo"), log) {
		t.Error("it was changed")
	}
}

// Who kills the process loses nothing, and who copies the files then neither.
func TestKilled(t *testing.T) {
	m := newMachine(t, 9)
	for range 50 {
		m.change(false)
	}
	want := m.content()
	if m.s.redo.plain {
		t.Fatal("nothing is logged")
	}
	m.kill()
	copied := filepath.Join(t.TempDir(), "cloud.db")
	for _, end := range []string{"", ".redo"} {
		if err := os.WriteFile(copied+end, m.read(m.path+end), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{m.path, copied} {
		m.path, m.boots = path, m.boots-1
		m.up()
		m.check(want, path)
		m.change(false)
		if err := m.s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A log is not used for another file than that which it was written for.
func TestLogOfAnotherFile(t *testing.T) {
	m := newMachine(t, 10)
	for range 50 {
		m.change(false)
	}
	last := m.last()
	m.kill()
	other := written(t, last) // which has come as far
	if err := os.Rename(other, m.path); err != nil {
		t.Fatal(err)
	}
	before, log := m.read(m.path), m.read(m.path+".redo")
	bootID = func() string { return strings.Repeat("x", 36) }
	if s, err := Open(m.path); !errors.Is(err, errOtherFile) || !strings.Contains(err.Error(), m.path+".redo") {
		t.Errorf("%v, %v", s, err)
	}
	if !bytes.Equal(m.read(m.path), before) || !bytes.Equal(m.read(m.path+".redo"), log) {
		t.Error("it was changed")
	}
	if err := os.Remove(m.path); err != nil { // who begins anew
		t.Fatal(err)
	}
	m.up()
	if err := m.s.View(func(tx *Tx) error {
		if hosts.Any(tx) {
			t.Error("a new file is not empty")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
}

// written is the file of a store that was closed after so many transactions.
func written(t *testing.T, last int) string {
	t.Helper()
	m := newMachine(t, 1)
	for m.last() < last {
		if err := m.s.Probe(); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
	return m.path
}

// Where there is no room for a log, commits are as durable without one.
func TestNoLog(t *testing.T) {
	m := newMachine(t, 11)
	if err := os.Mkdir(m.path+".redo", 0o700); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := m.s.Update("", m.something); err != nil {
			t.Fatal(err)
		}
	}
	if !m.s.redo.plain || m.s.db.NoSync {
		t.Fatal("commits are not synced")
	}
	want := m.content()
	m.kill()
	if err := os.Remove(m.path + ".redo"); err != nil {
		t.Fatal(err)
	}
	m.up()
	m.check(want, "without a log")
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A commit that fails after it was logged is not done again.
func TestLoggedAndNotCommitted(t *testing.T) {
	m := newMachine(t, 12)
	for range 50 {
		m.change(false)
	}
	want := m.content()
	btx, err := m.s.db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	lost := changes{}
	lost.add(changePut, []byte("note/n"), []byte("lost"), []byte("lost"))
	if err := errors.Join(m.s.redo.keep(btx, &lost), btx.Rollback()); err != nil {
		t.Fatal(err)
	}
	m.s.redo.failed()
	if err := m.s.Probe(); err != nil {
		t.Fatal(err)
	}
	m.kill()
	m.up()
	m.check(want, "after the failure")
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
}

// After a sync that failed nothing is written, as the next one would not tell of
// what was lost; and what was answered is there after a start, for which the
// machine need not go down.
func TestSyncFails(t *testing.T) {
	for name, boots := range map[string]int{"of the cloud": 0, "of the machine": 1} {
		t.Run(name, func(t *testing.T) { syncFails(t, boots) })
	}
}

func syncFails(t *testing.T, boots int) {
	m := newMachine(t, 13)
	for range 50 {
		m.change(false)
	}
	want := m.content()
	m.s.redo.sync = func() error { // the kernel tells once, and what was lost stays so
		m.s.redo.sync = func() error { return nil }
		return syscall.EIO
	}
	m.s.redo.at = 0
	for _, when := range []string{"at first", "later"} {
		if err := m.s.Probe(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", when, err)
		}
	}
	m.check(want, "it can be read")
	if err := m.s.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("at the end: %v", err)
	}
	m.overwrite(m.path, m.torn(m.synced, m.read(m.path)))
	m.boots += boots - 1
	m.up()
	m.check(want, "after a start")
	m.change(false)
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
}

// The same if the sync was one of bbolt's, which may say no more than that, or was
// told that the disk under the disk is full.
func TestSyncFailsInACommit(t *testing.T) {
	for name, failure := range map[string]error{
		"of a page":           syscall.EIO,
		"of a thin disk":      syscall.ENOSPC,
		"of a thin disk, too": &os.PathError{Op: "sync", Path: "cloud.db", Err: syscall.ENOSPC},
		"when a file grows":   fmt.Errorf("file sync error: %s", syscall.EIO), //nolint:errorlint // as bbolt has it
		"in a write":          &os.PathError{Op: "write", Path: "cloud.db", Err: syscall.EIO},
	} {
		for _, changes := range []int{1, 50} { // without a log, and with one
			t.Run(fmt.Sprintf("%s/%d", name, changes), func(t *testing.T) { syncFailsInACommit(t, changes, failure) })
		}
	}
}

func syncFailsInACommit(t *testing.T, changes int, failure error) {
	m := newMachine(t, 16)
	for range changes {
		m.change(false)
	}
	want := m.content()
	epoch := m.s.redo.head.Epoch
	m.s.redo.takeBack(fmt.Errorf("commit: %w", failure))
	if err := m.s.Update("", m.something); !errors.Is(err, failure) || !strings.Contains(err.Error(), "until the cloud is started again") {
		t.Errorf("%v", err)
	}
	if m.s.redo.head.Epoch != epoch {
		t.Error("there is a new base of what may be lost")
	}
	m.kill()
	m.up()
	m.check(want, "after a start")
	if err := errors.Join(m.s.Update("", m.something), m.s.Close()); err != nil {
		t.Error(err)
	}
}

// A commit whose sync failed when it was to be seen already is not shown to
// anybody: a start may be without it.
func TestSyncFailsOfWhatIsSeen(t *testing.T) {
	m := newMachine(t, 18)
	m.change(false)
	m.s.commitFailed(m.last()+1, &os.PathError{Op: "write", Path: m.path, Err: syscall.ENOSPC})
	if err := m.s.View(func(*Tx) error { return nil }); err != nil {
		t.Errorf("after one for which there was no room: %v", err)
	}
	m.s.commitFailed(m.last()+1, syscall.EIO)
	if err := m.s.View(func(*Tx) error { return nil }); err != nil {
		t.Errorf("after one that nobody sees: %v", err)
	}
	m.s.commitFailed(m.last(), syscall.EIO)
	if err := m.s.View(func(*Tx) error { return nil }); !errors.Is(err, syscall.EIO) || !errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("after one that is seen: %v", err)
	}
}

// Where there is no way to tell whether the machine was down, a log that is not
// done is not passed over.
func TestLogWithoutABootID(t *testing.T) {
	m := newMachine(t, 19)
	for range 50 {
		m.change(false)
	}
	want := m.content()
	m.kill()
	before, boot := m.read(m.path), bootID
	bootID = func() string { return "" }
	if s, err := Open(m.path); !errors.Is(err, errPassedOver) || !strings.Contains(err.Error(), m.path+".redo") {
		t.Errorf("%v, %v", s, err)
	}
	if !bytes.Equal(m.read(m.path), before) {
		t.Error("it was changed")
	}
	bootID = boot
	m.boots--
	m.up()
	m.check(want, "with it")
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
	bootID = func() string { return "" }
	s, err := Open(m.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A file with the number of the one that the log was written for may be another,
// or may have been written to by a program that knows no log.
func TestLogOfAnEarlierFile(t *testing.T) {
	m := newMachine(t, 14)
	for range 30 {
		m.change(false)
	}
	backup := m.content()
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
	earlier := m.read(m.path)
	m.up()
	for range 50 {
		m.change(false)
	}
	m.kill()
	whole, log := m.read(m.path), m.read(m.path+".redo")
	m.overwrite(m.path, earlier)
	bootID = func() string { return strings.Repeat("x", 36) }
	if s, err := Open(m.path); !errors.Is(err, errOtherFile) {
		t.Fatalf("%v, %v", s, err)
	}
	if err := os.Remove(m.path + ".redo"); err != nil {
		t.Fatal(err)
	}
	m.up()
	m.check(backup, "without the log")
	m.kill()

	m.overwrite(m.path, whole)
	db, err := bolt.Open(m.path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 200 {
		if err := db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("note/other"))
			return errors.Join(err, b.Put(u64(uint64(n)), []byte("{}")))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.path+".redo", log, 0o600); err != nil {
		t.Fatal(err)
	}
	m.up()
	if err := m.s.View(func(tx *Tx) error {
		if b := tx.read([]byte("note/other")); b == nil || b.Get(u64(199)) == nil {
			t.Error("what another program wrote is gone")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.s.CheckFile(), m.s.Close()); err != nil {
		t.Fatal(err)
	}
}

func FuzzRedo(f *testing.F) {
	var c changes
	c.add(changeBucket, []byte("note/n"))
	c.add(changePut, []byte("note/n"), []byte("key"), []byte("value"))
	c.add(changeDelete, []byte("note/n"), []byte("key"))
	bucket{name: []byte("pool/p"), changes: &c}.count(7)
	f.Add(c.raw)
	db, err := bolt.Open(filepath.Join(f.TempDir(), "x.db"), 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { db.Close() })
	f.Fuzz(func(t *testing.T, raw []byte) {
		tx, err := db.Begin(true)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		c := changes{raw: raw}
		if err := c.redo(tx); err != nil && !errors.Is(err, errChanges) {
			t.Error(err)
		}
	})
}
