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

// faultsSeen stores the number of matching calls of each fault, by the fault's id. If a fault
// matches a call but does not hit it, only this number changes. The field Seen of the stored fault
// does not change, because this change would write an event. So the field Seen of the stored fault
// contains the number at the last hit.
var faultsSeen = store.Notes[uint64]{Name: "faultsSeen"}

// faultRules is a copy in memory of the faults that can still hit calls.
// Because of this copy, Decide needs no write transaction for a call that
// matches no fault. Only one process uses the store's file, so the copy is
// outdated only while this process changes the faults.
type faultRules struct {
	loading sync.Mutex // only one load runs at a time, so that an older load cannot overwrite a newer result
	live    atomic.Pointer[[]cloudsim.Fault]
}

// loadFaults copies the faults from the store to memory. Call loadFaults after each commit that
// creates or deletes faults. Also call it after a commit in which a fault reaches its maximum
// number of hits. Otherwise Decide uses an outdated copy.
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

// Subject describes a call: its operation, its target and its request.
type Subject struct {
	Operation string // operation id
	Target    string // id of the resource in the URL path; "" for none
	Body      any    // decoded request, which may contain labels and a zone; nil for none
}

// Strike is the effect of faults on one call. The zero value has no effect.
type Strike struct {
	Latency time.Duration   // delay before the effect of Fault
	Fault   *cloudsim.Fault // the fault that decides the outcome of the call; nil for none
}

