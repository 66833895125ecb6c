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
		t.Errorf("held: %+v", op)
	}
	must(c.ReleaseOperation(ctx, i.Operation))(t)
	if op := must(c.WaitOperation(ctx, i.Operation))(t); op.State != cloudsim.OperationDone || op.Percent != 100 {
		t.Errorf("released: %+v", op)
	}
	i = must(c.DeleteInstance(ctx, i.ID))(t)
	if _, err := c.CancelOperation(ctx, i.Operation); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("cancelling a deletion: %v", err)
	}
	if err := c.DeleteHold(ctx, h.ID); err != nil {
		t.Error(err)
	}
	if op := must(c.WaitOperation(ctx, i.Operation))(t); op.State != cloudsim.OperationDone {
		t.Errorf("after the hold: %+v", op)
	}
	want := cloudsim.WorkDurations{Items: []cloudsim.WorkDuration{{Transition: cloudsim.Transition{Kind: cloudsim.KindDisk, Verb: cloudsim.Attach}, Millis: 5}}}
	must(c.SetDurations(ctx, want))(t)
	if got := must(c.GetDurations(ctx))(t); len(got.Items) != 1 || got.Items[0] != want.Items[0] {
		t.Errorf("durations: %+v", got)
	}
	must(c.SetDurations(ctx, cloudsim.WorkDurations{}))(t)
	_, err := c.CreateHold(ctx, cloudsim.CreateHold{Name: "bad", HoldSpec: cloudsim.HoldSpec{Transition: cloudsim.Transition{Kind: "zone", Verb: "stop"}}})
	if e, _ := errors.AsType[*cloudsim.Error](err); e == nil || e.Kind != cloudsim.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != "kind" {
		t.Errorf("a hold of nothing: %v", err)
	}
}
