package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Why explains how an object reached its present state. The caller names the object by its id or by
// kind/name. Why reads the journal. It can therefore also explain deleted objects while the journal
// still has their events. If the caller may see none of the object's events in the journal, Why
// returns NotFound.
func (e *Engine) Why(ctx context.Context, object string) (w cloudsim.Why, err error) {
	call, err := callOf(ctx)
	if err != nil {
		return w, err
	}
	if object == "" || len(object) > 200 {
		return w, cloudsim.InvalidField("query.object", "must be an id such as i-000001, or kind/name such as instance/node-1")
	}
	err = e.store.View(func(tx *store.Tx) error {
		kind, id, err := whatIs(tx, call, object)
		if err != nil {
			return err
		}
		w = cloudsim.Why{Kind: kind, ID: id, Since: tx.Floor(), Steps: []cloudsim.WhyStep{}, Waits: []cloudsim.WhyWait{}}
		s := whyReader{why: &w, hears: call.eventFilter(), requests: map[string]bool{}}
		if err := s.read(tx); err != nil {
			return err
		}
		return s.addWaits(tx)
	})
	return w, err
}

// WhyRequest explains the effects of the request with the given id. It fills the field Calls of the
// result only if the caller may list the audit trail. WhyRequest returns NotFound if the result
// contains neither calls nor steps.
func (e *Engine) WhyRequest(ctx context.Context, id string) (w cloudsim.Why, err error) {
	call, err := callOf(ctx)
	if err != nil {
		return w, err
	}
	if id == "" || len(id) > 64 {
		return w, cloudsim.InvalidField("query.request", "must be the id of a request, such as req-0123456789abcdef")
	}
	err = e.store.View(func(tx *store.Tx) error {
		w = cloudsim.Why{Kind: cloudsim.WhyOfRequest, ID: id, Since: tx.Floor(), Steps: []cloudsim.WhyStep{}, Waits: []cloudsim.WhyWait{}}
		return addEffects(tx, call.eventFilter(), &w)
	})
	if err != nil {
		return w, err
	}
	if call.mayEverywhere("audit.list", Admin) {
		w.Calls = e.ledger.ofRequest(id)
	}
	if n := len(w.Calls); n > 0 {
		w.Name, w.State = w.Calls[n-1].Operation, w.Calls[n-1].Outcome
	}
	if len(w.Calls)+len(w.Steps) == 0 {
		limits := "and the audit trail contains only the newest calls since the start"
		if !call.mayEverywhere("audit.list", Admin) {
			limits = "and only callers with the permission audit.list in all projects see calls"
		}
		return w, cloudsim.Errorf(cloudsim.NotFound, "found no call, event or operation with the request id %.80q: the journal begins after revision %d, %s", id, w.Since, limits)
	}
	return w, nil
}