// Decide returns the effect of faults on an authorized call. If no fault matches, Decide does not
// write to the store. Otherwise, before it returns, Decide commits the new counts of the matching
// faults, and an event for each hit. A fault therefore never hits more often than its limit, even
// after a crash or with concurrent calls.
func (e *Engine) Decide(ctx context.Context, s Subject) (hit Strike, err error) {
	live := e.rules.live.Load()
	if live == nil || len(*live) == 0 {
		return hit, nil
	}
	call, err := callOf(ctx)
	if err != nil {
		return hit, err
	}
	ids, err := e.matchingFaults(*live, call, s)
	if err != nil || len(ids) == 0 {
		return hit, err
	}
	usedUp := false
	err = e.store.Update(call.RequestID, func(tx *store.Tx) (err error) {
		tx.Caller, tx.Cause = call.Caller, strings.TrimSpace(s.Operation+" "+s.Target)
		hit, usedUp, err = countStrikes(tx, ids)
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

// matchingFaults returns the ids of the faults in list that match a call, in the
// order of list. It reads the zone, type and labels of the target at most once,
// and only if a fault needs these values.
func (e *Engine) matchingFaults(list []cloudsim.Fault, call Call, s Subject) (ids []string, err error) {
	now := e.Now()
	var at *resourceInfo
	for i := range list {
		f := &list[i]
		m := f.Match
		if !m.Covers(s.Operation) || !f.Effect.Strikes(s.Operation) || !m.CoversDialect(call.DialectCall) || m.Caller != "" && m.Caller != call.Caller || m.Target != "" && m.Target != s.Target || !f.ActiveAt(now) {
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

// countStrikes applies the given faults to one API call, in the order of ids, and returns their
// effect. If a fault hits the call and the effect of the fault is not latency, countStrikes skips
// the remaining faults. For each active fault that it does not skip, it increments the number in
// faultsSeen. The result usedUp is true if one of these faults can never hit again.
func countStrikes(tx *store.Tx, ids []string) (hit Strike, usedUp bool, err error) {
	for _, id := range ids {
		f, err := faults.Get(tx, id)
		if errors.Is(err, cloudsim.NotFound) {
			continue // a call deleted the fault after loadFaults had copied it
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

type resourceInfo struct {
	Name   string            `json:"name"`
	Zone   string            `json:"zone"`
	Type   string            `json:"type"`
	Labels map[string]string `json:"labels"`
}

func (p *resourceInfo) in(m cloudsim.FaultMatch) bool {
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

// placeOf returns the name, zone, type and labels of the target of a call. If the call has no
// target, placeOf reads these values from the request. If the target does not exist, or the call
// has neither target nor request, placeOf returns an empty resourceInfo.
func (e *Engine) placeOf(s Subject) (*resourceInfo, error) {
	p := &resourceInfo{}
	if s.Target != "" {
		noun, _, _ := strings.Cut(s.Operation, ".")
		err := e.store.View(func(tx *store.Tx) (err error) {
			*p, err = infoOf(tx, kindOfNoun(noun), s.Target)
			return err
		})
		return p, err
	}
	if s.Body != nil {
		raw, err := json.Marshal(s.Body)
		if err != nil {
			return nil, err
		}
		_ = json.Unmarshal(raw, p) // a zone or labels with another JSON type match no fault
	}
	return p, nil
}

// infoOf returns the name, zone, type and labels of a resource. If the resource does not exist,
// infoOf returns an empty resourceInfo.
func infoOf(tx *store.Tx, kind cloudsim.ResourceKind, id string) (resourceInfo, error) {
	info, err := store.Table[resourceInfo]{Kind: kind}.Get(tx, id)
	if errors.Is(err, cloudsim.NotFound) {
		return resourceInfo{}, nil
	}
	return info, err
}

// kindOfNoun returns the resource kind for the noun of an operation id. For
// example, the operation disks.create has the noun disks and the kind disk. It
// returns "" if no kind has this noun.
func kindOfNoun(noun string) cloudsim.ResourceKind {
	for _, kind := range cloudsim.ResourceKinds() {
		if nounOfKind(kind) == noun {
			return kind
		}
	}
	return ""
}

// withoutProject returns a copy of ctx in which the present call belongs to no project. The methods
// that list faults, holds and signing keys use this ctx, because these resources belong to no
// project.
func withoutProject(ctx context.Context) (context.Context, error) {
	call, err := callOf(ctx)
	call.Project = ""
	return context.WithValue(ctx, callKey{}, call), err
}

// CreateFault creates a fault, or returns the existing fault with the same name and fields. A new
// fault applies to calls that begin after CreateFault returned.
func (e *Engine) CreateFault(ctx context.Context, req cloudsim.CreateFault) (f cloudsim.Fault, err error) {
	if err := req.Validate(); err != nil {
		return f, err
	}
	if req.When.Seed == 0 && (req.When.Probability != nil || req.Effect.JitterMillis > 0) {
		req.When.Seed = e.cfg.Seed // the request has no seed, so the fault uses the cloud's seed
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if f, err = idempotent(tx, call, faults, req, func() (cloudsim.Fault, error) { return makeFault(tx, req) }); err != nil {
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
		return have, errNameTaken(cloudsim.KindFault, req.Name, string(have.ID), "other fields")
	case err == nil:
		return have, nil
	case !errors.Is(err, cloudsim.NotFound):
		return f, err
	}
	if req.Match.Zone != "" && !zones.Has(tx, req.Match.Zone) {
		return f, errUnknownReference("match.zone", req.Match.Zone, "see GET /v1/zones")
	}
	id, err := faults.NextID(tx)
	if err != nil {
		return f, err
	}
	f = cloudsim.Fault{ID: cloudsim.FaultID(id), Meta: cloudsim.Meta{Name: req.Name, Labels: req.Labels}, FaultSpec: req.FaultSpec}
	if err := faults.Put(tx, &f); err != nil {
		return f, err
	}
	return f, scheduleFault(tx, f)
}

func sameFault(a, b cloudsim.FaultSpec) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

func withSeen(tx *store.Tx, f cloudsim.Fault) (cloudsim.Fault, error) {
	n, _, err := faultsSeen.Get(tx, string(f.ID))
	f.Seen = n
	return f, err
}

// GetFault returns a fault and its counts.
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

// ListFaults returns one page of faults and their counts.
func (e *Engine) ListFaults(ctx context.Context, o cloudsim.ListOptions) (l cloudsim.List[cloudsim.Fault], err error) {
	if ctx, err = withoutProject(ctx); err != nil {
		return l, err
	}
	if l, err = listPage(ctx, e.core, faults, o, func(f *cloudsim.Fault) string { return f.Match.Zone }); err != nil {
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

// DeleteFault removes a fault and its counts. It ends the zone outage of the fault, and releases
// the operations that the fault blocks. The fault does not apply to calls that begin after
// DeleteFault returned.
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
		return errors.Join(faults.Delete(tx, &f), e.releaseAll(tx, string(id)), keepOutages(tx)) // delete the fault before the release: the fault must not block the released operations again
	}); err != nil {
		return err
	}
	return e.loadFaults()
}
