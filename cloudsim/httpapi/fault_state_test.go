package httpapi_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

func TestFaultShortages(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	out, err := c.CreateFault(ctx, cloudsim.CreateFault{Name: "out", FaultSpec: cloudsim.FaultSpec{
		Match:  cloudsim.FaultMatch{Operation: "*", Zone: "sim-1a", Type: "small"},
		Effect: cloudsim.FaultEffect{Type: cloudsim.FaultStockOut},
	}})
	if err != nil {
		t.Fatal(err)
	}
	make := func(name, zone, typ string) error {
		_, err := c.CreateInstance(ctx, cloudsim.CreateInstance{Name: name, Zone: zone, Type: typ})
		return err
	}
	if err := make("a", "sim-1a", "small"); !errors.Is(err, cloudsim.Exhausted) || !strings.Contains(err.Error(), "no capacity for type small in zone sim-1a") {
		t.Errorf("instance with a stock fault: got error %v, want Exhausted", err)
	}
	if err := errors.Join(make("b", "sim-1b", "small"), make("c", "sim-1a", "medium")); err != nil {
		t.Errorf("instance of another zone or type than the fault's: got error %v", err)
	}
	if err := c.DeleteFault(ctx, out.ID); err != nil {
		t.Fatal(err)
	}
	createFault(t, c, "*", cloudsim.FaultEffect{Type: cloudsim.FaultQuota}, cloudsim.FaultWhen{Max: 1})
	if _, err := c.ListInstances(ctx, cloudsim.ListOptions{}); err != nil {
		t.Errorf("list with a quota fault: got error %v", err)
	}
	if err := make("d", "sim-1a", "small"); !errors.Is(err, cloudsim.Exhausted) || !strings.Contains(err.Error(), "quota instances") {
		t.Errorf("instance with a quota fault: got error %v, want Exhausted", err)
	}
	if err := make("d", "sim-1a", "small"); err != nil {
		t.Errorf("instance after the fault's last hit: got error %v", err)
	}
}

// TestFaultDuplicates proves that a fault with the effect "duplicate" delivers a request twice. The
// second delivery of a stop request fails, because the instance is already stopped. The caller gets
// this error. The second delivery of a create request returns the existing instance.
func TestFaultDuplicates(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	f := createFault(t, c, "*", cloudsim.FaultEffect{Type: cloudsim.FaultDuplicate}, cloudsim.FaultWhen{Max: 2})
	i, err := c.CreateInstance(ctx, cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.StopInstance(ctx, i.ID); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("duplicated stop: got error %v, want Conflict", err)
	}
	l, err := c.ListInstances(ctx, cloudsim.ListOptions{})
	if err != nil || len(l.Items) != 1 || l.Items[0].State != cloudsim.InstanceStopped {
		t.Errorf("instances: got %+v, error %v; want 1 stopped instance", l.Items, err)
	}
	if f, err = c.GetFault(ctx, f.ID); err != nil || f.Hits != 2 || f.Seen != 2 {
		t.Errorf("got %d hits of %d matching calls, error %v; want 2 of 2", f.Hits, f.Seen, err)
	}
}

func TestFaultCorruptsTokens(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	for _, tc := range []struct {
		name string
		want error
	}{{"bad", cloudsim.Unauthenticated}, {"good", nil}} {
		if tc.want != nil {
			createFault(t, c, "*", cloudsim.FaultEffect{Type: cloudsim.FaultCorruptToken}, cloudsim.FaultWhen{Max: 1})
		}
		tok, err := c.CreateToken(ctx, cloudsim.CreateToken{Name: tc.name, Role: cloudsim.RoleReader})
		if err != nil {
			t.Fatal(err)
		}
		as := *c
		as.Token = client.StaticToken(tok.Secret)
		if _, err := as.ListZones(ctx, cloudsim.ListOptions{}); !errors.Is(err, tc.want) {
			t.Errorf("%s: got error %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestFaultThatBreaksNothingIsRefused(t *testing.T) {
	c := cloudtest.Start(t)
	_, err := c.CreateFault(t.Context(), cloudsim.CreateFault{Name: "a", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "zones.list"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultStockOut},
	}})
	if !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("stock fault for list calls: got error %v, want Invalid", err)
	}
}