// addEffects adds the effects of the request w.ID to w:
//   - For each event that the request caused, it adds a step.
//   - For each event at the end of an operation that the request began, it adds a step.
//   - If an operation that the request began has not ended, it adds the reasons why this operation
//     waits.
func addEffects(tx *store.Tx, hears func(cloudsim.Event) bool, w *cloudsim.Why) error {
	type object struct {
		kind cloudsim.ResourceKind
		id   string
	}
	touched := map[object]*whyReader{}
	var begun []cloudsim.OperationID
	faults := whyReader{why: w, hears: hears}
	if err := tx.Mentions(`"`+w.ID+`"`, func(ev cloudsim.Event) error {
		at := object{ev.Kind, ev.ID}
		switch {
		case !hears(ev):
			return nil
		case ev.Kind == cloudsim.KindOperation:
			op, err := operationOf(ev)
			if err != nil || op.RequestID != w.ID {
				return err
			}
			at = object{op.Kind, op.Target}
			begun = append(begun, op.ID)
		case ev.RequestID != w.ID:
			return nil
		case ev.Kind == cloudsim.KindFault:
			faults.addFault(ev)
		}
		if touched[at] == nil {
			touched[at] = &whyReader{why: &cloudsim.Why{Kind: at.kind, ID: at.id}, hears: hears, requests: map[string]bool{}}
		}
		return nil
	}); err != nil || len(touched) == 0 {
		return err
	}
	slices.Sort(begun)
	begun = slices.Compact(begun)
	// Read the journal once for all objects, because a request can change thousands of objects.
	word := ""
	if len(touched) == 1 { // the usual case: decode only the events that contain the ID of the object
		for at := range touched {
			word = `"` + at.id + `"`
		}
	}
	if err := tx.Mentions(word, func(ev cloudsim.Event) error {
		if !hears(ev) {
			return nil
		}
		if r := touched[object{ev.Kind, ev.ID}]; r != nil {
			return r.addChange(ev)
		}
		if ev.Kind != cloudsim.KindOperation {
			return nil
		}
		op, err := operationOf(ev)
		if r := touched[object{op.Kind, op.Target}]; err == nil && r != nil {
			r.addOperation(ev, op)
		}
		return err
	}); err != nil {
		return err
	}
	for _, r := range touched {
		for _, step := range r.why.Steps {
			op, ends := strings.CutPrefix(step.Cause, "settle ")
			_, own := slices.BinarySearch(begun, cloudsim.OperationID(op))
			if step.RequestID == w.ID || ends && own {
				w.Steps = append(w.Steps, step)
			}
		}
	}
	sortSteps(w)
	for _, id := range begun {
		op, err := operations.Get(tx, string(id))
		switch {
		case errors.Is(err, cloudsim.NotFound): // the cloud has already deleted the finished operation
			continue
		case err != nil:
			return err
		case op.Over():
			continue
		}
		if err := faults.waitsFor(tx, op); err != nil {
			return err
		}
	}
	return nil
}

// sortSteps sorts the steps by revision, removes duplicates, and keeps the newest
// MaxWhySteps steps.
func sortSteps(w *cloudsim.Why) {
	slices.SortStableFunc(w.Steps, func(a, b cloudsim.WhyStep) int { return cmp.Compare(a.Rev, b.Rev) })
	w.Steps = slices.CompactFunc(w.Steps, func(a, b cloudsim.WhyStep) bool { return a.Rev == b.Rev })
	if n := len(w.Steps); n > cloudsim.MaxWhySteps {
		w.Steps = w.Steps[n-cloudsim.MaxWhySteps:]
	}
}

// whatIs returns the kind and the id of an object. The caller names the object by its id or by
// kind/name. If several objects have had this name, whatIs returns the object with the latest
// event.
func whatIs(tx *store.Tx, call Call, object string) (kind cloudsim.ResourceKind, id string, err error) {
	wantKind, word, named := strings.Cut(object, "/")
	if !named {
		word = object
	}
	text, err := json.Marshal(word) // the journal contains names as JSON: the name of a record can contain quotes
	if err != nil {
		return "", "", err
	}
	hears := call.eventFilter()
	err = tx.Mentions(string(text), func(ev cloudsim.Event) error {
		if !hears(ev) || named && !strings.EqualFold(string(ev.Kind), wantKind) {
			return nil
		}
		var head struct{ Name string }
		if ev.ID == word || named && json.Unmarshal(ev.Object, &head) == nil && head.Name == word {
			kind, id = ev.Kind, ev.ID
		}
		return nil
	})
	if err == nil && id == "" {
		hint := "an id such as i-000001, or kind/name such as instance/node-1"
		err = cloudsim.Errorf(cloudsim.NotFound, "no object %.80q in the journal, which begins after revision %d: use %s", object, tx.Floor(), hint)
	}
	return kind, id, err
}

// whyReader collects the result of Why while the engine reads the journal.
type whyReader struct {
	why      *cloudsim.Why
	hears    func(cloudsim.Event) bool
	requests map[string]bool // ids of the requests that changed the object
	before   map[string]any  // the object before the next event
}

