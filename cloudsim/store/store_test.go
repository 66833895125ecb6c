package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

var projects = store.Table[cloudsim.Project]{
	Kind: cloudsim.KindProject, Prefix: "proj",
	ID:    func(p *cloudsim.Project) string { return string(p.ID) },
	Meta:  func(p *cloudsim.Project) *cloudsim.Meta { return &p.Meta },
	Index: map[string]func(*cloudsim.Project) []string{"color": func(p *cloudsim.Project) []string { return []string{p.Labels["color"]} }},
}

// open opens a store, and registers a cleanup that checks the store at the end of the test.
func open(t *testing.T, path string) *store.Store {
	t.Helper()
	s, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.CheckFile(), s.View(projects.Check), s.View((*store.Tx).CheckJournal)); err != nil {
			t.Errorf("the store is damaged: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func temp(t *testing.T) *store.Store { return open(t, filepath.Join(t.TempDir(), "cloud.db")) }

func put(s *store.Store, name, color string) (p cloudsim.Project, err error) {
	err = s.Update("req-1", func(tx *store.Tx) error {
		p, err = putIn(tx, name, color)
		return err
	})
	return p, err
}

func putIn(tx *store.Tx, name, color string) (p cloudsim.Project, err error) {
	id, err := projects.NextID(tx)
	if err != nil {
		return p, err
	}
	p = cloudsim.Project{ID: cloudsim.ProjectID(id), Meta: cloudsim.Meta{Name: name, Labels: map[string]string{"color": color}}}
	return p, projects.Put(tx, &p)
}

func TestTable(t *testing.T) {
	s := temp(t)
	a, err := put(s, "a", "red")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put(s, "b", "red"); err != nil {
		t.Fatal(err)
	}
	lookup := func(color string) (ids []string) {
		t.Helper()
		if err := s.View(func(tx *store.Tx) error {
			found, err := projects.Lookup(tx, "color", color)
			for _, p := range found {
				ids = append(ids, string(p.ID))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	if got := lookup("red"); fmt.Sprint(got) != "[proj-000001 proj-000002]" {
		t.Errorf("objects with red: got %v, want both projects", got)
	}
	a.Labels["color"] = "blue"
	if err := s.Update("req-2", func(tx *store.Tx) error { return projects.Put(tx, &a) }); err != nil {
		t.Fatal(err)
	}
	if got := lookup("red"); fmt.Sprint(got) != "[proj-000002]" {
		t.Errorf("objects with red after the change: got %v, want 1", got)
	}
	if got := lookup("re"); got != nil {
		t.Errorf("objects with a prefix of red: got %v, want none", got)
	}
	if err := s.Update("req-3", func(tx *store.Tx) error { return projects.Delete(tx, &a) }); err != nil {
		t.Fatal(err)
	}
	if got := lookup("blue"); got != nil {
		t.Errorf("objects with blue after the deletion: got %v, want none", got)
	}
	err = s.View(func(tx *store.Tx) error {
		if _, err := projects.Get(tx, "proj-000001"); !errors.Is(err, cloudsim.NotFound) {
			t.Errorf("get after the deletion: got error %v, want NotFound", err)
		}
		if b, err := projects.Named(tx, "", "b"); err != nil || b.ID != "proj-000002" {
			t.Errorf("object named b: got %v, error %v", b, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// NextID must not return the id of a deleted resource again.
	if c, err := put(s, "c", "red"); err != nil || c.ID != "proj-000003" {
		t.Errorf("next ID: got %v, error %v; want proj-000003", c.ID, err)
	}
}

// TestSeveralChangesInOneTransaction changes a resource several times in one transaction. It proves
// that the store and its indexes contain the last value. The test also calls Replace between two of
// the changes. The function open registers a cleanup that checks every index entry.
func TestSeveralChangesInOneTransaction(t *testing.T) {
	other, s := temp(t), temp(t)
	if _, err := put(other, "other", "green"); err != nil {
		t.Fatal(err)
	}
	p, err := put(s, "a", "red")
	if err != nil {
		t.Fatal(err)
	}
	change := func(tx *store.Tx, name, color string) {
		p.Name, p.Labels["color"] = name, color // changes the stored value in place, as callers do
		if err := projects.Put(tx, &p); err != nil {
			t.Error(err)
		}
	}
	if err := s.Update("", func(tx *store.Tx) error {
		change(tx, "b", "blue")
		change(tx, "b", "red")
		if err := projects.Delete(tx, &p); err != nil {
			return err
		}
		change(tx, "c", "blue")
		if err := tx.Replace(other); err != nil { // in the other store, this id belongs to another resource
			return err
		}
		change(tx, "d", "red")
		change(tx, "e", "yellow")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.View(func(tx *store.Tx) error {
		got, err := projects.Named(tx, "", "e")
		if err != nil || got.Labels["color"] != "yellow" {
			t.Errorf("got %v, error %v; want color yellow", got, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestCoalescedEvent proves that a table with CoalesceEvents writes one event for all changes
// of a resource in a transaction. If the transaction's caller or time changes, the next change has
// its own event.
func TestCoalescedEvent(t *testing.T) {
	s, projects := temp(t), projects
	projects.CoalesceEvents = true
	p, err := put(s, "a", "red")
	if err != nil {
		t.Fatal(err)
	}
	q, err := put(s, "b", "red")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update("", func(tx *store.Tx) error {
		was := p
		for _, color := range []string{"green", "blue"} {
			p.Labels = map[string]string{"color": color}
			if err := errors.Join(projects.Put(tx, &p), projects.Put(tx, &q)); err != nil {
				return err
			}
		}
		if p.Revision != was.Revision+2 || q.Revision != p.Revision+1 {
			t.Errorf("revisions after two changes: got %d and %d, want %d and %d", p.Revision, q.Revision, was.Revision+2, was.Revision+3)
		}
		if err := projects.Delete(tx, &q); err != nil {
			return err
		}
		tx.Caller = "another"
		if err := projects.Put(tx, &p); err != nil {
			return err
		}
		if err := tx.SetClock(store.Clock{Machine: tx.Machine, Cloud: tx.Now.Add(time.Hour), Rate: 1}); err != nil {
			return err
		}
		return projects.Put(tx, &p)
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.View(func(tx *store.Tx) error {
		evs, _, err := tx.Since(2, 10)
		var got []string
		for _, e := range evs {
			got = append(got, fmt.Sprint(e.Rev, " ", e.Type, " ", e.ID, " ", e.Caller, strings.Contains(string(e.Object), "blue")))
		}
		want := []string{"3 put proj-000001 true", "4 delete proj-000002 false", "5 put proj-000001 anothertrue", "6 put proj-000001 anothertrue"}
		if !slices.Equal(got, want) {
			t.Errorf("events: got %q, want %q", got, want)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestBatchIsolatesFailures proves that a failed function does not affect the other functions of
// its batch. A batch contains the functions of concurrent calls of Update. The store discards only
// the changes of the failed function.
func TestBatchIsolatesFailures(t *testing.T) {
	s := temp(t)
	boom := errors.New("boom")
	var wg sync.WaitGroup
	errs := make([]error, 300)
	for i := range errs {
		wg.Go(func() {
			errs[i] = s.Update("", func(tx *store.Tx) error {
				id, err := projects.NextID(tx)
				if err != nil {
					return err
				}
				p := cloudsim.Project{ID: cloudsim.ProjectID(id), Meta: cloudsim.Meta{Name: fmt.Sprint(i)}}
				if err := projects.Put(tx, &p); err != nil {
					return err
				}
				switch i % 3 {
				case 1:
					return boom
				case 2:
					panic("a defect")
				}
				return nil
			})
		})
	}
	wg.Wait()
	kept := 0
	if err := s.View(func(tx *store.Tx) error {
		for p, err := range projects.Scan(tx, "", "") {
			if err != nil {
				return err
			}
			var i int
			if _, err := fmt.Sscan(p.Name, &i); err != nil || i%3 != 0 {
				t.Errorf("the store contains the project %s of a failed update", p.Name)
			}
			kept++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i, err := range errs {
		if (i%3 == 0) != (err == nil) || i%3 == 1 && !errors.Is(err, boom) || i%3 == 2 && !strings.Contains(fmt.Sprint(err), "a defect") {
			t.Errorf("update %d: got error %v, want none (3n), boom (3n+1) or \"a defect\" (3n+2)", i, err)
		}
	}
	if kept != 100 {
		t.Errorf("got %d projects, want 100", kept)
	}
}

func TestJournal(t *testing.T) {
	s := temp(t)
	for i := range 10 {
		if _, err := put(s, fmt.Sprint(i), ""); err != nil {
			t.Fatal(err)
		}
	}
	since := func(rev uint64, limit int) (revs []uint64, err error) {
		err = s.View(func(tx *store.Tx) error {
			evs, _, err := tx.Since(rev, limit)
			for _, e := range evs {
				revs = append(revs, e.Rev)
			}
			return err
		})
		return revs, err
	}
	if got, err := since(3, 4); fmt.Sprint(got) != "[4 5 6 7]" || err != nil {
		t.Errorf("events since 3: got %v, error %v", got, err)
	}
	if err := s.View(func(tx *store.Tx) error {
		for kind, want := range map[cloudsim.ResourceKind]int{projects.Kind: 4, "other": 0} {
			if evs, next, err := tx.Since(3, 4, kind); len(evs) != want || next != 7 || err != nil {
				t.Errorf("events since 3, kind %s: got %d events and next revision %d, error %v; want %d and 7", kind, len(evs), next, err, want)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if got, err := since(10, 4); got != nil || err != nil {
		t.Errorf("events since the last revision: got %v, error %v; want none", got, err)
	}
	if _, err := since(11, 4); !errors.Is(err, cloudsim.Gone) {
		t.Errorf("events since a future revision: got error %v, want Gone", err)
	}
	if err := s.Update("", func(tx *store.Tx) error { _, err := tx.Compact(4, 1000); return err }); err != nil {
		t.Fatal(err)
	}
	if _, err := since(5, 4); !errors.Is(err, cloudsim.Gone) {
		t.Errorf("events since a compacted revision: got error %v, want Gone", err)
	}
	if got, err := since(6, 10); fmt.Sprint(got) != "[7 8 9 10]" || err != nil {
		t.Errorf("events since the first kept revision: got %v, error %v", got, err)
	}
}

// wantDue takes the due work items and fails the test if these items do not have the given ids.
func wantDue(t *testing.T, s *store.Store, ids ...string) {
	t.Helper()
	var got []string
	if err := s.Update("", func(tx *store.Tx) error {
		work, err := tx.TakeDue(10)
		got = nil
		for _, w := range work {
			got = append(got, w.ID)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("due items: got %q, want %q", got, ids)
	}
}

func TestDueIsInOrderAndSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cloud.db")
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s.Now = func() time.Time { return now }
	if err := s.Update("", func(tx *store.Tx) error {
		for _, w := range []struct {
			after time.Duration
			id    string
		}{{2, "late"}, {1, "first"}, {1, "second"}, {90, "never"}} {
			if err := tx.Later(now.Add(w.after*time.Second), store.Work{ID: w.id}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	s.Now = func() time.Time { return now.Add(10 * time.Second) }
	wantDue(t, s, "first", "second", "late")
}

// TestLaterOnceAddsNoDuplicate proves that LaterOnce compares a work item only with the first work
// item that has the same due time. If the two items are equal, LaterOnce does not add the new item.
// Otherwise LaterOnce adds the new item, even if the due list contains another equal item.
func TestLaterOnceAddsNoDuplicate(t *testing.T) {
	s := temp(t)
	at := s.Now().Add(-time.Second)
	for range 2 { // the second round is another transaction
		if err := s.Update("", func(tx *store.Tx) error {
			for _, id := range []string{"a", "b", "a"} {
				if err := tx.LaterOnce(at, store.Work{ID: id}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	wantDue(t, s, "a", "b", "b")
}

func TestPoolGivesTheLowest(t *testing.T) {
	s := temp(t)
	take := func() (n uint64, err error) {
		err = s.Update("", func(tx *store.Tx) error { n, err = tx.Take("pool", 3); return err })
		return n, err
	}
	for want := range uint64(3) {
		if n, err := take(); n != want || err != nil {
			t.Fatalf("take: got %d, error %v; want %d", n, err, want)
		}
	}
	if _, err := take(); !errors.Is(err, cloudsim.Exhausted) {
		t.Fatalf("take from a used-up pool: got error %v, want Exhausted", err)
	}
	if err := s.Update("", func(tx *store.Tx) error { return errors.Join(tx.Give("pool", 2), tx.Give("pool", 1)) }); err != nil {
		t.Fatal(err)
	}
	if n, err := take(); n != 1 || err != nil {
		t.Fatalf("take: got %d, error %v; want 1, the lowest free number", n, err)
	}
}

// TestPoolTakeThis proves that TakeThis can take every free number of a pool. Take and TakeThis do
// not take a used number until Give frees the number.
func TestPoolTakeThis(t *testing.T) {
	s := temp(t)
	take := func() (n uint64, err error) {
		err = s.Update("", func(tx *store.Tx) error { n, err = tx.Take("pool", 4); return err })
		return n, err
	}
	this := func(n uint64) (ok bool) {
		if err := s.Update("", func(tx *store.Tx) (err error) { ok, err = tx.TakeThis("pool", n); return err }); err != nil {
			t.Fatal(err)
		}
		return ok
	}
	give := func(n uint64) {
		if err := s.Update("", func(tx *store.Tx) error { return tx.Give("pool", n) }); err != nil {
			t.Fatal(err)
		}
	}
	if first, second, other := this(1), this(1), this(2); !first || second || !other {
		t.Errorf("TakeThis of 1, of 1 again and of 2: got %t, %t and %t, want true, false and true", first, second, other)
	}
	give(2)
	for _, want := range []uint64{0, 2, 3} {
		if n, err := take(); n != want || err != nil {
			t.Errorf("take: got %d, error %v; want %d", n, err, want)
		}
	}
	if n, err := take(); !errors.Is(err, cloudsim.Exhausted) {
		t.Errorf("take from a used-up pool: got %d, error %v; want Exhausted", n, err)
	}
	give(1)
	if free, used := this(1), this(3); !free || used {
		t.Errorf("TakeThis of the returned 1 and of the used 3: got %t and %t, want true and false", free, used)
	}
}

// TestChangedIsClosedAfterTheCommit proves that the changes of a commit are
// visible before the commit closes the channel that Changed returned. A reader
// that waits for the channel therefore reads the changes.
func TestChangedIsClosedAfterTheCommit(t *testing.T) {
	s := temp(t)
	changed := s.Changed()
	seen := make(chan uint64)
	go func() {
		<-changed
		var rev uint64
		_ = s.View(func(tx *store.Tx) error { rev = tx.Revision(); return nil })
		seen <- rev
	}()
	if _, err := put(s, "a", ""); err != nil {
		t.Fatal(err)
	}
	if rev := <-seen; rev != 1 {
		t.Errorf("read after the notification: got revision %d, want 1", rev)
	}
}

func TestOpenRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cloud.db")
	open(t, path)
	if _, err := store.Open(path); err == nil || !strings.Contains(err.Error(), "in use by another cloud") {
		t.Errorf("second open: got error %v, want that another cloud uses the file", err)
	}
	if _, err := store.Open(filepath.Join(path, "below-a-file")); err == nil {
		t.Error("open of a path below a file: got no error")
	}
}

// TestOpenRefusesOtherSchema proves that Open refuses a file with another schema. It also proves
// that the error tells the user to start the version of the program that wrote the file.
func TestOpenRefusesOtherSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cloud.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("meta"))
		if err != nil {
			return err
		}
		return b.Put([]byte("schema"), []byte("0"))
	}), db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(path); err == nil || !strings.Contains(err.Error(), "start the version that wrote the file") {
		t.Errorf("got error %v, want an error that names the version to start", err)
	}
}

// writtenFile returns the bytes of the file of a store that has n projects.
func writtenFile(t *testing.T, n int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cloud.db")
	s, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	const atOnce = 20 // few commits make a small file
	for from := 0; from < n; from += atOnce {
		if err := s.Update("req-1", func(tx *store.Tx) (err error) {
			for i := range min(atOnce, n-from) {
				_, put := putIn(tx, fmt.Sprintf("name-%d", from+i), "red")
				err = errors.Join(err, put)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// TestDamagedFile proves that a damaged file never ends the process. If the file is cut or contains
// only noise, at least one call returns an error: Open, a read or a write. If Open returns an
// error, it does not change the file.
func TestDamagedFile(t *testing.T) {
	whole := writtenFile(t, 200)
	noise := bytes.Repeat([]byte{0xa5}, len(whole))
	files := map[string][]byte{"cut": whole[:5000], "noise": noise}
	page := os.Getpagesize()
	for at := 2 * page; at < len(whole); at += page {
		if id := binary.NativeEndian.Uint64(whole[at:]); id != uint64(at/page) {
			continue // this page is an overflow page, or the store never used it
		}
		files[fmt.Sprintf("page %d", at/page)] = slices.Concat(whole[:at], noise[:page], whole[at+page:])
	}
	for name, damaged := range files {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cloud.db")
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := store.Open(path)
			if err != nil {
				if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, damaged) {
					t.Errorf("the damaged file was changed: %v", err)
				}
				return
			}
			defer s.Close()
			_, err = put(s, "late", "red")
			err = errors.Join(s.View((*store.Tx).CheckJournal), s.View(projects.Check), err)
			if err == nil && !strings.HasPrefix(name, "page") { // an unused page may be damaged, so an error is not certain
				t.Error("check of the damaged file: got no error")
			}
		})
	}
}

// TestPreallocationIsBeyondTheLastPage proves that each commit leaves zeros in
// the file, after the last page. The zeros never overwrite a page, even after
// the next Open.
func TestPreallocationIsBeyondTheLastPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cloud.db")
	const each = 32
	long := strings.Repeat("x", 16<<10)
	for opened := range 3 {
		s, err := store.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range each { // 1 MiB in all, because the journal also contains each project
			if _, err := put(s, fmt.Sprintf("p-%d-%d", opened, i), long); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() <= s.Size() {
				t.Fatalf("got no preallocated space: %d of %d bytes are used", s.Size(), info.Size())
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, path) // the cleanup of open checks the file
	if err := s.View(func(tx *store.Tx) error {
		if n := projects.Count(tx, "color", long, 4*each); n != 3*each {
			t.Errorf("objects: got %d, want %d", n, 3*each)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
