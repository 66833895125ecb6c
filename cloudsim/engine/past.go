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

// past is the content of a table at an earlier time. pastOf computes the past content from the
// present content and the whole journal. The computation is slow, but the engine uses it only for
// calls that a stale-read fault has hit. The store deletes the oldest events of the journal, so the
// journal may no longer contain the value that a resource had at the earlier time. In this case,
// past contains the first later value of the resource in the journal.
type past[T any] struct {
	rev uint64        // last revision at the earlier time
	was map[string]*T // resources that have changed since the earlier time, with their values at the earlier time; nil for a resource that did not exist
}

func pastOf[T any](tx *store.Tx, t store.Table[T], at time.Time) (past[T], error) {
	p := past[T]{rev: tx.Floor(), was: map[string]*T{}}
	before := map[string]*T{} // last value of each resource up to the earlier time
	for rev, end := tx.Floor(), tx.Revision(); rev < end; {
		evs, _, err := tx.Since(rev, 1000)
		if err != nil {
			return p, err
		}
		if len(evs) == 0 {
			break // after the load of a saved state, the last revisions have no events
		}
		for _, ev := range evs {
			rev = ev.Rev
			if !ev.Time.After(at) {
				p.rev = rev
			}
			if ev.Kind != t.Kind {
				continue
			}
			if err := p.addEvent(t, before, ev, at); err != nil {
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

// addEvent adds one event of the journal to p, the content of the table at pastTime. It handles the
// events of a resource as follows:
//   - If the time of the event is pastTime or earlier, addEvent stores the new value of the
//     resource in lastValues.
//   - If the event is the first event of the resource after pastTime, addEvent stores a value in
//     p.was. The value is nil if the resource was created after pastTime. Otherwise it is the value
//     from the event.
//   - addEvent ignores all later events of the resource.
//
// The value from an event after pastTime is too new, but the journal may contain no older value. If
// lastValues has an entry for the resource, pastOf later replaces the value in p.was with this
// entry.
func (p *past[T]) addEvent(t store.Table[T], lastValues map[string]*T, ev cloudsim.Event, pastTime time.Time) error {
	v := new(T)
	if err := json.Unmarshal(ev.Object, v); err != nil {
		return cloudsim.Errorf(cloudsim.Internal, "event %d, %s %s: %w", ev.Rev, ev.Kind, ev.ID, err)
	}
	switch _, seen := p.was[ev.ID]; {
	case !ev.Time.After(pastTime) && ev.Type == cloudsim.EventDelete:
		lastValues[ev.ID] = nil
	case !ev.Time.After(pastTime):
		lastValues[ev.ID] = v
	case !seen && t.Meta(v).CreatedAt.After(pastTime):
		p.was[ev.ID] = nil
	case !seen:
		p.was[ev.ID] = v
	}
	return nil
}

// get returns a resource as it was at the earlier time. It returns NotFound if
// the resource did not exist.
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

// rows yields the resources of a project as they were at the earlier time, sorted by id. For the
// project "" it yields the resources of all projects. It yields only resources with ids greater
// than o.After. If o.Source is not empty, rows yields only resources with this source. It copies
// the whole table to memory.
func (p past[T]) rows(tx *store.Tx, t store.Table[T], project cloudsim.ProjectID, o cloudsim.ListOptions) iter.Seq2[T, error] {
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
			if t.ID(&v) <= o.After || project != "" && t.Meta(&v).Project != project || o.Source != "" && !slices.Contains(indexValues(t, bySource, &v), o.Source) {
				continue
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}
