package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

var faults = store.Table[cloudsim.Fault]{
	Kind: cloudsim.KindFault, Prefix: "fault",
	ID:   func(f *cloudsim.Fault) string { return string(f.ID) },
	Meta: func(f *cloudsim.Fault) *cloudsim.Meta { return &f.Meta },
}

// faultsSeen counts the calls that matched a fault, by its id. It is no part
// of the fault's record, because a call that passed is no news of the fault.
var faultsSeen = store.Notes[uint64]{Name: "faultsSeen"}

// faultRules is a copy of the rules that may still hit, so that the door asks
// the store only for calls that a rule may match. The file has one process, so
// the copy is behind by no more than a call that is under way.
type faultRules struct {
	loading sync.Mutex // one load at a time: the last to begin is the last to publish
	live    atomic.Pointer[[]cloudsim.Fault]
}

// loadFaults makes the copy anew. Call it after every commit that made,
// deleted or used up a rule.
func (e *Engine) loadFaults() error {
	e.rules.loading.Lock()
	defer e.rules.loading.Unlock()
	var live []cloudsim.Fault
	if err := e.store.View(func(tx *store.Tx) error {
		live = nil
		for f, err := range faults.Scan(tx, "", "") {
			if err != nil {
				return err
			}
			if !f.Spent() {
				live = append(live, f)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	e.rules.live.Store(&live)
	return nil
}

// Subject is what a call is about.
type Subject struct {
	Operation string // operation id
	Target    string // id in the path; "" for none
	Body      any    // the decoded request, which may say labels and zone; nil for none
}

// Strike is what the rules do to one call. The zero value does nothing.
type Strike struct {
	Latency time.Duration   // before anything else
	Fault   *cloudsim.Fault // whose effect is next; nil for none
}

// Decide asks the rules about a call that passed the door. Where no rule
// matches it costs a look at memory. Otherwise the counts, and an event for
// every hit, are durable before it returns: no crash and no crowd of callers
// makes a rule hit more often than it may.
func (e *Engine) Decide(ctx context.Context, s Subject) (hit Strike, err error) {
	live := e.rules.live.Load()
	if live == nil || len(*live) == 0 {
		return hit, nil
	}
	call, err := callOf(ctx)
	if err != nil {
		return hit, err
	}
	ids, err := e.matching(*live, call, s)
	if err != nil || len(ids) == 0 {
		return hit, err
	}
	usedUp := false
	err = e.store.Update(call.RequestID, func(tx *store.Tx) (err error) {
		tx.Caller, tx.Cause = call.Caller, strings.TrimSpace(s.Operation+" "+s.Target)
		hit, usedUp, err = count(tx, ids)
		return err
	})
	if err != nil {
		return Strike{}, err
	}
	if usedUp {
		return hit, e.loadFaults()
	}
	return hit, nil
}

// matching are the ids of the rules that match a call, in order. What the
// target is like is read once, and only for rules that ask.
func (e *Engine) matching(live []cloudsim.Fault, call Call, s Subject) (ids []string, err error) {
	now := e.Now()
	var at *place
	for i := range live {
		f := &live[i]
		m := f.Match
		if !m.Covers(s.Operation) || !f.Effect.Strikes(s.Operation) || m.Caller != "" && m.Caller != call.Caller || m.Target != "" && m.Target != s.Target || !f.ActiveAt(now) {
			continue
		}
		if m.Zone != "" || m.Type != "" || len(m.Labels) > 0 {
			if at == nil {
				if at, err = e.placeOf(s); err != nil {
					return nil, err
				}
			}
			if !at.in(m) {
				continue
			}
		}
		ids = append(ids, string(f.ID))
	}
	return ids, nil
}

// count counts the call for each rule until one decides. usedUp says that a
// rule will never hit again.
func count(tx *store.Tx, ids []string) (hit Strike, usedUp bool, err error) {
	for _, id := range ids {
		f, err := faults.Get(tx, id)
		if errors.Is(err, cloudsim.NotFound) {
			continue // deleted since the copy was made
		}
		if err != nil {
			return hit, false, err
		}
		if !f.ActiveAt(tx.Now) {
			continue
		}
		n, _, err := faultsSeen.Get(tx, id)
		if err != nil {
			return hit, false, err
		}
		n++
		if err := faultsSeen.Put(tx, id, n); err != nil {
			return hit, false, err
		}
		if !f.Strikes(n) {
			continue
		}
		f.Hits++
		f.Seen = n
		if err := faults.Put(tx, &f); err != nil {
			return hit, false, err
		}
		usedUp = usedUp || f.Spent()
		if f.Effect.Type != cloudsim.FaultLatency {
			hit.Fault = &f
			return hit, usedUp, nil
		}
		hit.Latency += f.Latency(n)
	}
	return hit, usedUp, nil
}

// place is where a resource is and how it is labelled, whatever its kind.
type place struct {
	Name   string            `json:"name"`
	Zone   string            `json:"zone"`
	Type   string            `json:"type"`
	Labels map[string]string `json:"labels"`
}

func (p *place) in(m cloudsim.FaultMatch) bool {
	if m.Zone != "" && m.Zone != p.Zone || m.Type != "" && m.Type != p.Type {
		return false
	}
	for k, want := range m.Labels {
		if have, ok := p.Labels[k]; !ok || have != want {
			return false
		}
	}
	return true
}

// placeOf is the place of the resource that the call names, else of the one
// that its request describes. A call about neither is nowhere.
func (e *Engine) placeOf(s Subject) (*place, error) {
	p := &place{}
	if s.Target != "" {
		noun, _, _ := strings.Cut(s.Operation, ".")
		table := store.Table[place]{Kind: kindOfNoun(noun)}
		err := e.store.View(func(tx *store.Tx) (err error) {
			*p, err = table.Get(tx, s.Target)
			return err
		})
		if errors.Is(err, cloudsim.NotFound) {
			return &place{}, nil // the call itself will say so
		}
		return p, err
	}
	if s.Body != nil {
		raw, err := json.Marshal(s.Body)
		if err != nil {
			return nil, err
		}
		_ = json.Unmarshal(raw, p) // a zone or labels of another form match nothing
	}
	return p, nil
}

// kindOfNoun is the kind that operations of a noun are about: their nouns are
// its plural.
func kindOfNoun(noun string) cloudsim.ResourceKind {
	if stem, ok := strings.CutSuffix(noun, "ies"); ok {
		return cloudsim.ResourceKind(stem + "y") // repository
	}
	kind := strings.TrimSuffix(noun, "s")
	if strings.HasSuffix(kind, "sse") {
		kind = strings.TrimSuffix(kind, "e") // address
	}
	return cloudsim.ResourceKind(kind)
}

// everywhere is call as one of no project, for what belongs to none: faults
// and keys.
func everywhere(ctx context.Context) (context.Context, error) {
	call, err := callOf(ctx)
	call.Project = ""
	return context.WithValue(ctx, callKey{}, call), err
}

// CreateFault makes a fault. Calls that begin after it returned meet it.
func (e *Engine) CreateFault(ctx context.Context, req cloudsim.CreateFault) (f cloudsim.Fault, err error) {
	if err := req.Validate(); err != nil {
		return f, err
	}
	if req.When.Seed == 0 && (req.When.Probability != nil || req.Effect.JitterMillis > 0) {
		req.When.Seed = e.cfg.Seed // the cloud's dice, unless it has its own
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if f, err = once(tx, call, faults, req, func() (cloudsim.Fault, error) { return makeFault(tx, req) }); err != nil {
			return err
		}
		f, err = withSeen(tx, f)
		return err
	})
	if err != nil {
		return cloudsim.Fault{}, err
	}
	return f, e.loadFaults()
}

func makeFault(tx *store.Tx, req cloudsim.CreateFault) (f cloudsim.Fault, err error) {
	have, err := faults.Named(tx, "", req.Name)
	switch {
	case err == nil && (!sameFault(have.FaultSpec, req.FaultSpec) || !maps.Equal(have.Labels, req.Labels)):
		return have, taken(cloudsim.KindFault, req.Name, string(have.ID), "other words: delete it first")
	case err == nil:
		return have, nil
	case !errors.Is(err, cloudsim.NotFound):
		return f, err
	}
	if req.Match.Zone != "" && !zones.Has(tx, req.Match.Zone) {
		return f, unknown("match.zone", req.Match.Zone, "see GET /v1/zones")
	}
	id, err := faults.NextID(tx)
	if err != nil {
		return f, err
	}
	f = cloudsim.Fault{ID: cloudsim.FaultID(id), Meta: cloudsim.Meta{Name: req.Name, Labels: req.Labels}, FaultSpec: req.FaultSpec}
	if err := faults.Put(tx, &f); err != nil {
		return f, err
	}
	return f, begins(tx, f)
}

// sameFault compares what two specs say on the wire.
func sameFault(a, b cloudsim.FaultSpec) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// withSeen is f with the calls it has seen until now.
func withSeen(tx *store.Tx, f cloudsim.Fault) (cloudsim.Fault, error) {
	n, _, err := faultsSeen.Get(tx, string(f.ID))
	f.Seen = n
	return f, err
}

// GetFault returns a fault and what it has counted.
func (e *Engine) GetFault(ctx context.Context, id cloudsim.FaultID) (f cloudsim.Fault, err error) {
	call, err := callOf(ctx)
	if err != nil {
		return f, err
	}
	err = e.store.View(func(tx *store.Tx) error {
		if f, err = get(tx, call, faults, string(id)); err != nil {
			return err
		}
		f, err = withSeen(tx, f)
		return err
	})
	return f, err
}

// ListFaults returns one page of faults and what they have counted.
func (e *Engine) ListFaults(ctx context.Context, o cloudsim.ListOptions) (l cloudsim.List[cloudsim.Fault], err error) {
	if ctx, err = everywhere(ctx); err != nil {
		return l, err
	}
	if l, err = page(ctx, e, faults, o, func(f *cloudsim.Fault) string { return f.Match.Zone }); err != nil {
		return l, err
	}
	err = e.store.View(func(tx *store.Tx) error {
		for i := range l.Items {
			if l.Items[i], err = withSeen(tx, l.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return l, err
}

// DeleteFault removes a fault and its counts. Calls that begin after it
// returned do not meet it.
func (e *Engine) DeleteFault(ctx context.Context, id cloudsim.FaultID) error {
	if err := e.update(ctx, func(tx *store.Tx, call Call) error {
		f, err := get(tx, call, faults, string(id))
		if err != nil {
			return err
		}
		if f, err = withSeen(tx, f); err != nil {
			return err
		}
		if err := faultsSeen.Delete(tx, string(id)); err != nil {
			return err
		}
		return errors.Join(faults.Delete(tx, &f), e.letGoAll(tx, string(id)), keepOutages(tx)) // first: it must not keep what it lets go
	}); err != nil {
		return err
	}
	return e.loadFaults()
}
