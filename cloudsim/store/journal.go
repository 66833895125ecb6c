package store

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	json "github.com/go-json-experiment/json/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// nextRevision returns the revision of the next event. The caller must write
// this event to the journal in the same transaction.
func (t *Tx) nextRevision() (uint64, error) {
	b, err := t.write(bucketJournal)
	if err != nil {
		return 0, err
	}
	return b.NextSequence()
}

// journal writes an event. The parameter rawObject is the JSON of the object, or nil for an event
// without an object.
func (t *Tx) journal(typ cloudsim.EventType, kind cloudsim.ResourceKind, id string, m *cloudsim.Meta, rawObject []byte) error {
	var machine time.Time
	if !t.Machine.Equal(t.Now) {
		machine = t.Machine
	}
	raw, err := json.Marshal(cloudsim.Event{
		Rev: m.Revision, Time: t.Now, MachineTime: machine, Type: typ, Kind: kind, ID: id,
		Project: m.Project, RequestID: t.requestID, Caller: t.Caller, Cause: t.Cause, Object: rawObject,
	})
	if err != nil {
		return fmt.Errorf("event of %s %s: %w", kind, id, err)
	}
	b, err := t.write(bucketJournal)
	if err != nil {
		return err
	}
	b.FillPercent = 0.95 // each new key is greater than all old keys, so full pages cause few splits
	return b.Put(u64(m.Revision), raw)
}

// Revision returns the last revision that an event or a call of Replace has used. It returns 0 for
// a new store.
func (t *Tx) Revision() uint64 {
	if b := t.read(bucketJournal); b != nil {
		return b.Sequence()
	}
	return 0
}

// Floor returns the revision of the newest event that Compact has deleted, or 0 if Compact has
// deleted no event.
func (t *Tx) Floor() uint64 {
	if raw := t.read(bucketMeta).Get(keyFloor); raw != nil {
		return fromU64(raw)
	}
	return 0
}

// Since reads up to limit events after the revision rev, in the order of their revisions. It
// returns only the events of the given kinds. If no kind is given, it returns all events that it
// read. It also returns the revision of the last event that it read, or rev if it read no event.
// Since returns Gone if Compact has deleted events after rev. It also returns Gone if rev is beyond
// the end of the journal, for example because rev is a revision of another cloud.
func (t *Tx) Since(rev uint64, limit int, kinds ...cloudsim.ResourceKind) (evs []cloudsim.Event, next uint64, err error) {
	if floor := t.Floor(); rev < floor {
		return nil, rev, cloudsim.Errorf(cloudsim.Gone, "some events after revision %d were deleted; the journal begins after revision %d: list the resources again, and watch from the revision of that list", rev, floor)
	}
	if now := t.Revision(); rev > now {
		return nil, rev, cloudsim.Errorf(cloudsim.Gone, "revision %d does not exist yet; the journal ends at revision %d: list the resources again, and watch from the revision of that list", rev, now)
	}
	b := t.read(bucketJournal)
	if b == nil {
		return nil, rev, nil
	}
	next = rev
	c := b.Cursor()
	for k, raw := c.Seek(u64(rev + 1)); k != nil && limit > 0; k, raw = c.Next() {
		limit--
		next = fromU64(k)
		var e cloudsim.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, rev, fmt.Errorf("event %d is damaged: %w", next, err)
		}
		if len(kinds) == 0 || slices.Contains(kinds, e.Kind) {
			evs = append(evs, e)
		}
	}
	return evs, next, nil
}

// Mentions calls fn, in the order of the journal, for each event that has the given text in its
// JSON. It reads the whole journal, but decodes only these events.
func (t *Tx) Mentions(word string, fn func(cloudsim.Event) error) error {
	b := t.read(bucketJournal)
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, raw []byte) error {
		if !bytes.Contains(raw, []byte(word)) {
			return nil
		}
		var e cloudsim.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("event %d is damaged: %w", fromU64(k), err)
		}
		return fn(e)
	})
}

