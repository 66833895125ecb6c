package store

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"
	"strconv"
	"strings"
	"time"

	json "github.com/go-json-experiment/json/v1"
	bolt "go.etcd.io/bbolt"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// An archive is what a store holds, and none of its pages: bbolt trusts a file
// that it opens, so the file of a stranger could end the process. It is a gzip
// stream of
//
//	a line of JSON, the ArchiveHead;
//	for each bucket, in order: recordBucket, its name, its sequence;
//	for each of its keys, in order: recordKey, key, value;
//	recordEnd, and the SHA-256 of everything before.
//
// Numbers are unsigned varints; a name, key or value has its length before it.
const (
	archiveFormat  = "cloudsim-state"
	archiveVersion = 2 // 1 was a copy of the file

	recordEnd    = 0
	recordBucket = 1
	recordKey    = 2
)

// What an archive may hold at most. Nobody's cloud comes near it; a few bytes
// that unpack to a full disk do.
const (
	maxArchive      = 2 << 30 // bytes, unpacked
	maxArchiveValue = 16 << 20
	archiveBatch    = 32 << 20 // bytes that Unarchive commits at once
)

// unpackedMap is how much of an unpacked state is mapped from the beginning: a
// file that outgrows its mapping has every key that the transaction touched
// copied, which was half of the time of unpacking. Addresses are all that it
// costs, but on Windows, where a file is as long as its mapping; there, and
// where addresses are few, it grows as it must.
func unpackedMap() int {
	if runtime.GOOS == "windows" || strconv.IntSize < 64 {
		return 0
	}
	return 256 << 20
}

// ArchiveHead says what an archive is.
type ArchiveHead struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	Schema   string `json:"schema"`
	Revision uint64 `json:"revision"` // of the journal
	DiskData bool   `json:"diskData,omitempty"`
}

// Archive writes everything in the store as it is now. Writers are not kept
// waiting. The head says what look returns, of the same moment; nil says that
// there is no data of disks.
func (s *Store) Archive(w io.Writer, look func(*Tx) (diskData bool, err error)) (err error) {
	defer panicOnFault()()
	defer recoverTo(&err)
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	buf := bufio.NewWriterSize(z, 64<<10)
	sum := sha256.New()
	out := archiver{w: io.MultiWriter(buf, sum)}
	if err := s.db.View(func(tx *bolt.Tx) error {
		now := s.tx(tx, "")
		head := ArchiveHead{Format: archiveFormat, Version: archiveVersion, Schema: schema, Revision: now.Revision()}
		if look != nil {
			if head.DiskData, err = look(now); err != nil {
				return err
			}
		}
		if err := json.NewEncoder(out.w).Encode(head); err != nil { // ends the line
			return err
		}
		return tx.ForEach(out.bucket)
	}); err != nil {
		return err
	}
	if _, err := out.w.Write([]byte{recordEnd}); err != nil {
		return err
	}
	_, err = buf.Write(sum.Sum(nil))
	return errors.Join(err, buf.Flush(), z.Close())
}

type archiver struct {
	w   io.Writer
	buf []byte
}

func (a *archiver) bucket(name []byte, b *bolt.Bucket) error {
	a.buf = append(a.buf[:0], recordBucket)
	a.bytes(name)
	a.buf = binary.AppendUvarint(a.buf, b.Sequence())
	if _, err := a.w.Write(a.buf); err != nil {
		return err
	}
	return b.ForEach(func(k, v []byte) error {
		a.buf = append(a.buf[:0], recordKey)
		a.bytes(k)
		a.bytes(v)
		_, err := a.w.Write(a.buf)
		return err
	})
}

func (a *archiver) bytes(b []byte) {
	a.buf = append(binary.AppendUvarint(a.buf, uint64(len(b))), b...)
}

// ReadArchiveHead reads what an archive says it is. One of another version or
// schema is Invalid, and so is what is no archive.
func ReadArchiveHead(r io.Reader) (ArchiveHead, error) {
	u, err := newUnarchiver(r)
	if err != nil {
		return ArchiveHead{}, err
	}
	return u.head, nil
}

