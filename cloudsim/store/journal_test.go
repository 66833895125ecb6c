package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
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

func TestAppendEventIsMarshal(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 678900000, time.UTC)
	for _, e := range []cloudsim.Event{
		{},
		{Rev: 1<<64 - 1, Time: at, Type: cloudsim.EventPut, Kind: cloudsim.KindInstance, ID: "i-000001", Project: "proj-000001", RequestID: "req-1", Caller: "ccm", Cause: "instances.stop i-1", Object: []byte(`{"a":[1,"x"]}`)},
		{Rev: 7, Time: at.Truncate(time.Second), Type: cloudsim.EventDelete, Kind: cloudsim.KindZone, ID: "a\"b\\c<d>&e\n\u2028é\xff"},
	} {
		want, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		got := appendEvent(nil, e)
		if string(got) != string(want) {
			t.Errorf("%s\nwant %s", got, want)
		}
		likeUnmarshal(t, got)
	}
}

// likeUnmarshal fails if an event is not read as json.Unmarshal reads it.
func likeUnmarshal(t *testing.T, raw []byte) {
	t.Helper()
	var want cloudsim.Event
	bad := json.Unmarshal(raw, &want)
	if kind, ok := kindIn(raw); ok && bad == nil && kind != want.Kind {
		t.Errorf("%s: the kind is %q, want %q", raw, kind, want.Kind)
	}
	got, err := readEvent(bytes.Clone(raw))
	if (err != nil) != (bad != nil) {
		t.Errorf("%s: %v, want %v", raw, err, bad)
	}
	if diff := cmp.Diff(want, got); bad == nil && diff != "" {
		t.Errorf("%s (-want +got):\n%s", raw, diff)
	}
}

// What our own hand did not write is read too, or refused.
func TestReadEventIsUnmarshal(t *testing.T) {
	const begin = `{"rev":7,"time":"2030-01-02T03:04:05.6789Z","type":"put","kind":"disk","id":"disk-000001"`
	plain := begin + `,"project":"proj-000001","requestId":"req-1","caller":"ccm","cause":"x","object":{"a":[1,"x"]}}`
	if _, ok := readPlain([]byte(plain)); !ok {
		t.Error("what is plain goes the long way")
	}
	for _, raw := range []string{
		plain, begin + `}`, begin, begin + `,"object":{"a":[1,"x"]}`, begin + `,"object":}`, begin + `,"object":{"a":}}`, begin + `,"object":null}`, begin + `,"object": {"a":1}}`, begin + `,"object":{"a":1} }`, begin + `}}`,
		begin + `,"caller":"a","project":"p"}`, begin + `,"caller":"\u00e9\n"}`, begin + ` , "caller" : "a" }`, begin + `,"caller":"a","more":1}`, begin + `,"caller":"a`,
		``, `{}`, `null`, `{"rev":-1}`, `{"rev":1,"time":""}`, `{"rev":"1"}`, `{"rev":18446744073709551616,"time":"2030-01-02T03:04:05Z"}`,
		`{"rev":7,"time":"2030-01-02T03:04:05+02:00"}`, `{"rev":7,"time":"2030-01-02T3:04:05Z"}`, `{"rev":07,"time":"2030-01-02T03:04:05Z"}`,
		`{"object":{"a":"x","kind":"zone"},"rev":7,"kind":"disk"}`, `{"rev":7,"time":"2030-01-02T03:04:05Z","object":{}}{}`, `{"rev":7,"time":"2030-01-02T03:04:05,5Z"}`,
	} {
		likeUnmarshal(t, []byte(raw))
	}
}

func FuzzReadEvent(f *testing.F) {
	f.Add([]byte(`{"rev":7,"time":"2030-01-02T03:04:05.6789Z","type":"put","kind":"disk","id":"disk-000001","caller":"a","object":{"a":1}}`))
	f.Fuzz(likeUnmarshal)
}

// Events that no journal ever had are not forgotten in place of those that are
// there: a state is loaded into a cloud that has come further.
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
				t.Errorf("there are %d events, want %d", n, want)
			}
			there := 0
			count := tx.read(bucketJournal).ForEach(func(_, _ []byte) error { there++; return nil })
			if uint64(there) != want {
				t.Errorf("the journal has %d, want %d", there, want)
			}
			return errors.Join(err, count, tx.CheckJournal())
		}); err != nil {
			t.Fatal(err)
		}
	}
	wantEvents(10)
	if forgot := compact(100); forgot != nil {
		t.Errorf("of 10 events %v are forgotten so that 100 stay", forgot)
	}
	if forgot := compact(3); !slices.Equal(forgot, []int{4, 3}) {
		t.Errorf("of 10 events %v are forgotten so that 3 stay", forgot)
	}
	wantEvents(3)
	if err := to.Update("", func(tx *Tx) error {
		return hosts.Put(tx, &cloudsim.Project{ID: "new", Meta: cloudsim.Meta{Name: "new"}})
	}); err != nil {
		t.Fatal(err)
	}
	wantEvents(4)
	if forgot := compact(0); !slices.Equal(forgot, []int{4}) {
		t.Errorf("of 4 events %v are forgotten", forgot)
	}
	wantEvents(0)
}

// Of a state that was brought in, the gaps may overlap: none is counted twice.
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
		if n, err := tx.Events(); n != 9 || err != nil { // 1, 2 and 13 to 19
			t.Errorf("there are %d events, %v; want 9", n, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
