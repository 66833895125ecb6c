package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestCancelCopies proves that a client can cancel the creation of a snapshot,
// of a snapshot group, and of a disk that is a copy. Afterward the new resource
// does not exist, and the client can delete the source disk.
func TestCancelCopies(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), frozen, withDiskData)
	defer stop()
	d := mustCreateDisk(t, e, ctx, "data")
	advance(t, e, ctx, time.Hour)
	expectCancelled := func(resource string, op cloudsim.OperationID, get func() error) {
		t.Helper()
		if err := get(); err != nil {
			t.Fatalf("%s before the cancellation: got error %v", resource, err)
		}
		got, err := e.CancelOperation(ctx, op)
		if err != nil || got.State != cloudsim.OperationCancelled {
			t.Errorf("operation of %s after the cancellation: got %+v, error %v, want state cancelled", resource, got, err)
		}
		if err := get(); !errors.Is(err, cloudsim.NotFound) {
			t.Errorf("%s after the cancellation: got error %v, want NotFound", resource, err)
		}
	}
	for _, later := range []time.Duration{0, time.Hour} { // first cancel in state creating, then in state copying
		s := mustSnapshot(t, e, ctx, "snap", d.ID)
		advance(t, e, ctx, later)
		expectCancelled("a snapshot", s.Operation, func() error { _, err := e.GetSnapshot(ctx, s.ID); return err })

		g := must(e.CreateSnapshotGroup(ctx, cloudsim.CreateSnapshotGroup{Name: "group", Disks: []cloudsim.DiskID{d.ID}}))(t)
		advance(t, e, ctx, later)
		expectCancelled("a group", g.Operation, func() error { _, err := e.GetSnapshotGroup(ctx, g.ID); return err })
		_, err := e.GetSnapshot(ctx, g.Snapshots[0])
		expectRefused(t, "read of the member after the cancellation of its group", err, cloudsim.NotFound, "")

		c := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "copy", Zone: d.Zone, Type: d.Type, SourceDisk: d.ID}))(t)
		advance(t, e, ctx, later)
		expectCancelled("a copy", c.Operation, func() error { _, err := e.GetDisk(ctx, c.ID); return err })
	}
	if _, err := e.DeleteDisk(ctx, d.ID); err != nil {
		t.Errorf("deletion of the source disk after the cancellations: got error %v", err)
	}
}

// TestCancelUpdateOfANewLoadBalancer proves that a client cannot cancel an update of a load
// balancer that the cloud is still creating. The load balancer exists afterward.
func TestCancelUpdateOfANewLoadBalancer(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), frozen)
	defer stop()
	spec := cloudsim.LoadBalancerSpec{HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP, Port: 80}}
	l := must(e.CreateLoadBalancer(ctx, cloudsim.CreateLoadBalancer{Name: "l", Region: "sim-1", LoadBalancerSpec: spec}))(t)
	l = must(e.UpdateLoadBalancer(ctx, l.ID, cloudsim.UpdateLoadBalancer{Labels: map[string]string{"a": "b"}, LoadBalancerSpec: spec}, 0))(t)
	_, err := e.CancelOperation(ctx, l.Operation)
	expectError(t, err, cloudsim.Conflict, "update", string(l.ID))
	if got := must(e.GetLoadBalancer(ctx, l.ID))(t); got.State != cloudsim.LoadBalancerProvisioning {
		t.Errorf("load balancer after the refused cancellation: got %+v, want state provisioning", got)
	}
}
