package store_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// archived is a store of n projects as an archive, with work that is due.
func archived(t testing.TB, n int) []byte {
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
	var out bytes.Buffer
	if err := s.Archive(&out, nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unarchive makes a store of an archive, and checks that everything in it can
// be read; a refusal must be Invalid.
func unarchive(t testing.TB, archive []byte) (again []byte, err error) {
	t.Helper()
	s, err := store.Unarchive(bytes.NewReader(archive), filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		if !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("not Invalid: %v", err)
		}
		return nil, err
	}
	defer s.Close()
	if err := s.CheckFile(); err != nil {
		t.Errorf("the file: %v", err)
	}
	_ = s.View(func(tx *store.Tx) error { // errors of tables are for who knows them
		tx.NextDue()
		_, _ = tx.Floor(), tx.Epoch()
		return errors.Join(tx.CheckJournal(), projects.Check(tx))
	})
	var out bytes.Buffer
	if err := s.Archive(&out, nil); err != nil {
		t.Errorf("archived again: %v", err)
	}
	return out.Bytes(), nil
}

func unzip(t testing.TB, archive []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func zip(raw []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(raw) // to memory
	_ = z.Close()
	return out.Bytes()
}

// sealed is content as a stranger would send it: with the sum that belongs to it.
func sealed(content []byte) []byte {
	sum := sha256.Sum256(content)
	return zip(append(bytes.Clone(content), sum[:]...))
}

// What was archived comes back byte for byte; with a byte flipped anywhere, or
// cut anywhere, it is Invalid, or what it was.
func TestArchive(t *testing.T) {
	whole := archived(t, 10)
	again, err := unarchive(t, whole)
	if err != nil || !bytes.Equal(unzip(t, again), unzip(t, whole)) {
		t.Fatalf("there and back it is another: %v", err)
	}
	raw := unzip(t, whole)
	step := 1
	if testing.Short() {
		step = 53
	}
	for at := 0; at < len(raw); at += step { // below gzip's own checksum
		bad := bytes.Clone(raw)
		bad[at] ^= 0x41
		if _, err := unarchive(t, zip(bad)); err == nil {
			t.Errorf("byte %d of %d was flipped, and nobody saw it", at, len(raw))
		}
	}
	for at := 0; at < len(whole); at += 7 * step {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x41
		if again, err := unarchive(t, bad); err == nil && !bytes.Equal(unzip(t, again), raw) {
			t.Errorf("packed byte %d was flipped, and it is another", at)
		}
		if _, err := unarchive(t, whole[:at]); err == nil {
			t.Errorf("cut at %d, and nobody saw it", at)
		}
	}
	if _, err := unarchive(t, append(bytes.Clone(whole), "more"...)); err == nil {
		t.Error("something follows, and nobody saw it")
	}
}

// record is one of an archive.
func record(kind byte, fields ...string) (b []byte) {
	b = []byte{kind}
	for _, f := range fields {
		b = append(binary.AppendUvarint(b, uint64(len(f))), f...)
	}
	return b
}

// Archives that were made to do damage are Invalid: their sums are right.
func TestHostileArchive(t *testing.T) {
	const head = `{"format":"cloudsim-state","version":2,"schema":"1","revision":0}` + "\n"
	bucket := func(name string) []byte { return append(record(1, name), 0) }
	all := func(parts ...[]byte) []byte {
		return sealed(append(bytes.Join(append([][]byte{[]byte(head)}, parts...), nil), 0))
	}
	schema := append(bucket("meta"), record(2, "schema", "1")...)
	if _, err := unarchive(t, all(schema)); err != nil {
		t.Fatalf("a good one: %v", err)
	}
	long := binary.AppendUvarint([]byte{2, 1, 'k'}, 1<<60)
	for name, bad := range map[string][]byte{
		"nothing":            nil,
		"no records":         sealed([]byte(head)),
		"no buckets":         all(),
		"another version":    sealed([]byte(`{"format":"cloudsim-state","version":1,"schema":"1"}` + "\n\x00")),
		"another schema":     sealed([]byte(`{"format":"cloudsim-state","version":2,"schema":"2"}` + "\n\x00")),
		"a long first line":  sealed(bytes.Repeat([]byte("x"), 1<<20)),
		"a strange bucket":   all(bucket("faults"), schema),
		"no order":           all(schema, bucket("due")),
		"a bucket twice":     all(schema, schema),
		"a key twice":        all(schema, record(2, "schema", "1")),
		"a key of no bucket": all(record(2, "schema", "1")),
		"no key":             all(schema[:len(bucket("meta"))], record(2, "", "1"), schema[len(bucket("meta")):]),
		"a strange record":   all(schema, []byte{7}),
		"a huge value":       all(schema, long),
		"an endless number":  all(schema, bytes.Repeat([]byte{0xff}, 20)),
		"a short due time":   all(bucket("due"), record(2, "x", "{}"), schema),
		"due work of noise":  all(bucket("due"), record(2, "0123456789abcdef", "\xff"), schema),
		"a short floor":      all(bucket("meta"), record(2, "journalFloor", "x"), schema[len(bucket("meta")):]),
		"a short epoch":      all(bucket("meta"), record(2, "epoch", "x"), schema[len(bucket("meta")):]),
		"a short count":      all(schema, bucket("usage"), record(2, "p\x00q", "x")),
		"a short number":     all(bucket("free/p"), record(2, "x", ""), schema),
		"a short revision":   all(bucket("journal"), record(2, "x", "{}"), schema),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := unarchive(t, bad); err == nil {
				t.Error("nobody saw it")
			}
		})
	}
}

