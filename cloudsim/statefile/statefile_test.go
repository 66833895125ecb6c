package statefile_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
)

// read reads a file with two sections. It fails the test if the reader returns an error that is not
// Invalid.
func read(t *testing.T, file []byte) (all []statefile.Record, err error) {
	t.Helper()
	defer func() {
		if err != nil && !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("error %v; want Invalid", err)
		}
	}()
	r, err := statefile.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	for _, more := range []bool{true, false} {
		for {
			rec, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			all = append(all, rec)
		}
		if err := r.EndSection(more); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// writtenFile returns a file with two sections of n keys each.
func writtenFile(t *testing.T, n uint64) []byte {
	t.Helper()
	rng := rand.NewChaCha8([32]byte{1})
	var out bytes.Buffer
	w := statefile.NewWriter(&out)
	err := w.Begin(statefile.Head{Revision: 7, DiskData: true})
	for _, section := range []string{"records", "data"} {
		if section == "data" {
			w.BeginData()
		}
		err = errors.Join(err, w.Bucket([]byte(section), n))
		for k := range n {
			value := make([]byte, 100)
			_, _ = rng.Read(value)
			err = errors.Join(err, w.Put(binary.BigEndian.AppendUint64(nil, k), value))
		}
		err = errors.Join(err, w.End())
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestFile proves that a reader returns the written records. After a change of one byte in the
// file, the reader returns Invalid or the written records. If the end of the file is missing, the
// reader returns Invalid.
func TestFile(t *testing.T) {
	whole := writtenFile(t, 10)
	want, err := read(t, whole)
	if err != nil || len(want) != 22 || string(want[0].Bucket) != "records" || want[0].Sequence != 10 || len(want[21].Value) != 100 {
		t.Fatalf("file with two sections: got %d records, error %v, want 22 records", len(want), err)
	}
	for at := range whole {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x41
		if got, err := read(t, bad); err == nil && !slices.EqualFunc(got, want, func(a, b statefile.Record) bool {
			return bytes.Equal(a.Bucket, b.Bucket) && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
		}) {
			t.Errorf("byte %d of %d changed: the reader returned other records and no error", at, len(whole))
		}
		if _, err := read(t, whole[:at]); err == nil {
			t.Errorf("file cut after %d of %d bytes: the reader returned no error", at, len(whole))
		}
	}
}

// TestHostileFile proves that a reader returns Invalid for a malicious file and for a file of
// another format.
func TestHostileFile(t *testing.T) {
	const head = `{"format":"cloudsim-state","version":3}` + "\n"
	bucket, key := "\x01\x01b\x00", "\x02\x01k\x01v"
	if _, err := read(t, zipped(head+bucket+key+"\x00\x00")); err != nil {
		t.Fatalf("a valid file: %v", err)
	}
	for defect, bad := range map[string]string{
		"no header":            "\x00\x00",
		"another version":      strings.Replace(head, "3", "2", 1) + "\x00\x00",
		"a long header":        strings.Repeat("x", 1<<20),
		"no sections":          head,
		"one section":          head + "\x00",
		"three sections":       head + "\x00\x00\x00",
		"buckets out of order": head + "\x01\x01c\x00" + bucket + "\x00\x00",
		"a bucket twice":       head + bucket + bucket + "\x00\x00",
		"an empty bucket name": head + "\x01\x00\x00\x00\x00",
		"a key twice":          head + bucket + key + key + "\x00\x00",
		"an empty key":         head + bucket + "\x02\x00\x01v\x00\x00",
		"a key of no bucket":   head + key + "\x00\x00",
		"an unknown record":    head + "\x07\x00\x00",
		"a huge value":         head + bucket + "\x02\x01k" + string(binary.AppendUvarint(nil, 1<<60)),
		"an endless number":    head + "\x01" + strings.Repeat("\xff", 20),
	} {
		if _, err := read(t, zipped(bad)); err == nil {
			t.Errorf("file with %s: the reader returned no error", defect)
		}
	}
	if _, err := read(t, []byte("no state")); err == nil {
		t.Error("file of another format: the reader returned no error")
	}
}

func zipped(content string) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write([]byte(content)) // to memory
	_ = z.Close()
	return out.Bytes()
}

// TestSimilarRecords writes records that gzip compresses to less than a thousandth of their size.
// It proves that the reader accepts the file. It also proves that the writer refuses a value that
// the reader would refuse.
func TestSimilarRecords(t *testing.T) {
	var out bytes.Buffer
	w := statefile.NewWriter(&out)
	err := errors.Join(w.Begin(statefile.Head{}), w.Bucket([]byte("b"), 0))
	value := bytes.Repeat([]byte("x"), 64<<10)
	const n = 700
	for k := range uint64(n) {
		err = errors.Join(err, w.Put(binary.BigEndian.AppendUint64(nil, k), value))
	}
	if big := w.Put([]byte("big"), make([]byte, statefile.MaxValue+1)); !errors.Is(big, cloudsim.Conflict) {
		t.Errorf("value that is too large: got error %v, want Conflict", big)
	}
	err = errors.Join(err, w.End())
	w.BeginData()
	if err = errors.Join(err, w.End()); err != nil {
		t.Fatal(err)
	}
	all, err := read(t, out.Bytes())
	if err != nil || len(all) != n+1 || !bytes.Equal(all[n].Value, value) {
		t.Errorf("file of %d bytes: got %d records, error %v; want %d records", out.Len(), len(all), err, n+1)
	}
}
