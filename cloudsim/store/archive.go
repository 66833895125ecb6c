package store

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	json "github.com/go-json-experiment/json/v1"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
)

// Archive writes the content of the store as the first section of a saved state. During this time
// the store continues to commit. However, if a commit must enlarge bbolt's memory map of the file,
// this commit waits until Archive returns.
//
// Archive calls hasDiskData in the transaction that reads the content. hasDiskData returns whether
// the saved state will have the data of disks. If hasDiskData is nil, the saved state will not have
// this data. Archive reads the content with View, so it also returns the errors of View.
func (s *Store) Archive(w *statefile.Writer, hasDiskData func(*Tx) (diskData bool, err error)) error {
	return s.View(func(now *Tx) (err error) {
		head := statefile.Head{Revision: now.Revision()}
		if hasDiskData != nil {
			if head.DiskData, err = hasDiskData(now); err != nil {
				return err
			}
		}
		if err := w.Begin(head); err != nil {
			return err
		}
		if err := now.tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			if err := w.Bucket(name, b.Sequence()); err != nil {
				return err
			}
			return b.ForEach(w.Put)
		}); err != nil {
			return err
		}
		return w.End()
	})
}

// Unarchive commits whenever it has written archiveBatch bytes, because bbolt keeps uncommitted
// data in memory.
const (
	archiveBatch = 1 << 20
	keyCost      = 128 // bytes that putBatch adds to the size of each key and value, because bbolt also needs memory for each key
)

// Unarchive reads the first section of a saved state into a new store at path. It returns Invalid
// for a damaged or malicious saved state. After an error, the caller must remove the file at path.
// The caller must not write to the returned store: this store does not sync its file, so a crash
// could lose the write.
func Unarchive(r *statefile.Reader, path string) (s *Store, err error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType, NoSync: true, NoGrowSync: true, NoFreelistSync: true})
	if err != nil {
		return nil, err
	}
	s = &Store{Now: time.Now, db: db, changed: make(chan struct{})}
	for more := true; more && err == nil; {
		err = db.Update(func(tx *bolt.Tx) (err error) {
			more, err = putBatch(tx, r)
			return err
		})
	}
	if err == nil {
		if err = s.View((*Tx).checkShape); err != nil {
			err = cloudsim.Errorf(cloudsim.Invalid, "the file is damaged, is not a saved state of cloudsim, or is from another version: %w", err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// putBatch reads records from r and puts them into tx, until their size reaches archiveBatch bytes.
// It returns false if it has read all records of r.
func putBatch(tx *bolt.Tx, r *statefile.Reader) (hasMore bool, err error) {
	for size := 0; size < archiveBatch; {
		rec, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		case rec.Key == nil && !isBucketName(string(rec.Bucket)):
			return false, statefile.Damaged("unknown bucket %.40q", rec.Bucket)
		}
		b, err := tx.CreateBucketIfNotExists(rec.Bucket)
		if err != nil {
			return false, err
		}
		if rec.Key == nil {
			err = b.SetSequence(rec.Sequence)
		} else {
			b.FillPercent = 0.95 // records arrive in the order of their keys, so pages can be almost full
			err = b.Put(rec.Key, rec.Value)
		}
		if errors.Is(err, berrors.ErrKeyTooLarge) {
			err = statefile.Damaged("a key of bucket %.40q is too long", rec.Bucket)
		}
		if err != nil {
			return false, err
		}
		size += keyCost + len(rec.Key) + len(rec.Value)
	}
	return true, nil
}

// isBucketName reports whether a store may have a bucket with the given name.
func isBucketName(name string) bool {
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

// maxSequence is the greatest permitted sequence number of a bucket in a saved state. Because of
// this limit, the sequence numbers of the loaded cloud never overflow in practice.
const maxSequence = 1 << 63

// checkShape checks the schema, the clock, the sequence numbers of buckets, the lengths of keys
// and values, and the encoding of work items. It does not check the tables or the journal (see
// Table.Check and CheckJournal).
func (t *Tx) checkShape() error {
	meta := t.read(bucketMeta)
	if have := meta.Get(keySchema); string(have) != schema {
		return fmt.Errorf("the state has schema %.20q and this version of allinone reads schema %s: load the state with the version that saved the state", have, schema)
	}
	for _, k := range [][]byte{keyFloor, keyEpoch} {
		if v := meta.Get(k); v != nil && len(v) != 8 {
			return fmt.Errorf("the field %s has %d bytes instead of 8", k, len(v))
		}
	}
	if rate := t.Clock().Rate; !(rate >= 0 && rate <= cloudsim.MaxClockRate) { // NaN is invalid, too
		return fmt.Errorf("the clock has the invalid rate %v", rate)
	}
	return t.tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		if n := b.Sequence(); n > maxSequence {
			return fmt.Errorf("bucket %s has the invalid sequence %d", name, n)
		}
		key, value := 0, 0 // expected lengths in bytes; 0 means any length
		family, _, _ := strings.Cut(string(name), "/")
		switch family {
		case string(bucketJournal), "free", "held":
			key = 8
		case string(bucketUsage):
			value = 8
		case string(bucketDue):
			key = 16
		}
		return b.ForEach(func(k, v []byte) error {
			if key > 0 && len(k) != key || value > 0 && len(v) != value {
				return fmt.Errorf("bucket %s has a key of %d bytes with a value of %d bytes, which is invalid", name, len(k), len(v))
			}
			if key == 16 {
				return json.Unmarshal(v, new(Work))
			}
			return nil
		})
	})
}