// An archive that unpacks to a full disk is refused before it does.
func TestArchiveBomb(t *testing.T) {
	if testing.Short() {
		t.Skip("two GiB are packed and unpacked")
	}
	t.Parallel()
	r, w := io.Pipe()
	go func() {
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		_, _ = io.WriteString(z, `{"format":"cloudsim-state","version":2,"schema":"1","revision":0}`+"\n")
		_, _ = z.Write(append(record(1, "object/x"), 0))
		value := string(make([]byte, 8<<20))
		for n := range 300 {
			if _, err := z.Write(record(2, fmt.Sprintf("%06d", n), value)); err != nil {
				break
			}
		}
		_ = w.CloseWithError(z.Close())
	}()
	defer r.Close()
	if _, err := store.Unarchive(r, filepath.Join(t.TempDir(), "x.db")); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("%v", err)
	}
}

// FuzzUnarchive: whatever an archive says, with the sum that belongs to it, it
// is Invalid or a store in which everything can be read, and that is archived
// and read again.
func FuzzUnarchive(f *testing.F) {
	raw := unzip(f, archived(f, 3))
	f.Add(raw[:len(raw)-sha256.Size])
	f.Fuzz(func(t *testing.T, content []byte) {
		again, err := unarchive(t, sealed(content))
		if err != nil {
			return
		}
		if _, err := unarchive(t, again); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

// A byte of a file that was flipped, anywhere in its pages, is an error or is
// never met; it is not the end of the process.
func TestFlippedByteInFile(t *testing.T) {
	whole := written(t, 100)
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
		_ = s.Archive(io.Discard, nil)
		_ = s.Close()
	}
}

// Revisions go on from the higher of the two journals, whichever that is, and
// watches from before are told where that was.
func TestReplaceGoesOn(t *testing.T) {
	for name, n := range map[string]struct{ own, other int }{"own is ahead": {9, 3}, "the other is": {3, 9}} {
		t.Run(name, func(t *testing.T) {
			other, err := store.Unarchive(bytes.NewReader(archived(t, n.other)), filepath.Join(t.TempDir(), "other.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			s := temp(t) // its journal is checked at the end
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
					t.Errorf("revision %d of epoch %d; both journals ended at 9 or before", at, epoch)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if p, err := put(s, "after", "red"); err != nil || p.Revision != 11 {
				t.Errorf("the next revision is %d, %v", p.Revision, err)
			}
		})
	}
}
