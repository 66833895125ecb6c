// Package store keeps a cloud in one bbolt file: tables of resources, the
// journal of events, the list of due work, and pools of numbers.
//
// The store writes an object and its event in one transaction, so events are as durable as
// objects. A failed transaction has no events. After the commit the store notifies its readers, but
// the notification contains no data. Each reader reads the journal from its own position, so all
// readers see the events in the same order.
//
// Concurrent writers share a commit. One of these writers is the leader: it
// runs the functions of all waiting writers, in the order of their calls, in
// one bbolt transaction. The cost is that a function may run more than once
// (see Update). Also, a slow function delays the other functions in its batch.
//
// No other package uses bbolt.
package store

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// schema is the version of the file's contents. Open refuses a file with
// another version.
const schema = "1"

// maxBatch is the maximum number of writers that share a commit. It limits the
// time that the last of these writers waits.
const maxBatch = 512

// lockTimeout limits the time that Open waits while another process locks the file. After this time
// Open returns an error.
const lockTimeout = 200 * time.Millisecond

// Store is the open file of a cloud. Open returns a Store.
type Store struct {
	// Now returns the time of the machine's clock. Each transaction calls Now once. A caller may
	// replace Now, but only before the first transaction of the store. The Clock in the database
	// file converts the machine's time to the time that transactions see.
	Now func() time.Time

	db     *bolt.DB
	page   int64                   // size of a page in bytes; only Open reads it from bbolt, because bbolt's Info must not run during a commit
	ahead  preallocation           // only the leader of a batch uses this field
	failed atomic.Pointer[failure] // nil until a commit fails permanently

	writers sync.Mutex
	queue   []*write
	leading bool

	changedMu sync.Mutex
	changed   chan struct{}
}

// write is one waiting call of Update.
type write struct {
	requestID string
	fn        func(*Tx) error
	err       error
	wake      chan bool // true: lead the next batch; false: err is the result
}

// ErrReadOnly reports that a commit failed permanently. The errors of this commit and of all later
// commits wrap ErrReadOnly. Only the next Open shows whether the disk contains the transaction of
// the failed commit.
var ErrReadOnly = errors.New("the store is read-only until restart")

// failure is the error of a failed commit. After this error the store makes no
// more commits until the next Open.
type failure struct {
	err error
	// isVisible is true if bbolt would show the failed transaction to readers. In this case the
	// store also refuses reads. The disk may or may not contain this transaction.
	isVisible bool
}

// Open opens the file at path, and creates it if it does not exist. It returns an error if another
// process has the file open. An earlier version of cloudsim may have left a redo log. If
// this log may contain commits that the file lacks, Open also returns an error.
func Open(path string) (*Store, error) {
	if err := checkRedoLog(path); err != nil {
		return nil, err
	}
	db, err := open(path)
	var errno syscall.Errno
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("%s is in use by another cloud: stop that cloud, or choose another data directory", path)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%s cannot be opened for writing: %w", path, err)
	case errors.As(err, &errno):
		return nil, fmt.Errorf("open %s: %w", path, err)
	case err != nil:
		return nil, damaged(path, err)
	}
	s := &Store{Now: time.Now, db: db, page: int64(db.Info().PageSize), changed: make(chan struct{})}
	if err := removeRedoLog(path); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if s.ahead.file, err = os.OpenFile(path, os.O_WRONLY, 0); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := s.ensureSchema(path); err != nil {
		if errors.Is(err, errPanic) {
			err = damaged(path, err)
		}
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func damaged(path string, err error) error {
	return fmt.Errorf("open %s: the file is damaged or not a cloud's database: %w; the file is unchanged: restore a backup, or move the file away to start with an empty cloud", path, err)
}

// errPanic wraps the value of a panic.
var errPanic = errors.New("panic in a transaction")

// recoverTo converts a panic to an error in *err. Call recoverTo with defer.
// Without recoverTo, one request could end the process, or leave the file
// locked. The panic may be a defect of this program, or the reaction of bbolt
// to a damaged page (see panicOnFault).
func recoverTo(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", errPanic, p)
	}
}

// panicOnFault converts a memory fault of this goroutine to a panic. Without panicOnFault, a memory
// fault ends the process. If bbolt uses an address in a damaged page, it may read outside of the
// mapped file and so cause a memory fault.
//
// Call recoverTo and the returned function with defer. recoverTo converts the panic to an error.
// The returned function restores the previous setting.
func panicOnFault() (before func()) {
	was := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(was) }
}

// open opens bbolt's file, and locks the file so that no other process can open it.
func open(path string) (db *bolt.DB, err error) {
	defer panicOnFault()()
	defer recoverTo(&err)
	return bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType})
}

