package store

import (
	"bytes"
	"fmt"
	"time"

	json "github.com/go-json-experiment/json/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Work is something that happens later: verb to the resource id of kind.
// It is on the due list in the same transaction as what caused it, so a
// restart loses none of it.
type Work struct {
	Kind      cloudsim.ResourceKind `json:"kind"`
	ID        string                `json:"id"`
	Verb      cloudsim.Verb         `json:"verb"`
	Operation cloudsim.OperationID  `json:"operation,omitempty"`
}

// Later puts work on the due list. Work of the same instant keeps its order.
func (t *Tx) Later(at time.Time, w Work) error {
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
	return b.Put(append(u64(uint64(at.UnixNano())), u64(n)...), raw)
}

// LaterOnce is Later for work that is on the list already as often as not, put
// there by others: then it costs a look. An instant has room for one of them.
func (t *Tx) LaterOnce(at time.Time, w Work) error {
	raw, err := json.Marshal(w)
	if err != nil {
		return err
	}
	key := append(u64(uint64(at.UnixNano())), u64(0)...) // Later counts from 1
	if b := t.read(bucketDue); b != nil {
		switch have := b.Get(key); {
		case bytes.Equal(have, raw):
			return nil
		case have != nil:
			return t.Later(at, w)
		}
	}
	b, err := t.write(bucketDue)
	if err != nil {
		return err
	}
	return b.Put(key, raw)
}

// NextDue says when the first work is due; false if there is none.
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

// TakeDue removes and returns up to limit pieces of work that are due now.
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
	for _, k := range keys { // after the walk: deleting moves the cursor
		if err := due.Delete(k); err != nil {
			return nil, err
		}
	}
	return all, nil
}
