package store

import (
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// The file has the top-level buckets "meta", "journal" and "due". In addition, each table has a
// bucket "object/KIND", and each index of a table has a bucket "index/KIND/NAME". For each
// project and quota, the bucket "usage" contains the used amount. The buckets "note/NAME" contain
// notes (see Notes).
//
// A pool of numbers has the buckets "pool/NAME", "free/NAME" and "held/NAME". bbolt stores a
// sequence number for "pool/NAME". All numbers below the sequence number are used, except the
// numbers in "free/NAME". The sequence number and all greater numbers are free, except the numbers
// in "held/NAME".
//
// If a saved state contains a bucket that is not in this list, Unarchive returns Invalid.
var (
	bucketMeta    = []byte("meta")
	bucketJournal = []byte("journal")
	bucketDue     = []byte("due")

	keySchema = []byte("schema")
	keyFloor  = []byte("journalFloor")
)

// read returns a bucket, or nil if it does not exist.
func (t *Tx) read(name []byte) *bolt.Bucket { return t.tx.Bucket(name) }

// write returns a bucket that the caller may change. It creates the bucket if it does not exist.
func (t *Tx) write(name []byte) (*bolt.Bucket, error) {
	t.dirty = true
	if b := t.tx.Bucket(name); b != nil {
		return b, nil
	}
	b, err := t.tx.CreateBucket(name)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	}
	return b, nil
}

func u64(n uint64) []byte      { return binary.BigEndian.AppendUint64(nil, n) }
func fromU64(b []byte) uint64  { return binary.BigEndian.Uint64(b) }
func poolName(p string) []byte { return []byte("pool/" + p) }
func freeName(p string) []byte { return []byte("free/" + p) }
func heldName(p string) []byte { return []byte("held/" + p) }

// Take returns the lowest free number of a pool, and marks the number as used. The pool has the
// numbers from 0 to size-1. Take returns Exhausted if all numbers of the pool are used.
func (t *Tx) Take(pool string, size uint64) (uint64, error) {
	free, err := t.write(freeName(pool))
	if err != nil {
		return 0, err
	}
	if k, _ := free.Cursor().First(); k != nil {
		n := fromU64(k)
		return n, free.Delete(k)
	}
	b, err := t.write(poolName(pool))
	if err != nil {
		return 0, err
	}
	held, err := t.write(heldName(pool))
	if err != nil {
		return 0, err
	}
	for b.Sequence() < size {
		next, err := b.NextSequence()
		n := next - 1
		if err != nil || held.Get(u64(n)) == nil {
			return n, err
		}
		if err := held.Delete(u64(n)); err != nil { // n is now below the border, so n needs no entry in the bucket held
			return 0, err
		}
	}
	return 0, cloudsim.Errorf(cloudsim.Exhausted, "all %d addresses of the range %s are taken: delete resources that use addresses of this range", size, pool)
}

// isTaken reports whether the number n of a pool is used.
func (t *Tx) isTaken(pool string, n uint64) bool {
	has := func(bucket []byte) bool {
		b := t.read(bucket)
		return b != nil && b.Get(u64(n)) != nil
	}
	if b := t.read(poolName(pool)); b != nil && n < b.Sequence() {
		return !has(freeName(pool))
	}
	return has(heldName(pool))
}

// TakeThis marks the number n of a pool as used. It returns false if n is already used. The caller
// must check that n is less than the size of the pool.
func (t *Tx) TakeThis(pool string, n uint64) (ok bool, err error) {
	if t.isTaken(pool, n) {
		return false, nil // nothing was written, so the batch does not run again if the caller fails now
	}
	b, err := t.write(poolName(pool))
	if err != nil {
		return false, err
	}
	if n < b.Sequence() { // the bucket free contains n
		free, err := t.write(freeName(pool))
		if err != nil {
			return false, err
		}
		return true, free.Delete(u64(n))
	}
	held, err := t.write(heldName(pool))
	if err != nil {
		return false, err
	}
	return true, held.Put(u64(n), []byte{})
}

// Give puts the number n back into a pool. A later call of Take or TakeThis can then use n.
func (t *Tx) Give(pool string, n uint64) error {
	b, err := t.write(poolName(pool))
	if err != nil {
		return err
	}
	if n >= b.Sequence() {
		held, err := t.write(heldName(pool))
		if err != nil {
			return err
		}
		return held.Delete(u64(n))
	}
	free, err := t.write(freeName(pool))
	if err != nil {
		return err
	}
	return free.Put(u64(n), []byte{})
}
