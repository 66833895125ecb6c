package store

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	json "github.com/go-json-experiment/json/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Table describes how the store keeps the resources of one kind. Declare one package variable for
// each table. The methods of a table return copies of the stored resources, so the caller may
// change the results.
type Table[T any] struct {
	Kind   cloudsim.ResourceKind
	Prefix string                       // prefix of ids: "i" makes i-000001; "" if the caller chooses the id
	ID     func(*T) string              // returns the id
	Meta   func(*T) *cloudsim.Meta      // returns the metadata
	Public func(T) T                    // returns the resource without the fields that callers must not see; nil: callers may see all fields
	Uses   func(*T) []Use               // returns the uses of the project's quotas; nil for none
	Index  map[string]func(*T) []string // additional indexes, by their names; index values must not contain NUL
	// If CoalesceEvents is true and a transaction changes a resource several
	// times, the transaction writes only one event for the resource, with its
	// last value. This rule applies only to changes with the same time, caller
	// and cause. Set CoalesceEvents for kinds with intermediate values that no
	// watcher needs.
	CoalesceEvents bool
}

// Each table has these indexes.
const (
	byProject = "project"
	byName    = "name"
)

// key returns the key that a resource has in Tx.traces.
func (t Table[T]) key(id string) string { return string(t.Kind) + "/" + id }

func (t Table[T]) bucket() []byte { return []byte("object/" + string(t.Kind)) }
func (t Table[T]) index(name string) []byte {
	return []byte("index/" + string(t.Kind) + "/" + name)
}

// indexEntries returns the index entries of v. Each entry has two parts: the
// name of an index bucket, and a key. A key ends with the id, so that many
// resources can have the same value.
func (t Table[T]) indexEntries(v *T) [][2][]byte {
	id, m := t.ID(v), t.Meta(v)
	entry := func(index, value string) [2][]byte {
		return [2][]byte{t.index(index), []byte(value + "\x00" + id)}
	}
	ks := [][2][]byte{entry(byProject, string(m.Project))}
	if m.Name != id { // if the name is the id, Named finds the resource by the id
		ks = append(ks, entry(byName, string(m.Project)+"\x00"+m.Name))
	}
	for name, of := range t.Index {
		for _, value := range of(v) {
			ks = append(ks, entry(name, value))
		}
	}
	return ks
}

// NextID returns an id that the table has not returned before, for example i-00002a. After
// Tx.Replace, it can return an earlier id again. The first sixteen million ids have six
// digits, so they sort in the order of their creation.
func (t Table[T]) NextID(tx *Tx) (string, error) {
	b, err := tx.write(t.bucket())
	if err != nil {
		return "", err
	}
	n, err := b.NextSequence()
	hex := strconv.FormatUint(n, 16)
	return t.Prefix + "-" + "000000"[min(len(hex), 6):] + hex, err
}

// Get returns the resource with the given id, or NotFound.
func (t Table[T]) Get(tx *Tx, id string) (v T, err error) {
	var raw []byte
	if b := tx.read(t.bucket()); b != nil {
		raw = b.Get([]byte(id))
	}
	if raw == nil {
		return v, cloudsim.Errorf(cloudsim.NotFound, "no %s %s", t.Kind, id)
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("%s %s is damaged: %w", t.Kind, id, err)
	}
	return v, nil
}

// Has reports whether a resource with the given id exists.
func (t Table[T]) Has(tx *Tx, id string) bool {
	b := tx.read(t.bucket())
	return b != nil && b.Get([]byte(id)) != nil
}

// Named returns the resource that has the given name in a project, or NotFound.
func (t Table[T]) Named(tx *Tx, project cloudsim.ProjectID, name string) (v T, err error) {
	for id := range t.idsOf(tx, byName, string(project)+"\x00"+name, "") {
		return t.Get(tx, id)
	}
	if t.Has(tx, name) {
		if v, err = t.Get(tx, name); err != nil || t.Meta(&v).Project == project && t.Meta(&v).Name == name {
			return v, err
		}
	}
	var none T
	return none, &cloudsim.Error{Kind: cloudsim.NotFound, Msg: "no " + string(t.Kind) + " named " + name} // almost every create call gets this error, so do not use fmt, which is slow
}

