// Package statefile reads and writes the file of a saved state. The file contains the records of
// the store and the data of disks. The reader accepts files of untrusted users. It uses little
// memory and does not interpret the records. The file contains no pages of the database bbolt,
// because bbolt does not check pages, and a malicious page could crash the process.
//
// A file is a gzip stream. The first line is the Head in JSON. One or two sections follow: the
// records of the store, and the data of disks. A section has this format:
//
//	for each bucket: kindBucket, name, sequence;
//	for each key of the bucket: kindKey, key, value;
//	kindEnd.
//
// Buckets and keys are sorted by their bytes. Numbers are unsigned varints. The length of a name,
// key or value comes before its bytes. Each section consists of one or more gzip members. The
// checksums of gzip detect damage.
package statefile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const (
	format  = "cloudsim-state"
	version = 3

	kindEnd    = 0
	kindBucket = 1
	kindKey    = 2

	// MaxValue is the maximum size of a value, in bytes.
	MaxValue = 4 << 20
	maxName  = 32 << 10 // largest name of a bucket, or largest key, in bytes
)

// These constants limit the uncompressed content of a file. If the reader has read n compressed
// bytes, the limit is slack + ratio * n bytes. Therefore a small upload cannot fill the disk.
//
// Usual states stay below the limit. For the records of 10,000 instances, the compression ratio of
// gzip is about 10. For a journal with many copies of a 10 KiB object, it is about 100. A large
// file of zeros exceeds the limit, because its compression ratio is about 1000.
const (
	slack = 16 << 20
	ratio = 200
)

// Head is the header of a saved state's file.
type Head struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	Revision uint64 `json:"revision"`           // revision of the journal
	DiskData bool   `json:"diskData,omitempty"` // the file has a second section
}

// Writer writes a file.
type Writer struct {
	file  *writeCounter
	zip   *gzip.Writer
	buf   *bufio.Writer
	rec   []byte
	plain int64 // uncompressed bytes of the file
	poor  bool  // write has begun a gzip member with little compression
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{file: &writeCounter{Writer: w}} }

type writeCounter struct {
	io.Writer
	n int64
}

func (c *writeCounter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n += int64(n)
	return n, err
}

// Begin writes h and begins the first section.
func (w *Writer) Begin(h Head) error {
	h.Format, h.Version = format, version
	w.section(gzip.BestSpeed)
	return json.NewEncoder(w.buf).Encode(h) // Encode also ends the line
}

// BeginData begins the section with the data of disks. This section is not
// compressed.
func (w *Writer) BeginData() { w.section(gzip.NoCompression) }

func (w *Writer) section(level int) {
	w.zip, _ = gzip.NewWriterLevel(w.file, level) // the level is valid
	w.buf = bufio.NewWriterSize(w.zip, 64<<10)
}

// Bucket begins a bucket.
func (w *Writer) Bucket(name []byte, sequence uint64) error {
	w.rec = appendBytes(append(w.rec[:0], kindBucket), name)
	return w.write(binary.AppendUvarint(w.rec, sequence))
}

// Put writes a key and its value into the current bucket. It returns Conflict if the value has more
// than MaxValue bytes.
func (w *Writer) Put(key, value []byte) error {
	if len(value) > MaxValue {
		return cloudsim.Errorf(cloudsim.Conflict, "the record %.80q has %d bytes, and a saved state can contain at most %d bytes for each record", key, len(value), MaxValue)
	}
	w.rec = appendBytes(appendBytes(append(w.rec[:0], kindKey), key), value)
	return w.write(w.rec)
}

// write writes a part of the section. The reader limits the uncompressed content by the size of the
// file (see slack and ratio). If the content exceeds half of this limit, write begins a new gzip
// member with little compression for the rest of the section.
func (w *Writer) write(p []byte) error {
	if !w.poor && w.plain > slack/2+ratio/2*w.file.n {
		if err := errors.Join(w.buf.Flush(), w.zip.Close()); err != nil {
			return err
		}
		w.section(gzip.HuffmanOnly)
		w.poor = true
	}
	n, err := w.buf.Write(p)
	w.plain += int64(n)
	return err
}

// End ends the current section.
func (w *Writer) End() error {
	return errors.Join(w.buf.WriteByte(kindEnd), w.buf.Flush(), w.zip.Close())
}

func appendBytes(to, b []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}

// Reader reads a file. All errors of its methods are Invalid, except io.EOF. Even an error
// of the underlying io.Reader becomes Invalid.
type Reader struct {
	Head Head

	in          *bufio.Reader
	bucket, key []byte // last bucket and key of the section
}

