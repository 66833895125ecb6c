package engine

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// past is the content of a table at an earlier time. It is computed from the
// present content and the journal. Reading the whole journal is slow, but only
// calls under a stale-read fault need it. If the journal begins later than the
// time, past shows the content at the begin of the journal.
type past[T any] struct {
	rev uint64        // last revision at that time
	was map[string]*T // earlier values of the resources that have changed since; nil if the resource did not exist
}

func pastOf[T any](tx *store.Tx, t store.Table[T], at time.Time) (past[T], error) {
	p := past[T]{rev: tx.Floor(), was: map[string]*T{}}
	before := map[string]*T{} // last value of each resource up to the time
	for rev, end := tx.Floor(), tx.Revision(); rev < end; {
		evs, _, err := tx.Since(rev, 1000)
		if err != nil || len(evs) == 0 {
			return p, err
		}
		for _, ev := range evs {
			rev = ev.Rev
			if !ev.Time.After(at) {
				p.rev = rev
			}
			if ev.Kind != t.Kind {
				continue
			}
			if err := p.take(t, before, ev, at); err != nil {
				return p, err
			}
		}
	}
	for id := range p.was {
		if v, known := before[id]; known {
			p.was[id] = v
		}
	}
	return p, nil
}

// take processes an event. A resource that changed after the time may have no
// earlier event. If it was created after the time, it did not exist then.
// Otherwise its first known value is used.
func (p *past[T]) take(t store.Table[T], before map[string]*T, ev cloudsim.Event, at time.Time) error {
	v := new(T)
	if err := json.Unmarshal(ev.Object, v); err != nil {
		return cloudsim.Errorf(cloudsim.Internal, "event %d, %s %s: %w", ev.Rev, ev.Kind, ev.ID, err)
	}
	switch _, seen := p.was[ev.ID]; {
	case !ev.Time.After(at) && ev.Type == cloudsim.EventDelete:
		before[ev.ID] = nil
	case !ev.Time.After(at):
		before[ev.ID] = v
	case !seen && t.Meta(v).CreatedAt.After(at):
		p.was[ev.ID] = nil
	case !seen:
		p.was[ev.ID] = v
	}
	return nil
}

// get is Table.Get at the earlier time.
func (p past[T]) get(tx *store.Tx, t store.Table[T], id string) (v T, err error) {
	switch was, changed := p.was[id]; {
	case !changed:
		return t.Get(tx, id)
	case was == nil:
		return v, cloudsim.Errorf(cloudsim.NotFound, "no %s %s", t.Kind, id)
	default:
		return *was, nil
	}
}

// rows yields the resources at the earlier time that follow o.After, in the
// order of ids. It holds all of them in memory.
func (p past[T]) rows(tx *store.Tx, t store.Table[T], o cloudsim.ListOptions) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var all []T
		for v, err := range t.Scan(tx, "", "") {
			if err != nil {
				yield(v, err)
				return
			}
			if _, changed := p.was[t.ID(&v)]; !changed {
				all = append(all, v)
			}
		}
		for _, v := range p.was {
			if v != nil {
				all = append(all, *v)
			}
		}
		slices.SortFunc(all, func(a, b T) int { return strings.Compare(t.ID(&a), t.ID(&b)) })
		for _, v := range all {
			if t.ID(&v) <= o.After || o.Source != "" && (t.Index[bySource] == nil || !slices.Contains(t.Index[bySource](&v), o.Source)) {
				continue
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}