// Unarchive makes a store at path, where nothing may be, of an archive. An
// archive that is damaged, or was made to do damage, is Invalid; what remains
// at path then is the caller's to remove. The store is for reading: what is
// written to it may not survive a crash.
func Unarchive(r io.Reader, path string) (s *Store, err error) {
	u, err := newUnarchiver(r)
	if err != nil {
		return nil, err
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout: 200 * time.Millisecond, FreelistType: bolt.FreelistMapType, NoSync: true, NoGrowSync: true, NoFreelistSync: true,
		InitialMmapSize: unpackedMap(),
	})
	if err != nil {
		return nil, err
	}
	for more := true; more; {
		if err = db.Update(func(tx *bolt.Tx) (err error) {
			more, err = u.some(tx)
			return err
		}); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	s = &Store{Now: time.Now, db: db, changed: make(chan struct{})}
	if err := s.View((*Tx).checkShape); err != nil {
		return nil, errors.Join(cloudsim.Errorf(cloudsim.Invalid, "the state is not what a cloud writes: %w", err), db.Close())
	}
	return s, nil
}

// unarchiver reads an archive. Everything that it returns as an error of the
// archive is Invalid.
type unarchiver struct {
	in   *bufio.Reader
	sum  hash.Hash
	left int64 // bytes that may still come

	unsummed []byte // read one by one, and not in sum yet

	head   ArchiveHead
	bucket []byte // the one that keys go to
	key    []byte // the last of it
	spare  []byte // for the next
}

func newUnarchiver(r io.Reader) (*unarchiver, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "this is no exported state: %w", err)
	}
	u := &unarchiver{in: bufio.NewReaderSize(z, 64<<10), sum: sha256.New(), left: maxArchive}
	line, err := u.in.ReadSlice('\n')
	if err != nil || json.Unmarshal(line, &u.head) != nil || u.head.Format != archiveFormat {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "this is no exported state: it does not begin with what it is")
	}
	u.sum.Write(line)
	if h := u.head; h.Version != archiveVersion || h.Schema != schema {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "the state has version %d and schema %.20q; this program reads version %d and schema %q", h.Version, h.Schema, archiveVersion, schema)
	}
	return u, nil
}

