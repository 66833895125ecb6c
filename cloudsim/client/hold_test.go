package client_test

import (
	"errors"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

func everyHoldVerb(t *testing.T, c *client.Client) {
	ctx := t.Context()
	h := must(c.CreateHold(ctx, cloudsim.CreateHold{Name: "h", HoldSpec: cloudsim.HoldSpec{
		Transition: cloudsim.Transition{Kind: cloudsim.KindInstance, Verb: cloudsim.Any},
	}}))(t)
	must(c.GetHold(ctx, h.ID))(t)
	must(c.ListHolds(ctx, cloudsim.ListOptions{}))(t)
	i := must(c.CreateInstance(ctx, instance("held")))(t)
	if op := must(c.GetOperation(ctx, i.Operation))(t); op.HeldBy != string(h.ID) || op.Percent != 99 {
		t.Errorf("held operation: got %+v, want 99 percent and the ID of the hold", op)
	}
	must(c.ReleaseOperation(ctx, i.Operation))(t)
	if op := must(c.WaitOperation(ctx, i.Operation))(t); op.State != cloudsim.OperationDone || op.Percent != 100 {
		t.Errorf("released operation: got %+v, want done with 100 percent", op)
	}
	i = must(c.DeleteInstance(ctx, i.ID))(t)
	if _, err := c.CancelOperation(ctx, i.Operation); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("cancellation of a deletion: got error %v, want Conflict", err)
	}
	if err := c.DeleteHold(ctx, h.ID); err != nil {
		t.Error(err)
	}
	if op := must(c.WaitOperation(ctx, i.Operation))(t); op.State != cloudsim.OperationDone {
		t.Errorf("operation after the hold: got %+v, want done", op)
	}
	want := cloudsim.WorkDurations{Items: []cloudsim.WorkDuration{{Transition: cloudsim.Transition{Kind: cloudsim.KindDisk, Verb: cloudsim.Attach}, Millis: 5}}}
	must(c.SetDurations(ctx, want))(t)
	if got := must(c.GetDurations(ctx))(t); len(got.Items) != 1 || got.Items[0] != want.Items[0] {
		t.Errorf("durations: got %+v, want the duration that was set", got)
	}
	must(c.SetDurations(ctx, cloudsim.WorkDurations{}))(t)
	_, err := c.CreateHold(ctx, cloudsim.CreateHold{Name: "bad", HoldSpec: cloudsim.HoldSpec{Transition: cloudsim.Transition{Kind: "zone", Verb: "stop"}}})
	if e, _ := errors.AsType[*cloudsim.Error](err); e == nil || e.Kind != cloudsim.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != "kind" {
		t.Errorf("hold of a zone: got error %v, want Invalid with the field kind", err)
	}
}