// ensureSchema writes the schema into a new file. It returns an error if the
// file has another schema.
func (s *Store) ensureSchema(path string) (err error) {
	defer panicOnFault()()
	defer recoverTo(&err)
	var have string
	if err := s.db.View(func(tx *bolt.Tx) error {
		if b := tx.Bucket(bucketMeta); b != nil {
			have = string(b.Get(keySchema))
		}
		return nil
	}); err != nil || have == schema {
		return err
	}
	if have != "" {
		return fmt.Errorf("open %s: the file has schema %.20q and this version of allinone reads schema %s: start the version that wrote the file, "+
			"or move the file away to start with an empty cloud", path, have, schema)
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucketMeta)
		if err != nil {
			return err
		}
		return b.Put(keySchema, []byte(schema))
	})
}

// Probe returns an error if the store cannot commit. It commits an empty transaction.
// This commit syncs the file in the same way as a commit with changes.
func (s *Store) Probe() error {
	return s.Update("", func(tx *Tx) error { tx.dirty = true; return nil })
}

// Close waits for running transactions and closes the file.
func (s *Store) Close() error {
	err := s.db.Close()
	if s.ahead.file == nil { // a store of Unarchive preallocates nothing
		return err
	}
	return errors.Join(err, s.ahead.file.Close())
}

// Tx is a transaction. Do not use a Tx after the function that received it has returned.
type Tx struct {
	// Now is the time of all changes in the transaction, in UTC. Only SetClock changes it.
	Now time.Time
	// Caller is the name of the caller that causes changes, and Cause is the reason, for example
	// the id of an API operation. Each event contains the values that these fields have when the
	// transaction writes the event.
	Caller, Cause string
	// Machine is the time of the transaction on the machine's clock.
	Machine time.Time

	tx        *bolt.Tx
	requestID string
	dirty     bool
	// traces contains the trace (index entries, quota uses and event) of each resource that Put has
	// stored in this transaction. The keys consist of kind and id. With the trace, a second Put of
	// a resource does not need to decode the stored value.
	traces map[string]trace
}

func (s *Store) tx(btx *bolt.Tx, requestID string) *Tx {
	t := &Tx{Machine: s.Now().UTC().Round(0), tx: btx, requestID: requestID}
	if btx.Writable() {
		t.traces = map[string]trace{}
	}
	t.Now = t.Clock().At(t.Machine)
	return t
}

// View runs fn in a transaction that reads the current contents. If fn panics, View returns an
// error. If a commit has failed permanently, and bbolt would show its transaction to readers, View
// returns Unavailable.
func (s *Store) View(fn func(*Tx) error) (err error) {
	if f := s.failed.Load(); f != nil && f.isVisible {
		return cloudsim.Errorf(cloudsim.Unavailable, "the cloud cannot read its file: %w", f.err)
	}
	defer panicOnFault()()
	defer recoverTo(&err)
	return s.db.View(func(btx *bolt.Tx) error { return fn(s.tx(btx, "")) })
}

// Update runs fn in a transaction. If Update returns nil, the changes are on the disk. If fn
// returns an error or panics, Update discards the changes and returns an error. If the commit
// fails, Update returns Unavailable. The events of the transaction contain requestID.
//
// fn runs again if another function of the same batch writes and then fails. Therefore fn may
// change only the Tx, and variables that get a new value in every run of fn. fn must not call
// Update or View, and must not block.
func (s *Store) Update(requestID string, fn func(*Tx) error) error {
	w := &write{requestID: requestID, fn: fn, wake: make(chan bool, 1)}
	s.writers.Lock()
	s.queue = append(s.queue, w)
	lead := !s.leading
	s.leading = true
	s.writers.Unlock()
	if !lead && !<-w.wake {
		return w.err
	}
	s.commitBatch()
	return w.err
}

// commitBatch runs the functions of the waiting writers in one transaction, and commits it. The
// caller is one of these writers. After the commit, commitBatch wakes the other writers of the
// batch. If writers remain in the queue, the first of them leads the next batch.
func (s *Store) commitBatch() {
	s.writers.Lock()
	batch := s.queue
	if len(batch) > maxBatch {
		batch = batch[:maxBatch]
	}
	s.queue = append([]*write(nil), s.queue[len(batch):]...)
	s.writers.Unlock()

	s.commit(batch)

	for _, w := range batch[1:] { // the leader is batch[0]
		w.wake <- false
	}
	s.writers.Lock()
	s.leading = len(s.queue) > 0
	if s.leading {
		s.queue[0].wake <- true
	}
	s.writers.Unlock()
}

