package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"os"
	"strconv"
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// The redo log is a file beside bbolt's, with which a commit is durable after one
// fdatasync of one stretch. bbolt alone needs two, of some fifteen pages all over
// its file; etcd has a log before it for the same reason.
//
//	state    header in the log     bbolt's file
//	plain    plain, or no log      whole by itself: each commit syncs it
//	logged   the base              not synced: after a power cut any page that was
//	                               written since the base may be the new or the old one
//
//	plain   --checkpoint-->  logged   before a commit that is logged
//	logged  --checkpoint-->  logged   when the log is full, or after a failure
//	logged  --settle------>  plain    before a commit that is too large to log; at the end
//
// The base is bbolt's meta page as of a checkpoint, when all was synced. A reader
// of that time stays open, so that bbolt writes to no page that the base reaches.
// After a power cut the meta page is put back, which makes the file what it was
// at the checkpoint, and what was logged since is done again, by key.
//
// A start after anything but Close does the same. The kernel has what a process
// wrote that was killed, but not what a sync that failed was of, nor what a disk
// was to get that was pulled out. Close leaves no log: who copies the file of a
// cloud that is stopped has all of it.
const (
	redoMagic = "cloudsim redo 1\n"
	redoBlock = 4096          // entries begin at blocks: what is durable is not written to again
	redoFirst = 2 * redoBlock // where the entries begin; before them two headers take turns
	redoSize  = 1 << 20
	redoEntry = 256 << 10 // the most that one commit logs: sixty-four callers at once need half of it
	redoFew   = 16        // commits for which no log is made
	redoHead  = 16        // of an entry: its length, its checksum, and the epoch of its header
)

// redoMap is how much of bbolt's file is mapped. A writer that must map more waits
// for all readers, which is for ever with that of the base: a file half as long
// is written plain. Addresses are all that it costs.
var redoMap int64 = 4 << 30

// mapped is how much bbolt is to map from the beginning; 0 where there is no log.
func mapped() int {
	if strconv.IntSize < 64 || bootID() == "" {
		return 0
	}
	return int(redoMap)
}

// redo is the log of one store. Only who may write to the store uses it. The zero
// redo is none, and all is plain.
type redo struct {
	path  string
	head  redoHeader // of this boot and this file
	db    *bolt.DB
	sync  func() error // of bbolt's file
	pages *os.File     // bbolt's file

	few   int      // how many commits there were before the log
	file  *os.File // nil until the first checkpoint
	plain bool     // the header that is on the disk is plain; or there is none
	base  *bolt.Tx
	at    int64 // where the next entry goes; 0 if there must be a checkpoint first
	buf   []byte
	lost  error // a sync failed, and whether what it was of is on the disk is not to be known
}

// redoHeader says what bbolt's file and the entries are.
type redoHeader struct {
	Epoch    uint64 // of two headers that one counts that has the higher one
	Boot     [36]byte
	File     fileID
	Logged   bool
	PageSize uint32
	Meta     metaPage
}

// metaPage is as much of bbolt's meta page as means something: the number of the
// page, a type, the meta, and its checksum.
type metaPage [80]byte

func (m *metaPage) txid() uint64 { return binary.NativeEndian.Uint64(m[64:]) }

// valid reports whether the meta is whole, as bbolt does.
func (m *metaPage) valid() bool {
	sum := fnv.New64a()
	_, _ = sum.Write(m[16:72])
	return binary.NativeEndian.Uint64(m[72:]) == sum.Sum64()
}

// on is the same meta as page n.
func (m metaPage) on(n uint64) []byte {
	binary.NativeEndian.PutUint64(m[:], n)
	return m[:]
}