func (s *whyReader) read(tx *store.Tx) error {
	if err := tx.Mentions(s.why.ID, func(ev cloudsim.Event) error {
		if !s.hears(ev) {
			return nil
		}
		switch {
		case ev.ID == s.why.ID && ev.Kind == s.why.Kind:
			s.requests[ev.RequestID] = true
			return s.addChange(ev)
		case ev.Kind == cloudsim.KindOperation:
			op, err := operationOf(ev)
			if err == nil && op.Target == s.why.ID && op.Kind == s.why.Kind {
				s.addOperation(ev, op)
			}
			return err
		case ev.Kind == cloudsim.KindFault && slices.Contains(strings.Fields(ev.Cause), s.why.ID):
			s.addFault(ev)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.addFaultsOfCreation(tx); err != nil {
		return err
	}
	sortSteps(s.why)
	return nil
}

// addFaultsOfCreation adds a step for each fault that affected a request in s.requests. If a fault
// affects a create call, the event of the fault does not contain the object's id. Therefore
// addFaultsOfCreation finds the faults by the ids of the requests.
func (s *whyReader) addFaultsOfCreation(tx *store.Tx) error {
	delete(s.requests, "")
	return tx.Mentions(`"kind":"`+string(cloudsim.KindFault)+`"`, func(ev cloudsim.Event) error {
		if ev.Kind == cloudsim.KindFault && s.requests[ev.RequestID] && s.hears(ev) {
			s.addFault(ev)
		}
		return nil
	})
}

func (s *whyReader) add(ev cloudsim.Event, text string) {
	s.why.Steps = append(s.why.Steps, cloudsim.WhyStep{
		Rev: ev.Rev, Time: ev.Time, Caller: ev.Caller, Cause: ev.Cause, RequestID: ev.RequestID, Kind: ev.Kind, ID: ev.ID, Text: text,
	})
}

// addChange adds a step for an event of the object. The step describes the
// differences from the previous event of the object.
func (s *whyReader) addChange(ev cloudsim.Event) error {
	now := map[string]any{}
	if err := json.Unmarshal(ev.Object, &now); err != nil {
		return fmt.Errorf("event %d: %w", ev.Rev, err)
	}
	s.why.Name, _ = now["name"].(string)
	state, _ := now["state"].(string)
	was, _ := s.before["state"].(string)
	var text []string
	switch {
	case s.before == nil && now["createdAt"] == now["updatedAt"]:
		text = append(text, strings.TrimSuffix("created: "+state, ": "))
	case s.before == nil: // the journal does not have the event of the creation
		text = append(text, strings.TrimSuffix("exists: "+state, ": "))
	case state != was:
		text = append(text, was+" → "+state)
	}
	if s.before != nil {
		text = append(text, describeChanges(s.before, now)...)
	}
	if s.why.Gone = ev.Type == cloudsim.EventDelete; s.why.Gone && state != "deleted" {
		text = append(text, "deleted")
	}
	s.before, s.why.State = now, state
	if s.why.Gone {
		s.before = nil
	}
	s.add(ev, strings.Join(text, "; "))
	return nil
}

// describeChanges describes the new and changed fields, in the order of their names. It omits
// revision and updatedAt, because these fields change in every event. It also omits state, because
// addChange describes the change of the state.
func describeChanges(before, after map[string]any) (text []string) {
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if k == "revision" || k == "updatedAt" || k == "state" || reflect.DeepEqual(before[k], after[k]) {
			continue
		}
		v, err := json.Marshal(after[k])
		if err != nil || len(v) > 120 {
			text = append(text, k+" changed")
			continue
		}
		text = append(text, k+" is "+string(v))
	}
	return text
}

func operationOf(ev cloudsim.Event) (op cloudsim.Operation, err error) {
	if err := json.Unmarshal(ev.Object, &op); err != nil {
		return op, fmt.Errorf("event %d: %w", ev.Rev, err)
	}
	return op, nil
}

// addOperation adds a step for op, an operation on the object. The event ev contains op.
func (s *whyReader) addOperation(ev cloudsim.Event, op cloudsim.Operation) {
	if ev.Type == cloudsim.EventDelete {
		return
	}
	s.requests[op.RequestID] = true
	text := fmt.Sprintf("%s of %s, requested by %s in request %s: %s", op.Verb, op.Target, op.Caller, op.RequestID, op.State)
	if op.RequestID == "" {
		text = fmt.Sprintf("%s of %s, begun by the cloud: %s", op.Verb, op.Target, op.State)
	}
	switch {
	case op.Error != nil:
		text += ": " + op.Error.Detail
	case op.HeldBy != "":
		text += ", held by " + op.HeldBy
	case op.Released && !op.Over():
		text += ", released"
	case !op.Over() && op.DueAt != nil:
		text += ", due at " + op.DueAt.Format(time.RFC3339Nano)
	}
	s.add(ev, text)
}

// addFault adds a step for a fault that affected a call about the object.
func (s *whyReader) addFault(ev cloudsim.Event) {
	var f cloudsim.Fault
	if json.Unmarshal(ev.Object, &f) == nil && f.Hits > 0 && ev.RequestID != "" && ev.Type == cloudsim.EventPut {
		s.add(ev, fmt.Sprintf("fault %s (%s) changed the call: %s", f.ID, f.Name, f.Effect.Type))
	}
}

// addWaits adds the reasons why the object waits at present. It also adds the active faults that
// have the object as their target. If an active fault has no target, addWaits adds the fault only
// if the fault matches the get operation of the object's kind, for example "instances.get". It
// skips faults for another zone, another type or other labels.
func (s *whyReader) addWaits(tx *store.Tx) error {
	if s.why.Gone {
		return nil
	}
	id, _ := s.before["operation"].(string)
	op, err := operations.Get(tx, id)
	if err != nil && !errors.Is(err, cloudsim.NotFound) {
		return err
	}
	if err == nil && !op.Over() {
		if err := s.waitsFor(tx, op); err != nil {
			return err
		}
	}
	if !s.hears(cloudsim.Event{Kind: cloudsim.KindFault}) {
		return nil
	}
	info, err := infoOf(tx, s.why.Kind, s.why.ID)
	if err != nil {
		return err
	}
	for f, err := range faults.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		if f.ActiveAt(tx.Now) && info.in(f.Match) && (f.Match.Target == s.why.ID || f.Match.Target == "" && f.Match.Covers(nounOfKind(s.why.Kind)+".get")) {
			s.wait(string(f.ID), nil, fmt.Sprintf("fault %s can change calls about the object: %s on %s", f.Name, f.Effect.Type, f.Match.Operation))
		}
	}
	return nil
}

// waitsFor adds the reasons why an operation is not over.
func (s *whyReader) waitsFor(tx *store.Tx, op cloudsim.Operation) error {
	switch {
	case op.HeldBy != "":
		kind, name := "fault", op.HeldBy
		if h, err := holds.Get(tx, op.HeldBy); err == nil {
			kind, name = "hold", h.Name
		} else if f, err := faults.Get(tx, op.HeldBy); err == nil {
			name = f.Name
		}
		s.wait(op.HeldBy, nil, fmt.Sprintf("%s %s prevents the end of operation %s (%s): release the operation, or delete the %s", kind, name, op.ID, op.Verb, kind))
	case op.Kind == cloudsim.KindDisk && isDue(op, tx.Now):
		d, err := disks.Get(tx, op.Target)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("operation %s (%s) is %s", op.ID, op.Verb, op.State)
		if a, err := awaitedDevice(tx, &d); err == nil && a != nil {
			text += fmt.Sprintf(", until the hypervisor of %s reports the device", a.Instance)
		}
		s.wait(string(op.ID), nil, text)
	case op.DueAt != nil:
		text := fmt.Sprintf("operation %s (%s) ends in %s", op.ID, op.Verb, max(0, op.DueAt.Sub(tx.Now)).Round(time.Millisecond))
		if c := tx.Clock(); !c.Real() && c.Rate == 0 {
			text += "; the clock is stopped: advance or resume the clock"
		}
		s.wait(string(op.ID), op.DueAt, text)
	default:
		s.wait(string(op.ID), nil, fmt.Sprintf("operation %s (%s) is %s", op.ID, op.Verb, op.State))
	}
	for h, err := range holds.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		if h.Holds(op) && op.HeldBy == "" {
			s.wait(string(h.ID), nil, fmt.Sprintf("hold %s will prevent the end of operation %s (%s)", h.Name, op.ID, op.Verb))
		}
	}
	return nil
}

func isDue(op cloudsim.Operation, now time.Time) bool {
	return op.DueAt == nil || !now.Before(*op.DueAt)
}

func (s *whyReader) wait(id string, until *time.Time, text string) {
	s.why.Waits = append(s.why.Waits, cloudsim.WhyWait{ID: id, Until: until, Text: text})
}
