package store

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	json "github.com/go-json-experiment/json/v1"
	bolt "go.etcd.io/bbolt"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

var (
	keyEpoch = []byte("epoch") // the revision at which the contents were replaced last
	keyGaps  = []byte("gaps")  // revisions that the journal never had, [][2]uint64
)

// Replace makes the contents of the file those of another, but for the kinds to
// keep; a nil one has nothing. Like all else in a transaction it is done whole
// or not at all.
//
// Revisions go on from where either file was, and every watch that has begun
// is Gone: who watches lists again. The clock becomes the other file's; with a
// nil one it stays.
//
// The other must stay open, and nobody may write to it, until the transaction
// is over: what it holds is written from where it lies.
func (t *Tx) Replace(from *Store, keep ...cloudsim.ResourceKind) error {
	last, clock := t.Revision(), t.Clock()
	if err := t.clear(keep); err != nil {
		return err
	}
	if from != nil {
		if err := from.db.View(func(src *bolt.Tx) error { return t.copyFrom(src, keep) }); err != nil {
			return err
		}
		clock = t.Clock()
	}
	if err := t.SetClock(clock); err != nil {
		return err
	}
	return t.beginEpoch(last)
}

// kept reports whether a bucket belongs to one of the kinds to keep.
func kept(name []byte, keep []cloudsim.ResourceKind) bool {
	return slices.ContainsFunc(keep, func(k cloudsim.ResourceKind) bool {
		return string(name) == "object/"+string(k) || strings.HasPrefix(string(name), "index/"+string(k)+"/")
	})
}

func (t *Tx) clear(keep []cloudsim.ResourceKind) error {
	t.dirty = true
	clear(t.traces)
	var names [][]byte
	if err := t.tx.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if !kept(name, keep) {
			names = append(names, bytes.Clone(name))
		}
		return nil
	}); err != nil {
		return err
	}
	for _, name := range names {
		if err := t.tx.DeleteBucket(name); err != nil {
			return err
		}
	}
	meta, err := t.tx.CreateBucket(bucketMeta)
	if err != nil {
		return err
	}
	return meta.Put(keySchema, []byte(schema))
}

func (t *Tx) copyFrom(src *bolt.Tx, keep []cloudsim.ResourceKind) error {
	return src.ForEach(func(name []byte, b *bolt.Bucket) error {
		if kept(name, keep) {
			return nil
		}
		to, err := t.tx.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		to.FillPercent = 0.95 // keys come in order
		if err := to.SetSequence(b.Sequence()); err != nil {
			return err
		}
		return b.ForEach(func(k, v []byte) error {
			return to.Put(k, v) // k is copied by Put, v is not
		})
	})
}

// beginEpoch makes the journal go on after everything that this file or the
// other has ever given out.
func (t *Tx) beginEpoch(last uint64) error {
	own := t.Revision()
	next := max(own, last) + 1
	journal, err := t.write(bucketJournal)
	if err != nil {
		return err
	}
	if err := journal.SetSequence(next); err != nil {
		return err
	}
	gaps, err := t.gaps()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(append(gaps, [2]uint64{own + 1, next}))
	if err != nil {
		return err
	}
	meta, err := t.write(bucketMeta)
	if err != nil {
		return err
	}
	return errors.Join(meta.Put(keyGaps, raw), meta.Put(keyEpoch, u64(next)))
}

// Epoch is the revision at which the contents were replaced last; 0 if they
// never were. Watches from before it cannot go on.
func (t *Tx) Epoch() uint64 {
	if raw := t.read(bucketMeta).Get(keyEpoch); raw != nil {
		return fromU64(raw)
	}
	return 0
}

// gaps are the revisions, from and to inclusive, that the journal never had.
func (t *Tx) gaps() (gaps [][2]uint64, err error) {
	if raw := t.read(bucketMeta).Get(keyGaps); raw != nil {
		err = json.Unmarshal(raw, &gaps)
	}
	return gaps, err
}

// Objects calls fn with every object in the file, by kind and id.
func (t *Tx) Objects(fn func(kind cloudsim.ResourceKind, id string, raw []byte) error) error {
	return t.tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		kind, ok := strings.CutPrefix(string(name), "object/")
		if !ok {
			return nil
		}
		return b.ForEach(func(k, v []byte) error { return fn(cloudsim.ResourceKind(kind), string(k), v) })
	})
}