// Lookup returns the resources with the given value in an index, sorted by id.
func (t Table[T]) Lookup(tx *Tx, index, value string) ([]T, error) {
	var all []T
	for id := range t.idsOf(tx, index, value, "") {
		v, err := t.Get(tx, id)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// Find yields the resources with the given value in an index, sorted by id. If afterID is not
// empty, Find yields only resources with a greater id than afterID. It reads a resource only when
// it yields the resource. It yields the first error and stops.
func (t Table[T]) Find(tx *Tx, index, value, afterID string) func(func(T, error) bool) {
	return func(yield func(T, error) bool) {
		for id := range t.idsOf(tx, index, value, afterID) {
			if v, err := t.Get(tx, id); !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// FindAny yields the resources that have one of the given values in an index. It yields only
// resources with a greater id than afterID. It yields each resource once, sorted by id. It reads
// the ids of all these resources before it yields the first resource. It yields the first error
// and stops.
func (t Table[T]) FindAny(tx *Tx, index string, values []string, afterID string) func(func(T, error) bool) {
	return func(yield func(T, error) bool) {
		var ids []string
		for _, value := range values {
			for id := range t.idsOf(tx, index, value, afterID) {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			if v, err := t.Get(tx, id); !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// Count returns the number of resources with the given value in an index, but
// at most limit. It reads no resource.
func (t Table[T]) Count(tx *Tx, index, value string, limit int) int {
	n := 0
	for range t.idsOf(tx, index, value, "") {
		if n++; n >= limit {
			break
		}
	}
	return n
}

// Owned reports whether the project has a resource of this kind.
func (t Table[T]) Owned(tx *Tx, project cloudsim.ProjectID) bool {
	for range t.idsOf(tx, byProject, string(project), "") {
		return true
	}
	return false
}

// Any reports whether a resource of this kind exists.
func (t Table[T]) Any(tx *Tx) bool {
	b := tx.read(t.bucket())
	if b == nil {
		return false
	}
	k, _ := b.Cursor().First()
	return k != nil
}

// idsOf yields the ids of the resources with the given value in an index. If afterID is not empty,
// idsOf yields only ids that are greater than afterID.
func (t Table[T]) idsOf(tx *Tx, index, value, afterID string) func(func(string) bool) {
	return func(yield func(string) bool) {
		b := tx.read(t.index(index))
		if b == nil {
			return
		}
		prefix := []byte(value + "\x00")
		c := b.Cursor()
		for k, _ := c.Seek(append(slices.Clip(prefix), afterID...)); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
			id := string(k[len(prefix):])
			if id <= afterID || strings.IndexByte(id, 0) >= 0 {
				continue // the id is afterID, or the entry belongs to a longer value
			}
			if !yield(id) {
				return
			}
		}
	}
}

// Scan yields the resources of a project, sorted by id. For the project "" it yields the resources
// of all projects. If afterID is not empty, Scan yields only resources with a greater id than
// afterID. It yields the first error and stops.
func (t Table[T]) Scan(tx *Tx, project cloudsim.ProjectID, afterID string) func(func(T, error) bool) {
	return func(yield func(T, error) bool) {
		if project != "" {
			t.Find(tx, byProject, string(project), afterID)(yield)
			return
		}
		b := tx.read(t.bucket())
		if b == nil {
			return
		}
		c := b.Cursor()
		for k, raw := c.Seek([]byte(afterID)); k != nil; k, raw = c.Next() {
			if string(k) == afterID {
				continue
			}
			var v T
			err := json.Unmarshal(raw, &v)
			if err != nil {
				err = fmt.Errorf("%s %s is damaged: %w", t.Kind, k, err)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// revision returns the revision of the next event of a resource. With CoalesceEvents, the next
// event can replace an earlier event of the same transaction and resource. In this case revision
// returns the revision of the replaced event.
func (t Table[T]) revision(tx *Tx, id string) (uint64, error) {
	if last, ok := tx.traces[t.key(id)]; ok && t.CoalesceEvents && last.at.Equal(tx.Now) && last.caller == tx.Caller && last.cause == tx.Cause {
		return last.revision, nil
	}
	return tx.nextRevision()
}

// Put sets the revision and the times of the resource v, stores v, and writes an event with v to
// the journal. If CreatedAt is zero, Put regards v as a new resource. In this case, the caller must
// make sure that the id is new, because Put does not remove the index entries and quota uses of an
// old resource.
func (t Table[T]) Put(tx *Tx, v *T) error {
	b, err := tx.write(t.bucket())
	if err != nil {
		return err
	}
	id, m := t.ID(v), t.Meta(v)
	if id == "" {
		return fmt.Errorf("put of a %s without an id", t.Kind)
	}
	if m.Revision, err = t.revision(tx, id); err != nil {
		return err
	}
	var old []byte
	if m.CreatedAt.IsZero() { // a new resource has no old value
		m.CreatedAt = tx.Now
	} else {
		old = b.Get([]byte(id))
	}
	m.UpdatedAt = tx.Now
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s %s: %w", t.Kind, id, err)
	}
	if err := t.reindex(tx, id, old, v); err != nil {
		return err
	}
	if err := b.Put([]byte(id), raw); err != nil {
		return fmt.Errorf("%s %s: %w", t.Kind, id, err)
	}
	return tx.journal(cloudsim.EventPut, t.Kind, id, m, t.eventJSON(v, raw))
}

// Delete removes the resource v and writes an event to the journal. The event contains v as the
// last value of the resource.
func (t Table[T]) Delete(tx *Tx, v *T) error {
	b, err := tx.write(t.bucket())
	if err != nil {
		return err
	}
	id, m := t.ID(v), t.Meta(v)
	if m.Revision, err = t.revision(tx, id); err != nil {
		return err
	}
	if err := t.reindex(tx, id, b.Get([]byte(id)), nil); err != nil {
		return err
	}
	if err := b.Delete([]byte(id)); err != nil {
		return err
	}
	m.UpdatedAt = tx.Now
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.journal(cloudsim.EventDelete, t.Kind, id, m, t.eventJSON(v, raw))
}

// eventJSON returns the JSON of v for the event, without the fields that readers of events must not
// see. The parameter raw is the JSON of v with all fields.
func (t Table[T]) eventJSON(v *T, raw []byte) []byte {
	if t.Public == nil {
		return raw
	}
	public, err := json.Marshal(t.Public(*v))
	if err != nil {
		return nil // an event without an object is better than an event with a secret
	}
	return public
}

// trace is the data about a resource that the store keeps outside of the
// resource's record: index entries, quota uses, and the event of the last
// change.
type trace struct {
	keys    [][2][]byte // sorted, because a resource may have thousands of keys
	project cloudsim.ProjectID
	uses    []Use

	revision      uint64 // revision of the last event
	at            time.Time
	caller, cause string // caller and cause of the last event
}

func (t Table[T]) trace(v *T) trace {
	left := trace{keys: t.indexEntries(v), project: t.Meta(v).Project}
	slices.SortFunc(left.keys, compareKeys)
	if t.Uses != nil {
		left.uses = t.Uses(v)
	}
	return left
}

func compareKeys(a, b [2][]byte) int {
	return cmp.Or(bytes.Compare(a[0], b[0]), bytes.Compare(a[1], b[1]))
}

// reindex removes the index entries and quota uses of the old value, and adds the index entries and
// quota uses of the new value. The parameter oldRaw is the stored JSON of the old value, or nil for
// a new resource. The parameter v is the new value, or nil for a deleted resource.
func (t Table[T]) reindex(tx *Tx, id string, oldRaw []byte, v *T) error {
	var before, after trace
	key := t.key(id)
	if last, ok := tx.traces[key]; oldRaw != nil && ok {
		before = last
	} else if oldRaw != nil {
		var was T
		if err := json.Unmarshal(oldRaw, &was); err != nil {
			return fmt.Errorf("%s %s is damaged: %w", t.Kind, id, err)
		}
		before = t.trace(&was)
	}
	if v != nil {
		after = t.trace(v)
		after.revision, after.at, after.caller, after.cause = t.Meta(v).Revision, tx.Now, tx.Caller, tx.Cause
		tx.traces[key] = after
	} else {
		delete(tx.traces, key)
	}
	if err := tx.recount(before, after); err != nil {
		return err
	}
	in := func(all [][2][]byte, k [2][]byte) bool {
		_, found := slices.BinarySearchFunc(all, k, compareKeys)
		return found
	}
	for _, k := range before.keys {
		if in(after.keys, k) {
			continue
		}
		ix, err := tx.write(k[0])
		if err != nil {
			return err
		}
		if err := ix.Delete(k[1]); err != nil {
			return err
		}
	}
	for _, k := range after.keys {
		if in(before.keys, k) {
			continue
		}
		ix, err := tx.write(k[0])
		if err != nil {
			return err
		}
		if err := ix.Put(k[1], []byte{}); err != nil {
			return err
		}
	}
	return nil
}

// Check returns an error if it cannot decode a resource, or if the resources, their index entries
// and the counts of quotas do not match each other. It stops at the first mismatch of a resource or
// an index entry, because a state file from an attacker may have millions of mismatches.
func (t Table[T]) Check(tx *Tx) error {
	expected, taken := map[string]int{}, usage{} // expected contains the number of entries by the name of the index
	for v, err := range t.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		if t.Uses != nil {
			taken.add(t.Meta(&v).Project, t.Uses(&v))
		}
		for _, k := range t.indexEntries(&v) {
			if b := tx.read(k[0]); b == nil || b.Get(k[1]) == nil {
				return fmt.Errorf("%s %s is missing from %s", t.Kind, t.ID(&v), k[0])
			}
			expected[string(k[0])]++
		}
	}
	for _, name := range append(slices.Collect(maps.Keys(t.Index)), byProject, byName) {
		index := t.index(name)
		have := 0
		if b := tx.read(index); b != nil {
			if err := b.ForEach(func(_, _ []byte) error { have++; return nil }); err != nil {
				return err
			}
		}
		if have != expected[string(index)] { // the loop above found all expected entries, so a different count means additional entries
			return fmt.Errorf("%s has %d entries, but the resources of kind %s need %d", index, have, t.Kind, expected[string(index)])
		}
	}
	return taken.check(tx)
}
