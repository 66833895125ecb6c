// Package store keeps a cloud in one bbolt file: tables of resources, the
// journal of what changed, the list of what is due, and pools of numbers.
//
// An object and its event are written in one transaction. After the commit a
// bell rings that carries nothing: who hears it reads the journal from his own
// cursor. So events are as durable as objects, in order, and never announced
// by a transaction that failed.
//
// Writers that come together are committed together: one of them leads and
// runs the functions of all, in the order they came, in one bbolt transaction
// with one fdatasync, which is of the redo log beside the file. The price is that a function may run more than once (see
// Update), and that one slow function delays its neighbours.
//
// This is the only package that knows bbolt.
package store

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// schema is the version of what is in the file. A file of another version is
// refused rather than guessed at.
const schema = "1"

// maxBatch bounds how many writers share one commit, and so how long the last
// of them waits.
const maxBatch = 512

// patience is how long another may still hold the file that is opened.
const patience = 200 * time.Millisecond

// enough is how many writers, with who leads, are a batch worth its commit. With
// fewer, whoever is ready to run goes first, who may be about to ask; else the
// disk is not kept waiting. Sixteen writers then part into two crowds, one of
// which is at work while the other is committed.
const enough = 4

// Store is an open file. Make one with Open.
type Store struct {
	// Now is the machine's clock, read once per transaction. Set it before use.
	// What transactions see is made of it by the Clock in the file.
	Now func() time.Time

	db *bolt.DB
	// Of who writes: what is beyond the file's last page, how commits are durable,
	// and what the next one has changed.
	room room
	// writing is held from before a transaction that writes begins until the redo
	// log knows how it ended: bbolt's own lock is given back before that.
	writing sync.Mutex
	redo    redo
	changes changes
	unclear atomic.Pointer[error] // see commitFailed

	writers sync.Mutex
	queue   []*write
	leading bool

	bellMu sync.Mutex
	bell   chan struct{}
}

// write is one waiting call of Update.
type write struct {
	requestID string
	fn        func(*Tx) error
	err       error
	wake      chan bool // true: lead the next batch; false: err is the result
}

// Open opens the file at path and makes it if it is missing. It fails at once
// if another process holds it.
func Open(path string) (*Store, error) {
	s := &Store{Now: time.Now, bell: make(chan struct{}), redo: redo{path: path + ".redo"}}
	err := s.open(path)
	var errno syscall.Errno
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("%s is in use by another cloud: stop it, or choose another data directory", path)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%s cannot be opened for writing: %w", path, err)
	case errors.As(err, &errno):
		return nil, fmt.Errorf("open %s: %w", path, err)
	case errors.Is(err, errOtherFile), errors.Is(err, errPassedOver):
		return nil, err
	case err != nil:
		return nil, damaged(path, err)
	}
	if err := s.stamp(path); err != nil {
		if errors.Is(err, errPanic) {
			err = damaged(path, err)
		}
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func damaged(path string, err error) error {
	return fmt.Errorf("%s is damaged, or no cloud's file: %w; it was left as it is: put a copy of it back, or move it away to begin with an empty cloud", path, err)
}

// errPanic is what a panic becomes.
var errPanic = errors.New("panic in a transaction")

// caught turns a panic into *err, so that one request neither ends the process
// nor leaves the file locked for the others. Defer it. The panic may be a
// defect of ours, or bbolt's, which panics when it meets a page that is damaged;
// see careful.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", errPanic, p)
	}
}

// careful makes a read outside of the mapped file, where a damaged page may
// point, a panic of this goroutine instead of the end of the process. Defer
// what it returns, before caught.
func careful() (before func()) {
	was := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(was) }
}

// open opens bbolt's file, with what the redo log has.
func (s *Store) open(path string) (err error) {
	defer careful()()
	defer caught(&err)
	if mapped() == 0 {
		if err := s.redo.passedOver(); err != nil {
			return err
		}
	}
	var again []changes
	s.db, err = bolt.Open(path, 0o600, &bolt.Options{
		Timeout: patience, FreelistType: bolt.FreelistMapType, InitialMmapSize: mapped(),
		OpenFile: func(path string, flag int, mode os.FileMode) (f *os.File, err error) {
			if f, err = os.OpenFile(path, flag, mode); err != nil || mapped() == 0 {
				return f, err
			}
			if err = lock(f, patience); err == nil {
				again, err = s.redo.recover(f)
			}
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			return f, nil
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.db.Close())
		}
	}()
	s.db.AllocSize = leastRoom // bbolt makes 16 MiB at once for who maps much
	if s.room.file, err = os.OpenFile(path, os.O_RDWR, 0); err != nil || mapped() == 0 {
		return err
	}
	return s.redo.redone(s.db, s.room.file, again)
}

// stamp marks a new file with the schema and refuses one of another.
func (s *Store) stamp(path string) (err error) {
	defer careful()()
	defer caught(&err)
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
		return fmt.Errorf("%s has schema %s; this program reads schema %s", path, have, schema)
	}
	return s.db.Update(func(tx *bolt.Tx) error { // plain: nothing was logged yet
		b, err := tx.CreateBucketIfNotExists(bucketMeta)
		if err != nil {
			return err
		}
		return b.Put(keySchema, []byte(schema))
	})
}

// Probe reports whether the store can commit: it commits nothing, as durably as
// anything else. It costs an fsync.
func (s *Store) Probe() (err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	defer careful()()
	defer caught(&err)
	btx, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = btx.Rollback() }()
	s.changes.reset()
	return s.finish(btx)
}

