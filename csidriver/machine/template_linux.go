package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// Templates remember what mkfs.ext4 wrote to empty disks, by their size: the next
// empty disk of a size gets the same, and an identity of its own. That is what
// mkfs.ext4 would have made, in a fifth of the time: most of mkfs is to start it.
// The zero Templates has none yet; a nil one keeps none, and mkfs makes every
// filesystem.
//
// The price is that the options of mke2fs.conf(5) are those of the first disk of a
// size for as long as the process runs, and that the times of the root folder are
// those of that disk. XFS has its identity in every block, and is made by mkfs.
type Templates struct {
	mu    sync.Mutex
	known []*template // the one that was used last is the last
}

// How much is remembered: a template of 10 GiB has some 130 KB, one of 100 GiB
// some 940 KB. Larger disks are left to mkfs.
const (
	mostTemplates = 8
	mostTemplate  = 1 << 20
)

// template is a filesystem as mkfs.ext4 left it.
type template struct {
	size   int64 // of the device
	blocks []templateBlock
}

// templateBlock is a block that holds something, without the zeros at its end.
type templateBlock struct {
	at   int64
	data []byte
}

const ext4Block = 4096

// of is the template of a size, if there is one.
func (t *Templates) of(size int64) *template {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.find(size)
}

// find is of, for who has the lock.
func (t *Templates) find(size int64) *template {
	for i, m := range t.known {
		if m.size == size {
			t.known = append(append(t.known[:i:i], t.known[i+1:]...), m)
			return m
		}
	}
	return nil
}

// learn remembers what mkfs.ext4 just wrote to f, which was empty before, unless it
// is a filesystem that a copy of would not be right.
func (t *Templates) learn(f *os.File, size int64) error {
	if t == nil {
		return nil
	}
	m, err := readTemplate(f, size)
	if err != nil || m == nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.find(size) != nil { // another disk of that size was as fast
		return nil
	}
	if t.known = append(t.known, m); len(t.known) > mostTemplates {
		t.known = append([]*template(nil), t.known[1:]...)
	}
	return nil
}

// readTemplate is nil if f has no filesystem that can be copied, or a large one.
func readTemplate(f *os.File, size int64) (*template, error) {
	m, kept, block := &template{size: size}, 0, make([]byte, ext4Block)
	for at := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return nil, err
		}
		if at, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE); err != nil {
			return nil, err
		}
		for ; from < at; from += ext4Block {
			if _, err := f.ReadAt(block, from); err != nil {
				return nil, err
			}
			b := block
			if from > 0 { // of the superblock also zeros mean something: its checksum is the last
				b = bytes.TrimRight(block, "\x00")
			}
			if kept += len(b); kept > mostTemplate {
				return nil, nil
			}
			m.blocks = append(m.blocks, templateBlock{from, bytes.Clone(b)})
		}
	}
	if !m.canBeCopied() {
		return nil, nil
	}
	return m, nil
}

// canBeCopied reports whether it begins with the superblock of a filesystem that
// can be.
func (m *template) canBeCopied() bool {
	return len(m.blocks) > 0 && m.blocks[0].at == 0 && superblock(m.blocks[0].data[superAt:]).canBeCopied()
}

// write makes the filesystem on a device that is all zeros, so that it is there
// also after a power cut. The first block is the last that is written: where half
// of it is, there is none.
func (m *template) write(device string) error {
	dev, err := os.OpenFile(device, os.O_WRONLY|unix.O_EXCL, 0) // as mkfs does: not while it is mounted
	if err != nil {
		return err
	}
	return errors.Join(m.writeTo(dev), dev.Close())
}

func (m *template) writeTo(dev *os.File) error {
	own := newIdentity()
	buf, begin, end := make([]byte, 256<<10), int64(0), 0 // what is to be written: blocks side by side
	flush := func() error {
		_, err := dev.WriteAt(buf[:end], begin)
		clear(buf[:end])
		end = 0
		return err
	}
	for _, b := range append(m.blocks[1:len(m.blocks):len(m.blocks)], m.blocks[0]) {
		if b.at != begin+int64(end) || end == len(buf) {
			if err := flush(); err != nil {
				return err
			}
			begin = b.at
		}
		block := buf[end : end+ext4Block]
		copy(block, b.data)
		if s := m.superblockIn(b.at, block); s != nil {
			s.become(own)
		}
		end += ext4Block
	}
	return errors.Join(flush(), dev.Sync())
}