// keep makes durable what btx changed and will commit; or it sees to it that the
// commit does that: for what is too much for the log, and where there is none.
func (r *redo) keep(btx *bolt.Tx, c *changes) error {
	if r.lost != nil {
		return r.lost
	}
	if r.few++; r.db == nil || r.file == nil && r.few <= redoFew {
		return nil
	}
	if c.unlogged || len(c.raw) > redoEntry || btx.Size() > redoMap/2 {
		return r.settle()
	}
	if r.at == 0 || r.at+redoHead+int64(len(c.raw)) > redoSize {
		if err := r.checkpoint(); err != nil {
			err = errors.Join(err, r.settle()) // whatever is half of a header by now
			return cmp.Or(r.lost, err)
		}
		if r.base == nil {
			return nil
		}
	}
	at := r.at
	r.at = 0
	r.buf = appendEntry(r.buf[:0], r.head.Epoch, c.raw)
	if err := r.write(r.buf, at); err != nil {
		return err
	}
	r.at = at + int64(len(r.buf))
	return nil
}

// failed says that what was kept last was not committed.
func (r *redo) failed() { r.at = 0 }

// takeBack makes sure that no start does what failed, which somebody is told of. If
// it cannot, the next commit's checkpoint does. What is not for want of room may be
// a sync of bbolt's that failed, and is taken for one: bbolt does not always pass
// on what the kernel said, and after a sync of a meta page its memory and its file
// differ.
func (r *redo) takeBack(failure error) {
	switch {
	case !errors.Is(failure, errPanic) && !forWantOfRoom(failure):
		_ = r.synced(failure)
	case r.base != nil && r.lost == nil:
		_ = r.checkpoint()
	}
}

// forWantOfRoom reports whether a write failed because the disk is full, or the
// file as large as it may be. A sync that says so has lost what was written.
func forWantOfRoom(err error) bool {
	write, ok := errors.AsType[*os.PathError](err)
	return ok && write.Op == "write" && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG))
}

// checkpoint makes bbolt's file as it is the base of what is logged from now on.
// Where no log can be written all stays plain.
func (r *redo) checkpoint() error {
	if r.file == nil && !r.create() {
		return nil
	}
	r.at = 0
	if err := r.synced(r.sync()); err != nil {
		return err
	}
	base, err := r.db.Begin(false)
	if err != nil {
		return err
	}
	h := r.head
	h.Logged, h.PageSize = true, uint32(r.db.Info().PageSize)
	last := uint64(base.ID())
	_, err = r.pages.ReadAt(h.Meta[:], int64(last%2)*int64(h.PageSize))
	if err == nil && (h.Meta.txid() != last || !h.Meta.valid()) {
		err = fmt.Errorf("the meta page of transaction %d is not where it belongs", last)
	}
	if err == nil {
		err = r.putHeader(h)
	}
	if err != nil {
		return errors.Join(err, base.Rollback())
	}
	if r.base != nil {
		err = r.base.Rollback()
	}
	r.base, r.at, r.db.NoSync = base, redoFirst, true
	return err
}

// settle makes bbolt's file whole by itself.
func (r *redo) settle() error {
	if r.lost != nil || r.plain { // the kernel tells of what it lost once: the next sync would succeed
		return r.lost
	}
	r.at = 0
	if err := r.synced(r.sync()); err != nil {
		return err
	}
	if err := r.putHeader(r.head); err != nil {
		return err
	}
	r.plain, r.db.NoSync = true, false
	base := r.base
	if r.base = nil; base == nil {
		return nil
	}
	return base.Rollback()
}

// create makes the file. Its blocks are written at once, so that entries need
// none from the filesystem. If that fails, as on a disk that is full, there is
// no log as long as the store is open.
func (r *redo) create() bool {
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = f.WriteAt(zeros[:redoSize], 0)
	}
	if err == nil {
		err = syncNew(f)
	}
	if err != nil {
		if f != nil {
			_ = f.Close()
			_ = os.Remove(r.path)
		}
		r.db = nil
		return false
	}
	r.file = f
	return true
}