// Close waits for running transactions and closes the file, which then is whole
// by itself.
func (s *Store) Close() (err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if btx, begun := s.db.Begin(true); begun == nil { // nobody else writes
		err = errors.Join(s.redo.close(), btx.Rollback())
	}
	return errors.Join(err, s.db.Close(), s.room.file.Close())
}

// Tx is a transaction. It must not be used after its function returned.
type Tx struct {
	// Now is the time of everything in the transaction, in UTC. Only SetClock
	// changes it.
	Now time.Time
	// Caller and Cause are in the events that the transaction writes from when
	// they are set: who acts, and why.
	Caller, Cause string
	// Machine is the same instant on the machine's clock.
	Machine time.Time

	tx        *bolt.Tx
	changes   *changes
	requestID string
	dirty     bool
	// traces are those of what this transaction put, by kind and id: what is put
	// again, as nearly all is that begins and ends at once, is not decoded for it.
	traces map[string]trace
}

func (s *Store) tx(btx *bolt.Tx, requestID string) *Tx {
	t := &Tx{Machine: s.Now().UTC().Round(0), tx: btx, changes: &s.changes, requestID: requestID}
	if btx.Writable() {
		t.traces = map[string]trace{}
	}
	t.Now = t.Clock().At(t.Machine)
	return t
}

// View runs fn on the state as of now.
func (s *Store) View(fn func(*Tx) error) (err error) {
	if e := s.unclear.Load(); e != nil {
		return *e
	}
	defer careful()()
	defer caught(&err)
	return s.db.View(func(btx *bolt.Tx) error { return fn(s.tx(btx, "")) })
}

// Update runs fn and makes what it wrote durable before it returns nil. If fn
// returns an error, nothing that it wrote is kept. Events carry requestID.
//
// fn must have no effect but on the Tx and on variables that it assigns anew:
// it runs again when a neighbour in its batch had to be rolled back. It must
// not call Update or View, or wait for anything.
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
	s.lead()
	return w.err
}

// lead commits everyone who waits, itself included, wakes them, and hands the
// lead to the first who came meanwhile.
func (s *Store) lead() {
	s.writers.Lock()
	if len(s.queue) < enough {
		s.writers.Unlock()
		runtime.Gosched() // who was just woken by the batch before may ask again: a larger batch, the same fsync
		s.writers.Lock()
	}
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
	next := len(s.queue) > 0
	if next {
		s.queue[0].wake <- true
	}
	s.leading = next
	s.writers.Unlock()
	if next {
		runtime.Gosched() // the disk waits for who leads now; this one's caller has waited already
	}
}

// commit runs the batch in one transaction. A function that wrote and then
// failed spoils the transaction: it is taken out and the rest runs again.
// Functions that fail before they write, the common case, cost nothing.
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

// try returns the index of the write that spoiled the transaction, or -1.
func (s *Store) try(batch []*write) (spoiler int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	defer careful()()
	defer caught(&err)
	btx, err := s.db.Begin(true)
	if err != nil {
		return -1, err
	}
	defer func() { _ = btx.Rollback() }() // after a commit it does nothing
	s.room.make(btx.Size())
	s.changes.reset()
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
	s.ring()
	return -1, nil
}

// finish commits s.changes, of btx, so that they are durable.
func (s *Store) finish(btx *bolt.Tx) (err error) {
	if err := s.redo.keep(btx, &s.changes); err != nil {
		return err
	}
	id := btx.ID()
	err = errPanic // unless Commit returns
	defer func() {
		if err != nil {
			s.commitFailed(id, err)
		}
	}()
	err = btx.Commit()
	return err
}

// commitFailed remembers what is known of transaction id, whose commit failed. One
// that is to be seen all the same may not be there after a start: nobody is shown
// what was refused.
func (s *Store) commitFailed(id int, failure error) {
	s.redo.failed()
	s.redo.takeBack(failure)
	if s.redo.lost == nil {
		return
	}
	_ = s.db.View(func(tx *bolt.Tx) error { // of what is open it does not fail
		if tx.ID() >= id {
			unclear := cloudsim.Errorf(cloudsim.Unavailable, "%w", s.redo.lost)
			s.unclear.Store(&unclear)
		}
		return nil
	})
}

// run runs fn. One that panicked may have written.
func run(fn func(*Tx) error, t *Tx) (err error) {
	defer func() { t.dirty = t.dirty || errors.Is(err, errPanic) }()
	defer caught(&err)
	return fn(t)
}

// Bell returns a channel that is closed at the next commit. Take it before
// reading, or a commit between the two goes unheard.
func (s *Store) Bell() <-chan struct{} {
	s.bellMu.Lock()
	defer s.bellMu.Unlock()
	return s.bell
}

func (s *Store) ring() {
	s.bellMu.Lock()
	defer s.bellMu.Unlock()
	close(s.bell)
	s.bell = make(chan struct{})
}

// CheckFile reports damage in the file itself. Tables are checked by
// Table.Check.
func (s *Store) CheckFile() error {
	return s.db.View(func(tx *bolt.Tx) error {
		var all []error
		for err := range tx.Check() {
			all = append(all, err)
		}
		return errors.Join(all...)
	})
}

// Used is how many bytes of the file are in use: the others are for what comes
// next, as a file does not shrink.
func (s *Store) Used() int64 {
	free := s.db.Stats()
	return s.Size() - int64(free.FreePageN+free.PendingPageN)*int64(s.db.Info().PageSize)
}

// Size is the size of the file in bytes.
func (s *Store) Size() (n int64) {
	_ = s.db.View(func(tx *bolt.Tx) error { n = tx.Size(); return nil })
	return n
}