// superblockIn is the superblock in a block, if there is one: the first, or a copy
// at the beginning of a group.
func (m *template) superblockIn(at int64, block []byte) superblock {
	if at == 0 {
		return superblock(block[superAt:])
	}
	s, first := superblock(block), superblock(m.blocks[0].data[superAt:])
	group := int64(first.u32(superBlocksPerGroup)) * ext4Block
	if at%group != 0 || s.u16(superMagic) != ext4Magic || int64(s.u16(superGroup)) != at/group {
		return nil
	}
	return s
}

// superblock is one of ext4, as fs/ext4/ext4.h of Linux has it.
type superblock []byte

const (
	superAt   = 1024 // where it is in the first block
	ext4Magic = 0xEF53

	superBlocks         = 0x4
	superBlockSize      = 0x18
	superBlocksPerGroup = 0x20
	superWritten        = 0x30
	superMagic          = 0x38
	superChecked        = 0x40
	superGroup          = 0x5A
	superIncompatible   = 0x60
	superUUID           = 0x68
	superJournalDevice  = 0xE4
	superHashSeed       = 0xEC
	superMade           = 0x108
	superBlocksHigh     = 0x150
	superChecksumKind   = 0x175
	superChecksumSeed   = 0x270
	superWrittenHigh    = 0x274
	superMadeHigh       = 0x276
	superCheckedHigh    = 0x277
	superChecksum       = 0x3FC

	checksumSeed = 0x2000 // a feature

	// copiable are the incompatible features of which a copy is right: filetype,
	// extents, 64bit, flex_bg, the seed, large_dir and inline_data. Others, such as
	// multiple-mount protection, may have the identity elsewhere too.
	copiable = 0x2 | 0x40 | 0x80 | 0x200 | checksumSeed | 0x4000 | 0x8000
)

func (s superblock) u16(at int) uint16 { return binary.LittleEndian.Uint16(s[at:]) }
func (s superblock) u32(at int) uint32 { return binary.LittleEndian.Uint32(s[at:]) }

// canBeCopied reports whether the identity is in the superblocks alone, or can be:
// with metadata_csum, which has CRC-32C as its kind of checksum, those of all else
// are of a seed that may be kept there (metadata_csum_seed).
func (s superblock) canBeCopied() bool {
	return s.u16(superMagic) == ext4Magic && s.u32(superBlockSize) == 2 && s[superChecksumKind] == 1 &&
		s.u32(superIncompatible)&^copiable == 0 && s.u32(superJournalDevice) == 0
}

// identity is what no two filesystems share.
type identity struct {
	uuid, hashSeed uuid.UUID
	made           int64
}

func newIdentity() identity {
	return identity{uuid: uuid.New(), hashSeed: uuid.New(), made: time.Now().Unix()}
}

// become gives the superblock an identity. The seed of the checksums stays, as
// tune2fs does it for a filesystem that is given another UUID.
func (s superblock) become(own identity) {
	if s.u32(superIncompatible)&checksumSeed == 0 {
		binary.LittleEndian.PutUint32(s[superChecksumSeed:], ext4Checksum(s[superUUID:superUUID+16]))
		binary.LittleEndian.PutUint32(s[superIncompatible:], s.u32(superIncompatible)|checksumSeed)
	}
	copy(s[superUUID:], own.uuid[:])
	copy(s[superHashSeed:], own.hashSeed[:])
	for low, high := range map[int]int{superWritten: superWrittenHigh, superChecked: superCheckedHigh, superMade: superMadeHigh} {
		binary.LittleEndian.PutUint32(s[low:], uint32(own.made))
		s[high] = byte(own.made >> 32)
	}
	binary.LittleEndian.PutUint32(s[superChecksum:], ext4Checksum(s[:superChecksum]))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ext4Checksum is CRC-32C as ext4 has it: not inverted at the end.
func ext4Checksum(b []byte) uint32 { return ^crc32.Checksum(b, castagnoli) }
