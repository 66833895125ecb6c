package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

var hosts = Table[cloudsim.Project]{
	Kind: cloudsim.KindProject, Prefix: "host",
	ID:    func(p *cloudsim.Project) string { return string(p.ID) },
	Meta:  func(p *cloudsim.Project) *cloudsim.Meta { return &p.Meta },
	Index: map[string]func(*cloudsim.Project) []string{"name": func(p *cloudsim.Project) []string { return []string{p.Name} }},
}

// TestEventIsReadAsWritten proves that the method Since returns events exactly as the store has
// written them, even with unusual characters. If the cloud's clock and the machine's clock differ,
// an event also contains the machine's time.
func TestEventIsReadAsWritten(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "cloud.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	now := time.Date(2030, 1, 2, 3, 4, 5, 678900000, time.UTC)
	s.Now = func() time.Time { return now }
	const odd = "a\"b\\c<d>&e\n\u2028é"
	var want []cloudsim.Event
	for _, text := range []string{"", "plain", odd, "ahead"} {
		at, machine := now, time.Time{}
		if text == "ahead" {
			at, machine = now.Add(time.Hour), now
			if err := s.Update("", func(tx *Tx) error { return tx.SetClock(Clock{Machine: now, Cloud: at, Rate: 1}) }); err != nil {
				t.Fatal(err)
			}
		}
		p := cloudsim.Project{ID: cloudsim.ProjectID(text + "id"), Meta: cloudsim.Meta{Name: text, Project: cloudsim.ProjectID(text)}}
		if err := s.Update(text, func(tx *Tx) error {
			tx.Caller, tx.Cause = text, text
			return errors.Join(hosts.Put(tx, &p), hosts.Delete(tx, &p))
		}); err != nil {
			t.Fatal(err)
		}
		for _, typ := range []cloudsim.EventType{cloudsim.EventPut, cloudsim.EventDelete} {
			want = append(want, cloudsim.Event{
				Rev: uint64(len(want)) + 1, Time: at, MachineTime: machine, Type: typ, Kind: hosts.Kind, ID: text + "id",
				Project: cloudsim.ProjectID(text), RequestID: text, Caller: text, Cause: text,
			})
		}
	}
	if err := s.View(func(tx *Tx) error {
		got, _, err := tx.Since(0, 10)
		for i := range got {
			if n := strings.Count(string(got[i].Object), "createdAt"); n != 1 {
				t.Errorf("event %d: got object %s, want createdAt once", got[i].Rev, got[i].Object)
			}
			got[i].Object = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events differ (-want +got):\n%s", diff)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedEvent(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "cloud.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Update("", func(tx *Tx) error {
		rev, err := tx.nextRevision()
		if err != nil {
			return err
		}
		b, err := tx.write(bucketJournal)
		return errors.Join(err, b.Put(u64(rev), []byte(`{"rev":1,"kind":"disk","id":"word`)))
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.View(func(tx *Tx) error {
		_, _, since := tx.Since(0, 10, "disk")
		mentions := tx.Mentions("word", func(cloudsim.Event) error { return nil })
		for _, err := range []error{since, mentions} {
			if !strings.Contains(fmt.Sprint(err), "event 1 is damaged") {
				t.Errorf("damaged event: got error %v", err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestCompactAfterALoad proves that Compact counts the events correctly if the journal has a gap. A
// gap is a range of revisions without events. The journal gets a gap if a client loads a saved
// state with a lower revision than the revision of the cloud.
func TestCompactAfterALoad(t *testing.T) {
	dir := t.TempDir()
	open := func(name string, events int) *Store {
		t.Helper()
		s, err := Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		for range events {
			if err := s.Update("", func(tx *Tx) error {
				id, err := hosts.NextID(tx)
				if err != nil {
					return err
				}
				return hosts.Put(tx, &cloudsim.Project{ID: cloudsim.ProjectID(id), Meta: cloudsim.Meta{Name: id}})
			}); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	from, to := open("from", 10), open("to", 200)
	if err := to.Update("", func(tx *Tx) error { return tx.Replace(from) }); err != nil {
		t.Fatal(err)
	}
	compact := func(keep uint64) (forgot []int) {
		t.Helper()
		for n := 1; n > 0; {
			if err := to.Update("", func(tx *Tx) (err error) { n, err = tx.Compact(keep, 4); return err }); err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				forgot = append(forgot, n)
			}
		}
		return forgot
	}
	wantEvents := func(want uint64) {
		t.Helper()
		if err := to.View(func(tx *Tx) error {
			n, err := tx.Events()
			if n != want {
				t.Errorf("event count: got %d, want %d", n, want)
			}
			entries := 0
			count := tx.read(bucketJournal).ForEach(func(_, _ []byte) error { entries++; return nil })
			if uint64(entries) != want {
				t.Errorf("events in the journal: got %d, want %d", entries, want)
			}
			return errors.Join(err, count, tx.CheckJournal())
		}); err != nil {
			t.Fatal(err)
		}
	}
	wantEvents(10)
	if forgot := compact(100); forgot != nil {
		t.Errorf("compaction of 10 events to 100: got %v deleted events, want none", forgot)
	}
	if forgot := compact(3); !slices.Equal(forgot, []int{4, 3}) {
		t.Errorf("compaction of 10 events to 3: got %v deleted events, want 4 and 3", forgot)
	}
	wantEvents(3)
	if err := to.Update("", func(tx *Tx) error {
		return hosts.Put(tx, &cloudsim.Project{ID: "new", Meta: cloudsim.Meta{Name: "new"}})
	}); err != nil {
		t.Fatal(err)
	}
	wantEvents(4)
	if forgot := compact(0); !slices.Equal(forgot, []int{4}) {
		t.Errorf("compaction of 4 events to 0: got %v deleted events, want 4", forgot)
	}
	wantEvents(0)
}

// TestEventsBetweenGapsThatOverlap proves that Events returns the correct number of events if two
// gaps contain the same revision. A gap is a range of revisions without events. The gaps of an
// imported state can overlap.
func TestEventsBetweenGapsThatOverlap(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "cloud.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Update("", func(tx *Tx) error {
		b, err := tx.write(bucketJournal)
		if err != nil {
			return err
		}
		meta, err := tx.write(bucketMeta)
		return errors.Join(err, b.SetSequence(20), meta.Put(keyGaps, []byte("[[3,10],[3,10],[8,12],[20,30]]")))
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.View(func(tx *Tx) error {
		if n, err := tx.Events(); n != 9 || err != nil { // the events with the revisions 1, 2 and 13 to 19
			t.Errorf("event count: got %d, error %v; want 9", n, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
