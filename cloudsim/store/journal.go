package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// nextRevision gives the number of the next event. Whoever takes one must
// journal it in the same transaction.
func (t *Tx) nextRevision() (uint64, error) {
	b, err := t.write(bucketJournal)
	if err != nil {
		return 0, err
	}
	return b.NextSequence()
}

func (t *Tx) journal(typ cloudsim.EventType, kind cloudsim.ResourceKind, id string, m *cloudsim.Meta, object []byte) error {
	raw := appendEvent(make([]byte, 0, len(object)+256), cloudsim.Event{
		Rev: m.Revision, Time: t.Now, Type: typ, Kind: kind, ID: id,
		Project: m.Project, RequestID: t.requestID, Caller: t.Caller, Cause: t.Cause, Object: object,
	})
	b, err := t.write(bucketJournal)
	if err != nil {
		return err
	}
	b.FillPercent = 0.95 // keys only grow: full pages, fewer splits
	return b.Put(u64(m.Revision), raw)
}

// Revision is the revision of the newest event, 0 before the first.
func (t *Tx) Revision() uint64 {
	if b := t.read(bucketJournal); b != nil {
		return b.Sequence()
	}
	return 0
}

// Floor is the revision up to which the journal was compacted.
func (t *Tx) Floor() uint64 {
	if raw := t.read(bucketMeta).Get(keyFloor); raw != nil {
		return fromU64(raw)
	}
	return 0
}

// Since reads up to limit events after rev, in order, and returns those of
// kinds, or all for none, and the revision that it read up to. It is Gone if
// some of them were compacted, or if rev was never reached: a revision of
// another cloud's journal.
func (t *Tx) Since(rev uint64, limit int, kinds ...cloudsim.ResourceKind) (evs []cloudsim.Event, next uint64, err error) {
	if floor := t.Floor(); rev < floor {
		return nil, rev, cloudsim.Errorf(cloudsim.Gone, "events after revision %d were compacted; the journal begins after %d: list again and watch from there", rev, floor)
	}
	if now := t.Revision(); rev > now {
		return nil, rev, cloudsim.Errorf(cloudsim.Gone, "revision %d is not reached; the journal ends at %d: list again and watch from there", rev, now)
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
		if kind, ok := kindIn(raw); ok && len(kinds) > 0 && !slices.Contains(kinds, kind) {
			continue
		}
		e, err := readEvent(raw)
		if err != nil {
			return nil, rev, fmt.Errorf("event %d is damaged: %w", next, err)
		}
		if len(kinds) == 0 || slices.Contains(kinds, e.Kind) {
			evs = append(evs, e)
		}
	}
	return evs, next, nil
}

// Mentions calls fn with the events that hold a word, as a quoted string of its
// own or within one, in order. It reads the whole journal, and decodes what
// holds the word.
func (t *Tx) Mentions(word string, fn func(cloudsim.Event) error) error {
	b := t.read(bucketJournal)
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, raw []byte) error {
		if !bytes.Contains(raw, []byte(word)) {
			return nil
		}
		e, err := readEvent(raw)
		if err != nil {
			return fmt.Errorf("event %d is damaged: %w", fromU64(k), err)
		}
		return fn(e)
	})
}

// Events is how many events the journal has. It reads none of them.
func (t *Tx) Events() (uint64, error) {
	last, floor := t.Revision(), t.Floor()
	n := last - floor
	gaps, err := t.gaps()
	counted := floor
	for _, gap := range gaps { // they are in order; of a state that was brought in they may overlap
		if from, to := max(gap[0], counted+1), min(gap[1], last); from <= to {
			n, counted = n-(to-from+1), to
		}
	}
	return n, err
}

