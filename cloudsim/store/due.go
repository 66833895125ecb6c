package store

import (
	"bytes"
	"fmt"
	"time"

	json "github.com/go-json-experiment/json/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Work is an action on a resource at a later time. The transaction that causes the work also adds
// the work to the due list, so a restart loses no work.
type Work struct {
	Kind      cloudsim.ResourceKind `json:"kind"`
	ID        string                `json:"id"`
	Verb      cloudsim.Verb         `json:"verb"`
	Operation cloudsim.OperationID  `json:"operation,omitempty"`
}

// Later puts the work item w on the due list. The work item becomes due at dueTime. Work items with
// the same due time stay in the order in which Later added them.
func (t *Tx) Later(dueTime time.Time, w Work) error {
	b, err := t.write(bucketDue)
	if err != nil {
		return err
	}
	n, err := b.NextSequence()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return b.Put(append(u64(uint64(dueTime.UnixNano())), u64(n)...), raw)
}

// LaterOnce puts the work item w on the due list. The work item becomes due at dueTime. If w equals
// the first item that LaterOnce added for this due time, the list does not change. LaterOnce does
// not compare w with other items, so the list can contain equal items.
func (t *Tx) LaterOnce(dueTime time.Time, w Work) error {
	raw, err := json.Marshal(w)
	if err != nil {
		return err
	}
	key := append(u64(uint64(dueTime.UnixNano())), u64(0)...) // Later never uses the number 0, because the sequence of a bucket begins with 1
	if b := t.read(bucketDue); b != nil {
		switch have := b.Get(key); {
		case bytes.Equal(have, raw):
			return nil
		case have != nil:
			return t.Later(dueTime, w)
		}
	}
	b, err := t.write(bucketDue)
	if err != nil {
		return err
	}
	return b.Put(key, raw)
}

// NextDue returns the time of the first work item, or false if the due list is
// empty.
func (t *Tx) NextDue() (time.Time, bool) {
	b := t.read(bucketDue)
	if b == nil {
		return time.Time{}, false
	}
	k, _ := b.Cursor().First()
	if k == nil {
		return time.Time{}, false
	}
	return time.Unix(0, int64(fromU64(k[:8]))).UTC(), true
}

// TakeDue removes due work items from the due list, and returns them in the order of their due
// times. It takes at most limit items, and begins with the earliest due time.
func (t *Tx) TakeDue(limit int) ([]Work, error) {
	b := t.read(bucketDue)
	if b == nil {
		return nil, nil
	}
	var all []Work
	var keys [][]byte
	c := b.Cursor()
	for k, raw := c.First(); k != nil && len(all) < limit; k, raw = c.Next() {
		if int64(fromU64(k[:8])) > t.Now.UnixNano() {
			break
		}
		var w Work
		if err := json.Unmarshal(raw, &w); err != nil {
			return nil, fmt.Errorf("due work is damaged: %w", err)
		}
		all, keys = append(all, w), append(keys, bytes.Clone(k))
	}
	if len(keys) == 0 {
		return nil, nil
	}
	due, err := t.write(bucketDue)
	if err != nil {
		return nil, err
	}
	for _, k := range keys { // delete after the loop, because a deletion moves the cursor
		if err := due.Delete(k); err != nil {
			return nil, err
		}
	}
	return all, nil
}
