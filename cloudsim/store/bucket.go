package store

import (
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// The file's top-level buckets. Tables have one each, "object/KIND", with
// their indexes beside it in "index/KIND/NAME"; pools are "pool/NAME".
var (
	bucketMeta    = []byte("meta")
	bucketJournal = []byte("journal")
	bucketDue     = []byte("due")

	keySchema = []byte("schema")
	keyFloor  = []byte("journalFloor")
)

// read returns a bucket, or nil if nothing was ever put into it.
func (t *Tx) read(name []byte) *bolt.Bucket { return t.tx.Bucket(name) }

// write returns a bucket to change, made if it is missing.
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

// Take returns the lowest number, from 0, that nobody holds in pool; Exhausted
// when size of them are taken.
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
	if b.Sequence() >= size {
		return 0, cloudsim.Errorf(cloudsim.Exhausted, "all %d addresses of the %s range are taken", size, pool)
	}
	n, err := b.NextSequence()
	return n - 1, err
}

// Give returns n to pool.
func (t *Tx) Give(pool string, n uint64) error {
	free, err := t.write(freeName(pool))
	if err != nil {
		return err
	}
	return free.Put(u64(n), []byte{})
}