// NewReader reads the head of a file. It returns Invalid if r is not a saved
// state of this version.
func NewReader(r io.Reader) (*Reader, error) {
	sent := &counter{Reader: r}
	zip, err := gzip.NewReader(bufio.NewReaderSize(sent, 64<<10))
	if err != nil {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "the file is damaged, or is not a saved state of cloudsim: %w", err)
	}
	s := &Reader{in: bufio.NewReaderSize(&limitedReader{zip: zip, sent: sent}, 64<<10)}
	line, err := s.in.ReadSlice('\n')
	if err != nil || json.Unmarshal(line, &s.Head) != nil || s.Head.Format != format {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "the file is damaged, or is not a saved state of cloudsim: the header is missing")
	}
	if s.Head.Version != version {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "the state has format version %d; this program reads version %d: use this program to start the cloud from which the state comes, with the same data directory, and save the state again", s.Head.Version, version)
	}
	return s, nil
}

// Record is a key of a bucket with its value. If Key is nil, Record is the start of a bucket.
type Record struct {
	Bucket     []byte
	Sequence   uint64 // only at the start of a bucket
	Key, Value []byte
}

// Next returns the next record. It returns io.EOF at the end of the section.
func (r *Reader) Next() (rec Record, err error) {
	kind, err := r.in.ReadByte()
	switch {
	case err != nil:
		return rec, cutOff(err)
	case kind == kindEnd:
		r.bucket, r.key = nil, nil
		return rec, io.EOF
	case kind == kindBucket:
		if rec.Bucket, err = r.bytes(maxName); err != nil {
			return rec, err
		}
		if rec.Sequence, err = binary.ReadUvarint(r.in); err != nil {
			return rec, cutOff(err)
		}
		if bytes.Compare(rec.Bucket, r.bucket) <= 0 {
			return rec, Damaged("bucket %.40q is out of order", rec.Bucket)
		}
		r.bucket, r.key = rec.Bucket, nil
		return rec, nil
	case kind == kindKey && r.bucket != nil:
		if rec.Key, err = r.bytes(maxName); err != nil {
			return rec, err
		}
		if rec.Value, err = r.bytes(MaxValue); err != nil {
			return rec, err
		}
		if bytes.Compare(rec.Key, r.key) <= 0 {
			return rec, Damaged("key %.40q of bucket %.40q is out of order", rec.Key, r.bucket)
		}
		rec.Bucket, r.key = r.bucket, rec.Key
		return rec, nil
	}
	return rec, Damaged("a record has the unknown kind %d", kind)
}

// EndSection returns an error if the section that ended is damaged. If expectSection is true,
// EndSection also returns an error if no section follows. If expectSection is false, EndSection
// also returns an error if any data follows.
func (r *Reader) EndSection(expectSection bool) error {
	switch _, err := r.in.Peek(1); { // makes gzip compare the checksum
	case err == nil && !expectSection:
		return Damaged("data follows the end of the state")
	case err != nil && (expectSection || !errors.Is(err, io.EOF)):
		return cutOff(err)
	}
	return nil
}

// bytes() reads a length n, and then n bytes. It returns an error if n exceeds the parameter most.
// The caller owns the result.
func (r *Reader) bytes(most uint64) ([]byte, error) {
	n, err := binary.ReadUvarint(r.in)
	if err != nil {
		return nil, cutOff(err)
	}
	if n > most {
		return nil, Damaged("a name, key or value has %d bytes; the limit is %d", n, most)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.in, b); err != nil {
		return nil, cutOff(err)
	}
	return b, nil
}

// Damaged returns the error for a file with an invalid record.
func Damaged(format string, args ...any) error {
	return cloudsim.Errorf(cloudsim.Invalid, "the state is damaged: "+format, args...)
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return cloudsim.Errorf(cloudsim.Invalid, "the state is cut off or damaged: %w", err)
}

// counter counts the compressed bytes that the Reader has read.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// limitedReader reads the uncompressed content of a file. It returns an error if the content
// exceeds the limit. See the constants named slack and ratio for the limit.
type limitedReader struct {
	zip  *gzip.Reader
	sent *counter
	n    int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.zip.Read(p)
	if l.n += int64(n); l.n > slack+ratio*l.sent.n {
		return 0, cloudsim.Errorf(cloudsim.Invalid, "the state expands to more than %d times its size", ratio)
	}
	return n, err
}