// Newest calls fn for events in descending order of their revisions. It selects the events that
// contain all given texts in their JSON and have a lower revision than beforeRev. If beforeRev is
// 0, Newest begins with the newest event. Newest decodes only the selected events, and stops when
// fn returns false.
func (t *Tx) Newest(beforeRev uint64, words []string, fn func(cloudsim.Event) bool) error {
	b := t.read(bucketJournal)
	if b == nil {
		return nil
	}
	c := b.Cursor()
	k, raw := c.Last()
	if beforeRev != 0 {
		if k, raw = c.Seek(u64(beforeRev)); k == nil { // beforeRev is beyond the end of the journal
			k, raw = c.Last()
		} else {
			k, raw = c.Prev()
		}
	}
	for ; k != nil; k, raw = c.Prev() {
		if slices.ContainsFunc(words, func(word string) bool { return !bytes.Contains(raw, []byte(word)) }) {
			continue
		}
		var e cloudsim.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("event %d is damaged: %w", fromU64(k), err)
		}
		if !fn(e) {
			return nil
		}
	}
	return nil
}

// Events returns the number of events in the journal. It does not read the events.
func (t *Tx) Events() (uint64, error) {
	last, floor := t.Revision(), t.Floor()
	n := last - floor
	gaps, err := t.revisionGaps()
	counted := floor
	for _, gap := range gaps { // the gaps are sorted; the gaps of an imported state may overlap
		if from, to := max(gap[0], counted+1), min(gap[1], last); from <= to {
			n, counted = n-(to-from+1), to
		}
	}
	return n, err
}

// Compact deletes the oldest events of the journal. The newest maxEvents events stay. One call
// deletes at most limit events. Compact returns the number of deleted events. Call it again while
// this number equals limit.
func (t *Tx) Compact(maxEvents uint64, limit int) (int, error) {
	n, err := t.Events()
	if err != nil || n <= maxEvents {
		return 0, err
	}
	b, err := t.write(bucketJournal)
	if err != nil {
		return 0, err
	}
	var oldest [][]byte
	c := b.Cursor()
	for k, _ := c.First(); k != nil && uint64(len(oldest)) < min(n-maxEvents, uint64(limit)); k, _ = c.Next() {
		oldest = append(oldest, bytes.Clone(k))
	}
	for _, k := range oldest {
		if err := b.Delete(k); err != nil {
			return 0, err
		}
	}
	if len(oldest) == 0 {
		return 0, nil
	}
	meta, err := t.write(bucketMeta)
	if err != nil {
		return 0, err
	}
	return len(oldest), meta.Put(keyFloor, oldest[len(oldest)-1])
}

// CheckJournal returns an error if the journal lacks a revision. It checks the revisions after the
// revision that Floor returns. It accepts the gaps that Replace has made. It also returns an error
// if the floor or a gap is after the last revision.
func (t *Tx) CheckJournal() error {
	floor, last := t.Floor(), t.Revision()
	gaps, err := t.revisionGaps()
	if err != nil {
		return err
	}
	// Without this check, the additions below could overflow for a malicious saved state.
	if floor > last || slices.ContainsFunc(gaps, func(gap [2]uint64) bool { return gap[1] > last }) {
		return fmt.Errorf("the floor %d or a gap of the journal is after the last revision %d", floor, last)
	}
	next := floor + 1
	skip := func() {
		for _, gap := range gaps { // the gaps are sorted
			if next >= gap[0] && next <= gap[1] {
				next = gap[1] + 1
			}
		}
	}
	if b := t.read(bucketJournal); b != nil {
		if err := b.ForEach(func(k, _ []byte) error {
			skip()
			if got := fromU64(k); got != next {
				return fmt.Errorf("the journal has revision %d instead of revision %d", got, next)
			}
			next++
			return nil
		}); err != nil {
			return err
		}
	}
	skip()
	if next != last+1 {
		return fmt.Errorf("the journal ends at revision %d, but the counter is %d", next-1, last)
	}
	return nil
}
