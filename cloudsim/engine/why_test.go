package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func authorizedContext(t *testing.T, e *engine.Engine, id, operation string) context.Context {
	t.Helper()
	ctx, err := e.Authorize(t.Context(), engine.Request{ID: id, Secret: "secret", Operation: operation, Access: engine.Write, Project: engine.DefaultProject})
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// TestWhy proves that the method Why returns the history of an object: its operations, and its
// calls with their callers and request ids. Why also returns the hold that blocks an operation.
// After the deletion of the object, Why reports that the object is gone.
func TestWhy(t *testing.T) {
	e, stop := boot(t, file(t), frozen)
	defer stop()
	as := func(id, operation string) context.Context { return authorizedContext(t, e, id, operation) }
	i := mustCreate(t, e, as("req-make", "instances.create"), "node-1")
	advance(t, e, engine.AsCloud(t.Context()), time.Hour)
	if _, err := e.CreateHold(as("req-hold", "holds.create"), cloudsim.CreateHold{Name: "slow-stop", HoldSpec: cloudsim.HoldSpec{
		Transition: cloudsim.Transition{Kind: cloudsim.KindInstance, Verb: cloudsim.Stop},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.StopInstance(as("req-stop", "instances.stop"), i.ID); err != nil {
		t.Fatal(err)
	}
	advance(t, e, engine.AsCloud(t.Context()), time.Hour)
	w := whyOf(t, e, as("req-why", "why.get"), "instance/node-1")
	if w.ID != string(i.ID) || w.State != "stopping" || len(w.Waits) != 1 || !strings.Contains(w.Waits[0].Text, "hold slow-stop prevents the end of operation") {
		t.Errorf("why of the held stop: got %+v, want state stopping and one wait for the hold slow-stop", w)
	}
	for _, want := range []struct{ request, cause, text string }{
		{"req-make", "instances.create", "created: provisioning"},
		{"", "settle op-000001", "provisioning → running"},
		{"req-stop", "instances.stop", "running → stopping"},
		{"req-stop", "instances.stop", "stop of i-000001, requested by admin in request req-stop: running"},
		{"", "settle op-000002", "held by hold-000001"},
	} {
		if !tells(w, want.request, want.cause, want.text) {
			t.Errorf("step %+v is missing in %+v", want, w.Steps)
		}
	}
	if _, err := e.DeleteInstance(as("req-delete", "instances.delete"), i.ID); err != nil {
		t.Fatal(err)
	}
	advance(t, e, engine.AsCloud(t.Context()), time.Hour)
	if w := whyOf(t, e, as("req-why", "why.get"), string(i.ID)); !w.Gone || len(w.Waits) != 0 || !tells(w, "", "settle op-000003", "deleted") {
		t.Errorf("why of a deleted object: got %+v", w)
	}
	if _, err := e.Why(as("req-why", "why.get"), "instance/nobody"); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("why of an unknown object: got error %v", err)
	}
}

// TestWhyRequest proves that the answer of WhyRequest contains the call, its
// operation, the changes that the operation made, and the faults that affected
// the call. The answer does not contain the effects of other requests. A caller
// without access to the audit trail gets an answer without the call.
func TestWhyRequest(t *testing.T) {
	e, stop := boot(t, file(t), frozen)
	defer stop()
	cloud := engine.AsCloud(t.Context())
	i := mustCreate(t, e, authorizedContext(t, e, "req-make", "instances.create"), "node-1")
	advance(t, e, cloud, time.Hour)
	must(e.StopInstance(authorizedContext(t, e, "req-stop", "instances.stop"), i.ID))(t)
	e.Record(cloudsim.AuditEntry{RequestID: "req-stop", Operation: "instances.stop", Target: string(i.ID), Caller: "admin", Outcome: cloudsim.OutcomeOK, Status: 202})
	e.Record(cloudsim.AuditEntry{RequestID: "req-other", Operation: "instances.get"})
	why := func(ctx context.Context, id string) cloudsim.Why { return must(e.WhyRequest(ctx, id))(t) }
	if w := why(cloud, "req-stop"); len(w.Waits) != 1 || !strings.Contains(w.Waits[0].Text, "operation op-000002 (stop) ends in") {
		t.Errorf("waits of a running operation: got %+v, want one wait for the end of op-000002", w.Waits)
	}
	advance(t, e, cloud, time.Hour)
	must(e.StartInstance(authorizedContext(t, e, "req-start", "instances.start"), i.ID))(t)
	advance(t, e, cloud, time.Hour)

	w := why(cloud, "req-stop")
	if w.Kind != cloudsim.WhyOfRequest || w.Name != "instances.stop" || w.State != "ok" || len(w.Calls) != 1 || w.Calls[0].Status != 202 || len(w.Waits) != 0 {
		t.Errorf("why of the request req-stop: got %+v, want instances.stop with state ok, 1 call with status 202 and no waits", w)
	}
	for _, want := range []struct{ request, cause, text string }{
		{"req-stop", "instances.stop", "running → stopping"},
		{"req-stop", "instances.stop", "stop of i-000001, requested by admin in request req-stop: running"},
		{"", "settle op-000002", "stopping → stopped"},
		{"", "settle op-000002", "requested by admin in request req-stop: done"},
	} {
		if !tells(w, want.request, want.cause, want.text) {
			t.Errorf("step %+v is missing in %+v", want, w.Steps)
		}
	}
	if len(w.Steps) != 4 {
		t.Errorf("steps: got %+v, want 4", w.Steps)
	}

	mustFault(t, e, fault("flaky", "instances.create"))
	must(e.Decide(authorizedContext(t, e, "req-struck", "instances.create"), engine.Subject{Operation: "instances.create"}))(t)
	if w := why(cloud, "req-struck"); !tells(w, "req-struck", "instances.create", "(flaky) changed the call: error") {
		t.Errorf("request that a fault hit: got %+v", w)
	}

	tok := must(e.CreateToken(cloud, cloudsim.CreateToken{Name: "reader", Role: cloudsim.RoleReader, Project: i.Project}))(t)
	reader := must(e.Authorize(t.Context(), engine.Request{Secret: tok.Secret, Operation: "why.get"}))(t)
	if w := why(reader, "req-stop"); len(w.Steps) != 4 || len(w.Calls) != 0 {
		t.Errorf("request for a reader: got %+v, want 4 steps and no calls", w)
	}
	p := must(e.CreateProject(cloud, cloudsim.CreateProject{Name: "other"}))(t)
	for name, tc := range map[string]struct {
		ctx  context.Context
		id   string
		kind cloudsim.Kind
	}{
		"unknown request":            {cloud, "req-nothing", cloudsim.NotFound},
		"part of a request id":       {cloud, "req-sto", cloudsim.NotFound},
		"request of another project": {enter(t, e, must(e.CreateToken(cloud, cloudsim.CreateToken{Name: "theirs", Role: cloudsim.RoleWriter, Project: p.ID}))(t).Secret, ""), "req-stop", cloudsim.NotFound},
		"no id":                      {cloud, "", cloudsim.Invalid},
	} {
		if _, err := e.WhyRequest(tc.ctx, tc.id); !errors.Is(err, tc.kind) {
			t.Errorf("%s: got error %v, want %v", name, err, tc.kind)
		}
	}
}

// TestWhyTellsOfFaults proves that the method Why returns the faults that affected calls
// about an object, and the faults that may affect later calls. Why does not return faults for
// another zone, another type or other labels.
func TestWhyTellsOfFaults(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), instant)
	defer stop()
	i := mustCreate(t, e, ctx, "node-1")
	if _, err := e.CreateFault(ctx, cloudsim.CreateFault{Name: "flaky", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "instances.*"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultError},
	}}); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]cloudsim.FaultMatch{
		"zone": {Zone: "sim-1b"}, "type": {Type: "no-type"}, "labels": {Labels: map[string]string{"app": "other"}}, "target": {Target: string(i.ID), Zone: "sim-1b"},
	} {
		m.Operation = "instances.*"
		must(e.CreateFault(ctx, cloudsim.CreateFault{Name: name, FaultSpec: cloudsim.FaultSpec{Match: m, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultError}}}))(t)
	}
	struck := authorizedContext(t, e, "req-struck", "instances.stop")
	if hit, err := e.Decide(struck, engine.Subject{Operation: "instances.stop", Target: string(i.ID)}); err != nil || hit.Fault == nil {
		t.Fatalf("call that matches the fault: got %+v, error %v, want a hit", hit, err)
	}
	w := whyOf(t, e, ctx, string(i.ID))
	if !tells(w, "req-struck", "instances.stop "+string(i.ID), "fault fault-000001 (flaky) changed the call: error") {
		t.Errorf("steps: %+v", w.Steps)
	}
	if len(w.Waits) != 1 || w.Waits[0].ID != "fault-000001" {
		t.Errorf("waits: %+v", w.Waits)
	}
}

func whyOf(t *testing.T, e *engine.Engine, ctx context.Context, object string) cloudsim.Why {
	t.Helper()
	w, err := e.Why(ctx, object)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func tells(w cloudsim.Why, request, cause, text string) bool {
	for _, s := range w.Steps {
		if s.RequestID == request && s.Cause == cause && strings.Contains(s.Text, text) && s.Caller != "" {
			return true
		}
	}
	return false
}

// TestWhyFindsEachName proves that the method Why finds a record by its kind and name, even if the
// name contains characters that the JSON format escapes.
func TestWhyFindsEachName(t *testing.T) {
	e, stop := boot(t, file(t), instant)
	defer stop()
	ctx := engine.AsCloud(t.Context())
	for _, name := range []string{"R&D", `say "hi"`, "a<b", `a\b`, "Köln"} {
		r := must(e.CreateRecord(ctx, cloudsim.CreateRecord{Name: name, Kind: "group", Document: []byte("{}")}))(t)
		if w, err := e.Why(ctx, "record/"+name); err != nil || w.ID != string(r.ID) {
			t.Errorf("%s: got %q, error %v; want %s", name, w.ID, err, r.ID)
		}
	}
}
