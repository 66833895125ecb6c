package store_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// makeArchive returns the archive of a store with n projects and due work.
func makeArchive(t testing.TB, n int) []byte {
	t.Helper()
	s, err := store.Open(filepath.Join(t.TempDir(), "cloud.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range n {
		if _, err := put(s, fmt.Sprintf("name-%d", i), "red"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Update("", func(tx *store.Tx) error {
		_, err := tx.Take("p", 10)
		return errors.Join(err, tx.Give("p", 0), tx.Later(time.Unix(1, 0), store.Work{Kind: cloudsim.KindInstance, ID: "i-1"}))
	}); err != nil {
		t.Fatal(err)
	}
	return archive(t, s)
}

func archive(t testing.TB, s *store.Store) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := s.Archive(statefile.NewWriter(&out), nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unarchive reads a saved state into a store. It reads all contents of the
// store, and archives the store again. It fails the test if Unarchive returns
// an error that is not Invalid.
func unarchive(t testing.TB, state []byte) (newState []byte, err error) {
	t.Helper()
	r, err := statefile.NewReader(bytes.NewReader(state))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Unarchive(r, filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		if !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("got error %v, want Invalid", err)
		}
		return nil, err
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: got error %v", err)
		}
	}()
	if err := s.CheckFile(); err != nil {
		t.Errorf("file check: got error %v", err)
	}
	_ = s.View(func(tx *store.Tx) error { // tables may contain any bytes; a read of a table must not panic
		tx.NextDue()
		_, _ = tx.Floor(), tx.Epoch()
		return errors.Join(tx.CheckJournal(), projects.Check(tx))
	})
	return archive(t, s), nil
}

// makeState returns a saved state with the given buckets. Each element of buckets describes one
// bucket. For an empty bucket the element contains only the name. For a bucket with one key it
// contains the name, the key and the value.
func makeState(t testing.TB, buckets ...[]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := statefile.NewWriter(&out)
	err := w.Begin(statefile.Head{})
	for _, b := range buckets {
		err = errors.Join(err, w.Bucket([]byte(b[0]), 0))
		if len(b) > 1 {
			err = errors.Join(err, w.Put([]byte(b[1]), []byte(b[2])))
		}
	}
	if err := errors.Join(err, w.End()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestArchive proves that Unarchive restores the content that Archive has
// written, and that it returns Invalid for a saved state with unreadable
// records.
func TestArchive(t *testing.T) {
	whole := makeArchive(t, 10)
	if got, err := unarchive(t, whole); err != nil || !bytes.Equal(got, whole) {
		t.Fatalf("an archive of the unarchived store differs, error %v", err)
	}
	schema := []string{"meta", "schema", "1"}
	if _, err := unarchive(t, makeState(t, schema)); err != nil {
		t.Fatalf("archive of an empty store: got error %v", err)
	}
	for defect, bad := range map[string][][]string{
		"no buckets":                    {},
		"other schema":                  {{"meta", "schema", "2"}},
		"unknown bucket":                {{"faults"}, schema},
		"bucket without a name after /": {{"index/"}, schema},
		"long key":                      {schema, {"note/x", strings.Repeat("k", 32769), ""}},
		"short due time":                {{"due", "x", "{}"}, schema},
		"damaged due work item":         {{"due", "0123456789abcdef", "\xff"}, schema},
		"short count":                   {schema, {"usage", "p\x00q", "x"}},
		"short number":                  {{"free/p", "x", ""}, schema},
		"short revision":                {{"journal", "x", "{}"}, schema},
	} {
		if _, err := unarchive(t, makeState(t, bad...)); err == nil {
			t.Errorf("archive with %s: got no error", defect)
		}
	}
}

// TestCheckComparesIndexes proves that Table.Check finds an index entry without
// a resource, and a resource without index entries.
func TestCheckComparesIndexes(t *testing.T) {
	schema := []string{"meta", "schema", "1"}
	for kind, buckets := range map[string][][]string{
		"entry":    {{"index/project/name", "a\x00name\x00proj-000001", ""}, schema},
		"resource": {schema, {"object/project", "proj-000001", `{"id":"proj-000001","name":"name"}`}},
	} {
		r, err := statefile.NewReader(bytes.NewReader(makeState(t, buckets...)))
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Unarchive(r, filepath.Join(t.TempDir(), "x.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.View(projects.Check); err == nil {
			t.Errorf("store with one %s too many: got no error", kind)
		}
	}
}

// FuzzUnarchive calls Unarchive with saved states that contain arbitrary records. It proves that
// Unarchive returns Invalid or a store. If Unarchive returns a store, the test proves that
// CheckFile finds no damage, and that Archive can read the store.
func FuzzUnarchive(f *testing.F) {
	z, err := gzip.NewReader(bytes.NewReader(makeArchive(f, 3)))
	if err != nil {
		f.Fatal(err)
	}
	content, err := io.ReadAll(z)
	if err != nil {
		f.Fatal(err)
	}
	head := bytes.IndexByte(content, '\n') + 1
	f.Add(content[head:])
	f.Fuzz(func(t *testing.T, records []byte) {
		var file bytes.Buffer
		z := gzip.NewWriter(&file)
		_, err := z.Write(append(bytes.Clone(content[:head]), records...))
		if err := errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		second, err := unarchive(t, file.Bytes())
		if err != nil {
			return
		}
		if _, err := unarchive(t, second); err != nil {
			t.Errorf("archive of the unarchived store: got error %v", err)
		}
	})
}

// TestFlippedByteInFile changes one byte of a store's file, at many positions one after the other.
// It proves that none of these changes ends the process. The test ignores the errors of the store.
func TestFlippedByteInFile(t *testing.T) {
	whole := writtenFile(t, 100)
	path := filepath.Join(t.TempDir(), "cloud.db")
	step := 61
	if testing.Short() {
		step = 997
	}
	for at := 0; at < len(whole); at += step {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x7f
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(path)
		if err != nil {
			continue
		}
		_ = s.View((*store.Tx).CheckJournal)
		_ = s.View(projects.Check)
		_, _ = put(s, "late", "red")
		_ = s.Archive(statefile.NewWriter(io.Discard), nil)
		_ = s.Close()
	}
}

// TestRevisionsAfterReplace proves that Replace uses a revision that is greater than all revisions
// in the journals of the old store and of the new store. Epoch returns this revision. The next
// event has the next revision.
func TestRevisionsAfterReplace(t *testing.T) {
	for name, n := range map[string]struct{ own, other int }{"own journal is ahead": {9, 3}, "other journal is ahead": {3, 9}} {
		t.Run(name, func(t *testing.T) {
			r, err := statefile.NewReader(bytes.NewReader(makeArchive(t, n.other)))
			if err != nil {
				t.Fatal(err)
			}
			other, err := store.Unarchive(r, filepath.Join(t.TempDir(), "other.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			s := temp(t) // the cleanup of temp checks the journal
			for i := range n.own {
				if _, err := put(s, fmt.Sprintf("own-%d", i), "blue"); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Update("", func(tx *store.Tx) error { return tx.Replace(other) }); err != nil {
				t.Fatal(err)
			}
			if err := s.View(func(tx *store.Tx) error {
				if at, epoch := tx.Revision(), tx.Epoch(); at != 10 || epoch != 10 {
					t.Errorf("got revision %d and epoch %d, want 10 and 10", at, epoch)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if p, err := put(s, "after", "red"); err != nil || p.Revision != 11 {
				t.Errorf("next revision: got %d, error %v; want 11", p.Revision, err)
			}
		})
	}
}
