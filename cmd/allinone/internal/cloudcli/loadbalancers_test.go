package cloudcli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestUpdateOfAStaleLoadBalancer proves that an update reads the load balancer again if another
// caller has changed the load balancer. The update keeps the changes of the other caller.
func TestUpdateOfAStaleLoadBalancer(t *testing.T) {
	cl, ctx := cloudtest.Start(t), t.Context()
	spec := cloudsim.LoadBalancerSpec{
		Listeners:   []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 80, TargetPort: 30080}},
		HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP},
	}
	stale, err := cl.CreateLoadBalancer(ctx, cloudsim.CreateLoadBalancer{Name: "shop", Region: "sim-1", LoadBalancerSpec: spec})
	if err != nil {
		t.Fatal(err)
	}
	otherUpdate := cloudsim.UpdateLoadBalancer{Labels: map[string]string{"theirs": "1"}, LoadBalancerSpec: spec}
	if _, err := cl.UpdateLoadBalancer(ctx, stale.ID, otherUpdate, 0); err != nil {
		t.Fatal(err)
	}
	flags := specFlags{labels: []string{"ours=1"}, listeners: []string{"81:30081"}}
	got, err := flags.update(ctx, cl, func(flag string) bool { return flag == "listener" }, stale, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"theirs": "1", "ours": "1"}, got.Labels); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 81, TargetPort: 30081}}, got.Listeners); d != "" {
		t.Error(d)
	}

	if _, err := cl.DeleteLoadBalancer(ctx, stale.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := flags.update(ctx, cl, func(string) bool { return false }, got, nil); cloudsim.KindOf(err) != cloudsim.NotFound {
		t.Errorf("update of a deleted load balancer: %v, want NotFound", err)
	}
}