// close settles, and removes the log.
func (r *redo) close() error {
	if r.file == nil {
		return nil
	}
	err := r.lost
	if err == nil {
		err = r.settle()
	}
	r.db.NoSync, r.db = false, nil // for who writes before bbolt's file is closed
	if r.base != nil {             // bbolt's file waits for it
		err = errors.Join(err, r.base.Rollback())
	}
	if err == nil {
		err = os.Remove(r.path)
	}
	return errors.Join(err, r.file.Close())
}

// putHeader writes h as the header that counts. If it fails, the other one does.
func (r *redo) putHeader(h redoHeader) error {
	h.Epoch++
	raw, err := binary.Append([]byte(redoMagic), binary.LittleEndian, h)
	if err != nil {
		return err
	}
	raw = binary.LittleEndian.AppendUint32(raw, checksum(raw))
	r.plain = r.plain && !h.Logged
	if err := r.write(raw, int64(h.Epoch%2)*redoBlock); err != nil {
		return err
	}
	r.head.Epoch = h.Epoch
	return nil
}

func (r *redo) write(b []byte, at int64) error {
	if _, err := r.file.WriteAt(b, at); err != nil {
		return err
	}
	return r.synced(fdatasync(r.file))
}

// synced remembers a sync that failed. The kernel tells of what it could not write
// once, and a second sync would succeed without it; what is in the log and the
// base is not touched any more, for a start when the disk is well.
func (r *redo) synced(err error) error {
	if err != nil && r.lost == nil {
		r.lost = fmt.Errorf("the disk lost what was written to it, and nothing more is written until the cloud is started again, which will tell what was done: %w", err)
	}
	return err
}

// header reads the header that counts; false if there is none.
func (r *redo) header() (last redoHeader, ok bool, err error) {
	raw := make([]byte, len(redoMagic)+binary.Size(last)+4)
	for at := int64(0); at < redoFirst; at += redoBlock {
		switch _, err := r.file.ReadAt(raw, at); {
		case errors.Is(err, io.EOF):
			continue
		case err != nil:
			return last, false, err
		}
		body := raw[:len(raw)-4]
		if string(body[:len(redoMagic)]) != redoMagic || binary.LittleEndian.Uint32(raw[len(body):]) != checksum(body) {
			continue
		}
		var h redoHeader
		if _, err := binary.Decode(body[len(redoMagic):], binary.LittleEndian, &h); err != nil {
			return last, false, err
		}
		if h.Epoch > last.Epoch {
			last, ok = h, true
		}
	}
	return last, ok, nil
}

// errOtherFile is a log that says what became of another file than the one beside it.
var errOtherFile = errors.New("the machine went down while this cloud ran, and the file was moved or copied since, or another was put in its place")

// errPassedOver is a log that would have to be used.
var errPassedOver = errors.New("this system does not tell whether the machine went down since; start the cloud once where it ran, on Linux with /proc, and stop it")