// Compact forgets the oldest events so that keep of them stay, at most limit
// at a time. It returns how many it forgot; call it again while that is limit.
func (t *Tx) Compact(keep uint64, limit int) (int, error) {
	n, err := t.Events()
	if err != nil || n <= keep {
		return 0, err
	}
	b, err := t.write(bucketJournal)
	if err != nil {
		return 0, err
	}
	var oldest [][]byte
	c := b.Cursor()
	for k, _ := c.First(); k != nil && uint64(len(oldest)) < min(n-keep, uint64(limit)); k, _ = c.Next() {
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

// CheckJournal reports a journal that is not every revision from its floor to
// its end, once each, but those that no event ever had; see Replace.
func (t *Tx) CheckJournal() error {
	next := t.Floor() + 1
	gaps, err := t.gaps()
	if err != nil {
		return err
	}
	skip := func() {
		for _, gap := range gaps { // they are in order
			if next >= gap[0] && next <= gap[1] {
				next = gap[1] + 1
			}
		}
	}
	if b := t.read(bucketJournal); b != nil {
		if err := b.ForEach(func(k, _ []byte) error {
			skip()
			if got := fromU64(k); got != next {
				return fmt.Errorf("the journal has revision %d where %d belongs", got, next)
			}
			next++
			return nil
		}); err != nil {
			return err
		}
	}
	skip()
	if last := t.Revision(); next != last+1 {
		return fmt.Errorf("the journal ends at %d; its counter says %d", next-1, last)
	}
	return nil
}

// appendEvent is json.Marshal of an event whose object is JSON already. Every
// write passes here, and encoding by reflection, with the object checked and
// copied once more, was a third of it. A test holds the two alike.
func appendEvent(b []byte, e cloudsim.Event) []byte {
	b = strconv.AppendUint(append(b, `{"rev":`...), e.Rev, 10)
	b = e.Time.AppendFormat(append(b, `,"time":"`...), time.RFC3339Nano)
	b = appendString(append(b, `","type":`...), string(e.Type))
	b = appendString(append(b, `,"kind":`...), string(e.Kind))
	b = appendString(append(b, `,"id":`...), e.ID)
	if e.Project != "" {
		b = appendString(append(b, `,"project":`...), string(e.Project))
	}
	if e.RequestID != "" {
		b = appendString(append(b, `,"requestId":`...), e.RequestID)
	}
	if e.Caller != "" {
		b = appendString(append(b, `,"caller":`...), e.Caller)
	}
	if e.Cause != "" {
		b = appendString(append(b, `,"cause":`...), e.Cause)
	}
	if e.Object != nil {
		b = append(append(b, `,"object":`...), e.Object...)
	}
	return append(b, '}')
}

// appendString quotes s; what is not plain goes the long way.
func appendString(b []byte, s string) []byte {
	if !plain(s) {
		quoted, _ := json.Marshal(s) // a string is always encoded
		return append(b, quoted...)
	}
	return append(append(append(b, '"'), s...), '"')
}

// plain reports whether JSON writes s as it is.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// readEvent is json.Unmarshal of an event. Every watcher reads every event,
// whatever it then keeps, so what appendEvent wrote is read as it was written;
// what looks otherwise goes the long way. A test holds the two alike.
func readEvent(raw []byte) (e cloudsim.Event, err error) {
	if e, ok := readPlain(raw); ok {
		return e, nil
	}
	err = json.Unmarshal(raw, &e)
	return e, err
}

// kindIn is the kind of an event as appendEvent wrote it, without the cost of
// reading the rest; false for what looks otherwise.
func kindIn(raw []byte) (cloudsim.ResourceKind, bool) {
	before, rest, ok := bytes.Cut(raw, []byte(`","kind":"`))
	kind, _, end := bytes.Cut(rest, []byte(`"`))
	return cloudsim.ResourceKind(kind), ok && end && bytes.LastIndexByte(before, '{') == 0 && plain(string(kind)) // not in the object
}

// readPlain reads an event whose strings are plain; false for another.
func readPlain(raw []byte) (e cloudsim.Event, ok bool) {
	rest, ok := strings.CutPrefix(string(raw), `{"rev":`)
	number, rest, more := strings.Cut(rest, ",")
	rev, err := strconv.ParseUint(number, 10, 64)
	if !ok || !more || err != nil || number[0] == '0' {
		return e, false
	}
	var values [8]string // of the members between rev and object; "" for what is absent
	for i, member := range [8]string{`"time":"`, `"type":"`, `"kind":"`, `"id":"`, `"project":"`, `"requestId":"`, `"caller":"`, `"cause":"`} {
		after, there := strings.CutPrefix(rest, member)
		if !there {
			continue
		}
		if values[i], rest, ok = strings.Cut(after, `"`); !ok || !plain(values[i]) {
			return e, false
		}
		if rest, more = strings.CutPrefix(rest, ","); !more {
			break
		}
	}
	e = cloudsim.Event{
		Rev: rev, Type: cloudsim.EventType(values[1]), Kind: cloudsim.ResourceKind(values[2]), ID: values[3],
		Project: cloudsim.ProjectID(values[4]), RequestID: values[5], Caller: values[6], Cause: values[7],
	}
	if e.Time.UnmarshalText([]byte(values[0])) != nil {
		return e, false
	}
	if !more {
		return e, rest == "}"
	}
	object, there := strings.CutPrefix(rest, `"object":`)
	object, ok = strings.CutSuffix(object, "}")
	e.Object = []byte(object)
	return e, there && ok && strings.TrimSpace(object) == object && json.Valid(e.Object)
}