// commit runs the functions of the batch in one transaction. If a function wrote and then failed,
// commit discards the transaction, and runs the other functions again in a new transaction. If a
// function failed before its first write, no new transaction is necessary.
func (s *Store) commit(batch []*write) {
	for len(batch) > 0 {
		spoiler, err := s.try(batch)
		if err != nil {
			err = cloudsim.Errorf(cloudsim.Unavailable, "the cloud cannot write its file: %w", err)
			for _, w := range batch {
				w.err = err
			}
			return
		}
		if spoiler < 0 {
			return
		}
		rest := make([]*write, 0, len(batch)-1)
		batch = append(append(rest, batch[:spoiler]...), batch[spoiler+1:]...)
	}
}

// try runs the functions of the batch in one transaction and commits the transaction. If a function
// wrote and then failed, try commits nothing and returns the index of this function. Otherwise the
// index is -1.
func (s *Store) try(batch []*write) (spoiler int, err error) {
	if f := s.failed.Load(); f != nil {
		return -1, f.err
	}
	defer panicOnFault()()
	defer recoverTo(&err)
	btx, err := s.db.Begin(true)
	if err != nil {
		return -1, err
	}
	defer func() { _ = btx.Rollback() }() // Rollback does nothing after a commit
	s.ahead.extend(btx.Size())
	dirty := false
	for i, w := range batch {
		t := s.tx(btx, w.requestID)
		w.err = run(w.fn, t)
		if t.dirty && w.err != nil {
			return i, nil
		}
		dirty = dirty || t.dirty
	}
	if !dirty {
		return -1, nil
	}
	if err := s.finish(btx); err != nil {
		return -1, err
	}
	s.notify()
	return -1, nil
}

// finish commits btx. If a commit fails, and the reason is not a full disk, the store makes no more
// commits until the next Open. After this failure, bbolt may have written the meta page of the
// failed transaction, and the kernel may have lost other pages. The kernel reports a failed page
// write only once, so a later sync would succeed without the lost pages.
func (s *Store) finish(btx *bolt.Tx) (err error) {
	id := btx.ID()
	defer func() {
		if err != nil && !diskFull(err) {
			err = s.fail(id, err)
		}
	}()
	defer recoverTo(&err)
	return btx.Commit()
}

// diskFull reports whether a write failed because the disk is full or the file is too large. In
// this case no data is lost, and the caller can continue. A failed sync may have lost pages, so
// diskFull returns false for every failed sync.
func diskFull(err error) bool {
	write, ok := errors.AsType[*os.PathError](err)
	return ok && write.Op == "write" && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG))
}

// fail stops all commits, because the commit of the transaction with the given id failed. If bbolt
// shows this transaction to readers, fail also stops all reads. Readers must not see the
// transaction, because its caller got an error, and a power cut may remove the transaction.
func (s *Store) fail(id int, cause error) error {
	f := &failure{
		err:       fmt.Errorf("a commit failed (%w), so %w: check the disk, then restart the cloud", cause, ErrReadOnly),
		isVisible: true,
	}
	_ = s.db.View(func(tx *bolt.Tx) error { f.isVisible = tx.ID() >= id; return nil })
	s.failed.Store(f)
	return f.err
}

// run calls fn. If fn panics, run marks the transaction as dirty, because fn may
// have written to the transaction before the panic.
func run(fn func(*Tx) error, t *Tx) (err error) {
	defer func() { t.dirty = t.dirty || errors.Is(err, errPanic) }()
	defer recoverTo(&err)
	return fn(t)
}

// Changed returns a channel that the next commit closes. Call Changed before you read from the
// store. Otherwise you can miss a commit between the read and the call of Changed.
func (s *Store) Changed() <-chan struct{} {
	s.changedMu.Lock()
	defer s.changedMu.Unlock()
	return s.changed
}

func (s *Store) notify() {
	s.changedMu.Lock()
	defer s.changedMu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// CheckFile returns an error if pages of the file are damaged. It does not check the resources in
// the tables (see Table.Check).
func (s *Store) CheckFile() error {
	return s.db.View(func(tx *bolt.Tx) error {
		var all []error
		for err := range tx.Check() {
			all = append(all, err)
		}
		return errors.Join(all...)
	})
}

// Used returns how many bytes of the file are in use. The file never shrinks,
// but later commits use its free bytes.
func (s *Store) Used() int64 {
	free := s.db.Stats()
	return s.Size() - int64(free.FreePageN+free.PendingPageN)*s.page
}

// Size returns the offset of the end of the file's last page, in bytes. The file itself can be
// larger, because it can contain preallocated zeros after this page.
func (s *Store) Size() (n int64) {
	_ = s.db.View(func(tx *bolt.Tx) error { n = tx.Size(); return nil })
	return n
}
