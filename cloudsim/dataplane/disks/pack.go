package disks

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// The data of a file is its blocks that are not all zero, in order, each with
// its offset before it, whatever holes the file system keeps. So the same data
// has the same sum on any machine, and zeros are neither sent nor kept. A pack
// is a line of JSON, a cloudsim.StateData, and the data of each of its files.
const (
	block    = cloudsim.StateBlock
	maxList  = 16 << 20 // bytes of the list of a pack
	noReader = "the data is cut off or damaged"
)

var zeros [block]byte

// held is about how much data a file holds, without its holes.
func held(path string) (n int64, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	for at := int64(0); ; {
		begin, end, err := nextData(file, at, info.Size())
		if err != nil || begin >= end {
			return n, err
		}
		n += end - begin
		at = end
	}
}

// eachBlock calls fn with the offset and content of every block of a file that
// is not all zero.
func eachBlock(ctx context.Context, path string, fn func(at int64, data []byte) error) (err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	data := make([]byte, 664*block)
	for at := int64(0); ; {
		begin, end, err := nextData(file, at, info.Size())
		if err != nil || begin >= end {
			return err
		}
		for at = max(at, begin/block*block); at < end; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := file.ReadAt(data[:min(int64(len(data)), (end-at+block-1)/block*block)], at)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			clear(data[n:])
			for part := 0; part < n; part, at = part+block, at+block {
				if one := data[part : part+block]; !bytes.Equal(one, zeros[:]) {
					if err := fn(at, one); err != nil {
						return err
					}
				}
			}
		}
	}
}

// sum is the SHA-256 of blocks as a pack has them.
type sum struct {
	hash.Hash
	blocks int64
}

func newSum() *sum { return &sum{Hash: sha256.New()} }

func (s *sum) add(at int64, data []byte) error {
	s.blocks++
	_, _ = s.Write(binary.BigEndian.AppendUint64(nil, uint64(at))) // a hash takes everything
	_, _ = s.Write(data)
	return nil
}

func (s *sum) file(id string, size int64) cloudsim.StateFile {
	return cloudsim.StateFile{ID: id, SizeBytes: size, Blocks: s.blocks, SHA256: hex.EncodeToString(s.Sum(nil))}
}

// describe reads all of a file, and makes it as long as it is to be.
func describe(ctx context.Context, path string, size int64) (cloudsim.StateFile, error) {
	s := newSum()
	err := eachBlock(ctx, path, s.add)
	id := filepath.Base(path)
	return s.file(id[:len(id)-len(suffix)], size), err
}

// Pack writes what a folder has that Save or Unpack made.
func (f *Files) Pack(ctx context.Context, from string, w io.Writer) error {
	list, err := readList(filepath.Join(from, listName))
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 64*block)
	if err := json.NewEncoder(out).Encode(list); err != nil { // ends the line
		return err
	}
	for _, file := range list.Files {
		s := newSum()
		if err := eachBlock(ctx, filepath.Join(from, file.ID+suffix), func(at int64, data []byte) error {
			_, err1 := out.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
			_, err2 := out.Write(data)
			return errors.Join(err1, err2, s.add(at, data))
		}); err != nil {
			return err
		}
		if s.file(file.ID, file.SizeBytes) != file {
			return cloudsim.Errorf(cloudsim.Invalid, "the state is damaged: the data of %s does not match its SHA-256", file.ID)
		}
	}
	return out.Flush()
}

// Unpack makes a folder to of a pack, to its end. One that is damaged, or was
// made to do damage, is Invalid; what remains is the caller's to remove.
func (f *Files) Unpack(ctx context.Context, r io.Reader, to string) error {
	in := bufio.NewReaderSize(r, 64*block)
	line, err := readLine(in, maxList)
	if err != nil {
		return err
	}
	var list cloudsim.StateData
	if err := json.Unmarshal(line, &list); err != nil {
		return cloudsim.Errorf(cloudsim.Invalid, "%s: %w", noReader, err)
	}
	if err := list.Validate(); err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, file := range list.Files {
		if err := unpackFile(ctx, in, filepath.Join(to, file.ID+suffix), file); err != nil {
			return err
		}
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return cloudsim.Errorf(cloudsim.Invalid, "the data is damaged: something follows its end")
	}
	return writeList(filepath.Join(to, listName), list)
}

// readLine reads a line of at most so many bytes.
func readLine(in *bufio.Reader, most int) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, cloudsim.Errorf(cloudsim.Invalid, "%s: %w", noReader, err)
		case len(line) > most:
			return nil, cloudsim.Errorf(cloudsim.Invalid, "%s: its list is too long", noReader)
		}
	}
}

func unpackFile(ctx context.Context, in io.Reader, path string, want cloudsim.StateFile) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Truncate(want.SizeBytes); err != nil {
		return err
	}
	s, before := newSum(), int64(-1)
	record := make([]byte, 8+block)
	for range want.Blocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := io.ReadFull(in, record); err != nil {
			return cloudsim.Errorf(cloudsim.Invalid, "%s: %w", noReader, err)
		}
		at, data := int64(binary.BigEndian.Uint64(record)), record[8:]
		if at <= before || at%block != 0 || at > want.SizeBytes-block || bytes.Equal(data, zeros[:]) {
			return cloudsim.Errorf(cloudsim.Invalid, "the data is damaged: %s has no block at %d", want.ID, at)
		}
		before = at
		if _, err := file.WriteAt(data, at); err != nil {
			return err
		}
		_ = s.add(at, data) // a hash takes everything
	}
	if s.file(want.ID, want.SizeBytes) != want {
		return cloudsim.Errorf(cloudsim.Invalid, "the data of %s does not match its SHA-256", want.ID)
	}
	return errors.Join(file.Chmod(0o400), file.Sync())
}
