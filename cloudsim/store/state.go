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
	keyEpoch = []byte("epoch") // revision of the last Replace
	keyGaps  = []byte("gaps")  // revisions without events, as JSON of [][2]uint64
)

// Replace replaces the contents of this store with the contents of another store, which is the
// parameter source. The resources of the given kinds do not change. If the source is nil, only
// these resources remain. All changes are part of the transaction.
//
// Replace uses one revision, but writes no event. This revision is greater than all revisions of
// both stores. A watch that began before this revision ends with Gone, and its client must list the
// resources again. Replace also replaces the clock of this store with the clock of the source. If
// the source is nil, the clock does not change.
//
// Until the transaction ends, the caller must not close the source, and must not write to the
// source, because the transaction does not copy the values of the source.
func (t *Tx) Replace(source *Store, kinds ...cloudsim.ResourceKind) error {
	last, clock := t.Revision(), t.Clock()
	if err := t.clear(kinds); err != nil {
		return err
	}
	if source != nil {
		if err := source.db.View(func(src *bolt.Tx) error { return t.copyFrom(src, kinds) }); err != nil {
			return err
		}
		clock = t.Clock()
	}
	if err := t.SetClock(clock); err != nil {
		return err
	}
	return t.beginEpoch(last)
}

// inKinds reports whether a bucket belongs to one of the kinds.
func inKinds(name []byte, kinds []cloudsim.ResourceKind) bool {
	return slices.ContainsFunc(kinds, func(k cloudsim.ResourceKind) bool {
		return string(name) == "object/"+string(k) || strings.HasPrefix(string(name), "index/"+string(k)+"/")
	})
}

func (t *Tx) clear(keep []cloudsim.ResourceKind) error {
	t.dirty = true
	clear(t.traces)
	var names [][]byte
	if err := t.tx.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if !inKinds(name, keep) {
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
		if inKinds(name, keep) {
			return nil
		}
		to, err := t.tx.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		to.FillPercent = 0.95 // ForEach yields the keys in order, so pages can be almost full
		if err := to.SetSequence(b.Sequence()); err != nil {
			return err
		}
		return b.ForEach(func(k, v []byte) error {
			return to.Put(k, v) // bbolt's Put copies k, but it does not copy v
		})
	})
}

// beginEpoch increases the revision of the journal for Replace. The new revision has no event. It
// is greater than all revisions of the new contents, and greater than lastRev. The parameter
// lastRev is the last revision of the old contents.
func (t *Tx) beginEpoch(lastRev uint64) error {
	own := t.Revision()
	next := max(own, lastRev) + 1
	journal, err := t.write(bucketJournal)
	if err != nil {
		return err
	}
	if err := journal.SetSequence(next); err != nil {
		return err
	}
	gaps, err := t.revisionGaps()
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

// Epoch returns the revision of the last Replace, or 0 if Replace has never run. A watch from an
// earlier revision cannot continue.
func (t *Tx) Epoch() uint64 {
	if raw := t.read(bucketMeta).Get(keyEpoch); raw != nil {
		return fromU64(raw)
	}
	return 0
}

// revisionGaps returns the gaps: ranges of revisions that have no events. Each gap is a pair of its
// first and its last revision.
func (t *Tx) revisionGaps() (gaps [][2]uint64, err error) {
	if raw := t.read(bucketMeta).Get(keyGaps); raw != nil {
		err = json.Unmarshal(raw, &gaps)
	}
	return gaps, err
}

// Objects calls fn with each resource, in the order of kinds and ids.
func (t *Tx) Objects(fn func(kind cloudsim.ResourceKind, id string, raw []byte) error) error {
	return t.tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		kind, ok := strings.CutPrefix(string(name), "object/")
		if !ok {
			return nil
		}
		return b.ForEach(func(k, v []byte) error { return fn(cloudsim.ResourceKind(kind), string(k), v) })
	})
}