// some puts what comes next into tx, and reports whether there is more.
func (u *unarchiver) some(tx *bolt.Tx) (more bool, err error) {
	for stop := u.left - archiveBatch; u.left > stop; {
		kind, err := u.ReadByte()
		if err != nil {
			return false, err
		}
		switch kind {
		case recordBucket:
			err = u.nextBucket(tx)
		case recordKey:
			err = u.nextKey(tx)
		case recordEnd:
			return false, u.end()
		default:
			err = damagedState("it has a record of kind %d", kind)
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

func (u *unarchiver) nextBucket(tx *bolt.Tx) error {
	name, err := u.bytes(nil, 255)
	if err != nil {
		return err
	}
	seq, err := binary.ReadUvarint(u)
	if err != nil {
		return cutOff(err)
	}
	if bytes.Compare(name, u.bucket) <= 0 || !known(string(name)) {
		return damagedState("bucket %.40q does not belong there", name)
	}
	u.bucket, u.key = name, nil
	b, err := tx.CreateBucket(name)
	if err != nil {
		return err
	}
	return b.SetSequence(seq)
}

// known reports whether a store has buckets of that name.
func known(name string) bool {
	switch name {
	case string(bucketMeta), string(bucketJournal), string(bucketDue), string(bucketUsage):
		return true
	}
	family, rest, _ := strings.Cut(name, "/")
	switch family {
	case "object", "index", "pool", "free", "held", "note":
		return rest != ""
	}
	return false
}

func (u *unarchiver) nextKey(tx *bolt.Tx) error {
	key, err := u.bytes(u.spare, bolt.MaxKeySize)
	if err != nil {
		return err
	}
	value, err := u.bytes(nil, maxArchiveValue) // the transaction keeps it
	if err != nil {
		return err
	}
	if u.bucket == nil || bytes.Compare(key, u.key) <= 0 {
		return damagedState("key %.40q does not belong there", key)
	}
	u.spare, u.key = u.key, key // Put copies it
	b := tx.Bucket(u.bucket)
	b.FillPercent = 0.95 // keys come in order
	return b.Put(key, value)
}

// end checks that what was read is what was written, and that nothing follows.
func (u *unarchiver) end() error {
	u.sum.Write(u.unsummed)
	want := u.sum.Sum(nil)
	have := make([]byte, len(want))
	if _, err := io.ReadFull(u.in, have); err != nil {
		return cutOff(err)
	}
	if !bytes.Equal(have, want) {
		return damagedState("its content does not match its SHA-256")
	}
	if _, err := u.in.ReadByte(); !errors.Is(err, io.EOF) { // reads gzip's own checksum, too
		return damagedState("something follows its end")
	}
	return nil
}

// ReadByte makes u an io.ByteReader, for varints.
func (u *unarchiver) ReadByte() (byte, error) {
	if err := u.take(1); err != nil {
		return 0, err
	}
	b, err := u.in.ReadByte()
	if err != nil {
		return 0, cutOff(err)
	}
	u.unsummed = append(u.unsummed, b)
	return b, nil
}

// bytes reads a length and as many bytes, into what buf has room for.
func (u *unarchiver) bytes(buf []byte, most uint64) ([]byte, error) {
	n, err := binary.ReadUvarint(u)
	if err != nil {
		return nil, cutOff(err)
	}
	if n > most {
		return nil, damagedState("%d bytes are in one place; at most %d belong there", n, most)
	}
	if err := u.take(int64(n)); err != nil {
		return nil, err
	}
	if uint64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(u.in, buf); err != nil {
		return nil, cutOff(err)
	}
	u.sum.Write(u.unsummed)
	u.unsummed = u.unsummed[:0]
	u.sum.Write(buf)
	return buf, nil
}

func (u *unarchiver) take(n int64) error {
	if u.left -= n; u.left < 0 {
		return cloudsim.Errorf(cloudsim.Invalid, "the state is larger than %d bytes, unpacked", int64(maxArchive))
	}
	return nil
}

func damagedState(format string, args ...any) error {
	return cloudsim.Errorf(cloudsim.Invalid, "the state is damaged: "+format, args...)
}

// cutOff is err of a read in the middle of an archive.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return cloudsim.Errorf(cloudsim.Invalid, "the state is cut off or damaged: %w", err)
}

// checkShape reports numbers that have another length than this package reads,
// and work that it cannot. Tables and the journal have their own checks.
func (t *Tx) checkShape() error {
	long := func(name []byte, key, value int) error { // 0 is any length
		b := t.read(name)
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			if key > 0 && len(k) != key || value > 0 && len(v) != value {
				return fmt.Errorf("%s has a number of %d and %d bytes", name, len(k), len(v))
			}
			return nil
		})
	}
	meta := t.read(bucketMeta)
	if meta == nil || string(meta.Get(keySchema)) != schema {
		return errors.New("it has no schema")
	}
	for _, k := range [][]byte{keyFloor, keyEpoch} {
		if v := meta.Get(k); v != nil && len(v) != 8 {
			return fmt.Errorf("%s has %d bytes", k, len(v))
		}
	}
	if err := errors.Join(long(bucketJournal, 8, 0), long(bucketUsage, 0, 8), long(bucketDue, 16, 0)); err != nil {
		return err
	}
	if b := t.read(bucketDue); b != nil {
		if err := b.ForEach(func(_, v []byte) error { return json.Unmarshal(v, new(Work)) }); err != nil {
			return fmt.Errorf("due work: %w", err)
		}
	}
	return t.tx.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if strings.HasPrefix(string(name), "free/") || strings.HasPrefix(string(name), "held/") {
			return long(name, 8, 0)
		}
		return nil
	})
}