// passedOver fails if there is a log that counts where none can be used.
func (r *redo) passedOver() error {
	f, err := os.Open(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if h, ok, err := (&redo{file: f}).header(); err != nil || !ok || !h.Logged {
		return err
	}
	return fmt.Errorf("%s has commits that the file beside it may lack: %w", r.path, errPassedOver)
}

// recover brings bbolt's file, which it has for itself and bbolt has not opened,
// to the base if it needs that, and returns what is then to be done again.
func (r *redo) recover(f *os.File) (again []changes, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if r.head.File, err = idOf(f); err != nil {
		return nil, err
	}
	copy(r.head.Boot[:], bootID())
	r.plain = true
	if r.file, err = os.OpenFile(r.path, os.O_RDWR, 0); errors.Is(err, os.ErrNotExist) {
		r.file = nil
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	h, ok, err := r.header()
	if err != nil {
		return nil, err
	}
	if !ok { // nothing was logged; it is made anew, because what is in it is of no epoch
		err = errors.Join(r.file.Close(), os.Remove(r.path))
		r.file = nil
		return nil, err
	}
	r.head.Epoch, r.plain = h.Epoch, !h.Logged
	if r.plain {
		return nil, nil
	}
	if info.Size() == 0 { // a new file
		return nil, nil
	}
	if again, err = r.entries(h.Epoch); err != nil {
		return nil, err
	}
	newest, err := newestIn(f, h)
	if err != nil {
		return nil, err
	}
	switch {
	case newest > h.Meta.txid()+uint64(len(again)):
		return nil, nil // a program wrote to it since that knows no log, and synced it
	case h.File == r.head.File && newest >= h.Meta.txid():
	case h.Boot == r.head.Boot:
		return nil, nil // what somebody copied or put there is as the kernel has it
	default:
		return nil, fmt.Errorf("%s does not belong to it: %w; start the cloud once with the file where it was, or, if it is a copy of a cloud that was stopped, remove the log", r.path, errOtherFile)
	}
	for n := range uint64(2) {
		if _, err := f.WriteAt(h.Meta.on(n), int64(n)*int64(h.PageSize)); err != nil {
			return nil, err
		}
	}
	return again, fdatasync(f)
}

// newestIn is the last transaction in bbolt's file f. That of the base was there,
// and each after it has an entry that was on the disk before.
func newestIn(f *os.File, h redoHeader) (newest uint64, err error) {
	for n := range int64(2) {
		var m metaPage
		if _, err := f.ReadAt(m[:], n*int64(h.PageSize)); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if m.valid() {
			newest = max(newest, m.txid())
		}
	}
	return newest, nil
}

// entries reads what was logged in an epoch: up to the first that is not whole,
// because the power was cut. Each was on the disk before the next was begun, so
// one that is whole after it says that the log is damaged.
func (r *redo) entries(epoch uint64) (all []changes, err error) {
	log := make([]byte, redoSize)
	n, err := r.file.ReadAt(log, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	log = log[:n]
	at := redoFirst
	for {
		raw, size := entryAt(log, at, epoch)
		if size == 0 {
			break
		}
		all, at = append(all, changes{raw: raw}), at+size
	}
	for ; at < len(log); at += redoBlock {
		if _, size := entryAt(log, at, epoch); size > 0 {
			return nil, fmt.Errorf("%s is damaged: after %d commits it has one that cannot be read, and then others", r.path, len(all))
		}
	}
	return all, nil
}

// entryAt is the entry that begins at a place in the log, and how much it takes; 0
// if none of the epoch does, or one that is not whole.
func entryAt(log []byte, at int, epoch uint64) (raw []byte, size int) {
	if at+redoHead > len(log) {
		return nil, 0
	}
	head := log[at:]
	n := binary.LittleEndian.Uint32(head)
	if n > redoEntry || redoHead+int(n) > len(head) || binary.LittleEndian.Uint64(head[8:]) != epoch {
		return nil, 0
	}
	end := redoHead + int(n)
	if binary.LittleEndian.Uint32(head[4:]) != checksum(head[8:end]) {
		return nil, 0
	}
	return head[redoHead:end:end], (end + redoBlock - 1) &^ (redoBlock - 1)
}

// redone does all again, and begins to use the log.
func (r *redo) redone(db *bolt.DB, pages *os.File, all []changes) error {
	r.db, r.sync, r.pages = db, db.Sync, pages
	if len(all) > 0 {
		if err := db.Update(func(tx *bolt.Tx) error {
			for _, c := range all {
				if err := c.redo(tx); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return r.settle()
}

// appendEntry appends raw as an entry, up to where a block ends; see entryAt.
func appendEntry(b []byte, epoch uint64, raw []byte) []byte {
	begin := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(raw)))
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, epoch)
	b = append(b, raw...)
	binary.LittleEndian.PutUint32(b[begin+4:], checksum(b[begin+8:]))
	return append(b, zeros[:-(len(b)-begin)&(redoBlock-1)]...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
