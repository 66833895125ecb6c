package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// changes is what a transaction did to the buckets of the file, in order, as the
// redo log keeps it. Each has a byte that says what it is, then the bucket's name
// and what else it needs; numbers are unsigned varints, and a name, key or value
// has its length before it.
type changes struct {
	raw      []byte
	unlogged bool // there is more, which raw lacks
}

const (
	changeBucket   = 1 // name: there is such a bucket now
	changePut      = 2 // name, key, value
	changeDelete   = 3 // name, key
	changeSequence = 4 // name, number
)

func (c *changes) reset() { c.raw, c.unlogged = c.raw[:0], false }

func (c *changes) add(kind byte, all ...[]byte) {
	c.raw = append(c.raw, kind)
	for _, b := range all {
		c.raw = append(binary.AppendUvarint(c.raw, uint64(len(b))), b...)
	}
}

var errChanges = errors.New("the redo log has an entry that nothing wrote")

// redo does the changes in tx.
func (c *changes) redo(tx *bolt.Tx) error {
	rest, whole := c.raw, true
	number := func() uint64 {
		n, long := binary.Uvarint(rest)
		if whole = whole && long > 0; !whole {
			return 0
		}
		rest = rest[long:]
		return n
	}
	next := func() []byte {
		n := number()
		if whole = whole && n <= uint64(len(rest)); !whole {
			return nil
		}
		b := rest[:n]
		rest = rest[n:]
		return b
	}
	for len(rest) > 0 {
		kind := rest[0]
		rest = rest[1:]
		name := next()
		if !whole {
			return errChanges
		}
		b, err := tx.CreateBucketIfNotExists(name)
		if err != nil {
			return fmt.Errorf("%w: bucket %.40q: %w", errChanges, name, err)
		}
		switch kind {
		case changeBucket:
		case changePut:
			if k, v := next(), next(); whole {
				err = b.Put(k, v)
			}
		case changeDelete:
			if k := next(); whole {
				err = b.Delete(k)
			}
		case changeSequence:
			if n := number(); whole {
				err = b.SetSequence(n)
			}
		default:
			return errChanges
		}
		if err != nil || !whole {
			return errors.Join(errChanges, err)
		}
	}
	return nil
}

// bucket is a bucket to change: bbolt's, and the redo log hears of it.
type bucket struct {
	*bolt.Bucket
	name    []byte
	changes *changes
}

// Put puts a value at key.
func (b bucket) Put(key, value []byte) error {
	b.changes.add(changePut, b.name, key, value)
	return b.Bucket.Put(key, value)
}

// Delete removes a key, if it is there.
func (b bucket) Delete(key []byte) error {
	b.changes.add(changeDelete, b.name, key)
	return b.Bucket.Delete(key)
}

// NextSequence counts one on.
func (b bucket) NextSequence() (uint64, error) {
	n, err := b.Bucket.NextSequence()
	b.count(n)
	return n, err
}

// SetSequence lets the count go on after n.
func (b bucket) SetSequence(n uint64) error {
	b.count(n)
	return b.Bucket.SetSequence(n)
}

func (b bucket) count(n uint64) {
	b.changes.add(changeSequence, b.name)
	b.changes.raw = binary.AppendUvarint(b.changes.raw, n)
}
