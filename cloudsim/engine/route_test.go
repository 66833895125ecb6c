package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func toPods(name string, i cloudsim.Instance) cloudsim.CreateRoute {
	return cloudsim.CreateRoute{Name: name, Destination: "10.244.1.0/24", NextHop: i.ID}
}

// TestRouteFollowsItsNextHop proves that a route is in state blackhole while its next hop does not
// run. The route is active again when the next hop runs. The cloud keeps the route even after the
// deletion of the next hop.
func TestRouteFollowsItsNextHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), func(c *engine.Config) { c.Profile.Network = time.Second })
		defer down()
		i := mustCreate(t, e, ctx, "a")
		r := must(e.CreateRoute(ctx, toPods("r", i)))(t)
		is := func(want cloudsim.RouteState, after time.Duration) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := must(e.GetRoute(ctx, r.ID))(t); got.State != want {
				t.Errorf("state of the route: got %s, want %s", got.State, want)
			}
		}
		is(cloudsim.RouteCreating, 0)
		is(cloudsim.RouteBlackhole, 2*time.Second) // the instance is still provisioning
		is(cloudsim.RouteActive, slow.Provision)
		must(e.RebootInstance(ctx, i.ID))(t)
		is(cloudsim.RouteActive, time.Second)
		must(e.StopInstance(ctx, i.ID))(t)
		is(cloudsim.RouteActive, time.Second)
		is(cloudsim.RouteBlackhole, slow.Shutdown)
		must(e.StartInstance(ctx, i.ID))(t)
		is(cloudsim.RouteBlackhole, time.Second)
		is(cloudsim.RouteActive, slow.Boot)
		must(e.DeleteInstance(ctx, i.ID))(t)
		is(cloudsim.RouteBlackhole, 0)
		is(cloudsim.RouteBlackhole, 2*slow.Shutdown)
		must(e.DeleteRoute(ctx, r.ID))(t)
		is(cloudsim.RouteDeleting, 0)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, err := e.GetRoute(ctx, r.ID)
		expectError(t, err, cloudsim.NotFound)
	})
}

// TestRouteRefusals proves that a network has at most one route to each
// destination, and no more routes than its maximum. A wider or narrower range
// counts as a different destination. The destination must be outside the
// network.
func TestRouteRefusals(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	n, s := shop(t, e, ctx)
	must(e.UpdateNetwork(ctx, n.ID, cloudsim.UpdateNetwork{NetworkSpec: cloudsim.NetworkSpec{PodRanges: n.PodRanges, MaxRoutes: 3}}, 0))(t)
	a, b := must(e.CreateInstance(ctx, in("a", s.ID)))(t), mustCreate(t, e, ctx, "b")
	r := must(e.CreateRoute(ctx, toPods("r", a)))(t)
	if repeated := must(e.CreateRoute(ctx, toPods("r", a)))(t); repeated.ID != r.ID {
		t.Errorf("repeated request: got %+v", repeated)
	}
	if other := must(e.CreateRoute(ctx, toPods("elsewhere", b)))(t); other.Network == n.ID {
		t.Errorf("same destination in another network: got %+v", other)
	}
	for _, to := range []string{"10.244.0.0/16", "10.244.1.128/25"} {
		req := toPods("r-"+to[len(to)-2:], a)
		req.Destination = to
		must(e.CreateRoute(ctx, req))(t)
	}
	to := func(destination string, hop cloudsim.InstanceID, network cloudsim.NetworkID) error {
		return errorOf(e.CreateRoute(ctx, cloudsim.CreateRoute{Name: "new", Destination: destination, NextHop: hop, Network: network}))
	}
	expectError(t, to("10.244.1.0/24", a.ID, ""), cloudsim.Exists, string(r.ID), "(r)")
	expectError(t, to("10.245.0.0/16", a.ID, ""), cloudsim.Exhausted, string(n.ID), "3 routes")
	expectError(t, to("10.10.3.0/24", a.ID, ""), cloudsim.Invalid, "destination", "10.10.0.0/16")
	expectError(t, to("10.245.0.0/16", "i-ffffff", ""), cloudsim.Invalid, "nextHop i-ffffff does not exist")
	expectError(t, to("10.245.0.0/16", b.ID, n.ID), cloudsim.Invalid, "nextHop", string(b.ID)+" is not in this network")
	expectError(t, to("fd77::/64", b.ID, ""), cloudsim.Invalid, "nextHop", "an internal address of the IP family", string(b.ID))
	expectError(t, errorOf(e.CreateRoute(ctx, toPods("r", b))), cloudsim.Exists, string(r.ID))

	must(e.DeleteInstance(ctx, a.ID))(t)
	must(e.DeleteSubnet(ctx, s.ID))(t)
	expectError(t, errorOf(e.DeleteNetwork(ctx, n.ID)), cloudsim.Conflict, string(r.ID), "2 more")
}

// TestNetworkOverlapsRoute proves that the cloud refuses a new network if one of its ranges
// overlaps the destination of another network's route. The cloud also refuses new pod ranges that
// overlap this destination. Otherwise the route would redirect traffic of these ranges.
func TestNetworkOverlapsRoute(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	must(e.CreateProject(engine.AsCloud(t.Context()), cloudsim.CreateProject{Name: "other"}))(t)
	mine, other := enter(t, e, "secret", engine.DefaultProject), enter(t, e, "secret", "other")
	i := mustInstance(t, e, "a", "sim-1a")
	r := must(e.CreateRoute(mine, cloudsim.CreateRoute{Name: "r", Destination: "10.99.1.0/24", NextHop: i.ID}))(t)
	_, err := e.CreateNetwork(other, cloudsim.CreateNetwork{Name: "n", IPv4: "10.99.0.0/16"})
	expectError(t, err, cloudsim.Conflict, "ipv4 10.99.0.0/16", "10.99.1.0/24", "another project")
	pods := cloudsim.UpdateNetwork{NetworkSpec: cloudsim.NetworkSpec{PodRanges: cloudsim.PodRanges{IPv4: "10.99.0.0/16"}}}
	otherNetwork := must(e.ListNetworks(other, cloudsim.ListOptions{}))(t).Items[0]
	_, err = e.UpdateNetwork(other, otherNetwork.ID, pods, 0)
	expectError(t, err, cloudsim.Conflict, "podRanges.ipv4 10.99.0.0/16", "10.99.1.0/24")
	_, err = e.CreateNetwork(mine, cloudsim.CreateNetwork{Name: "n", IPv4: "10.99.0.0/16"})
	expectError(t, err, cloudsim.Conflict, string(r.ID))

	// A default network can get a pod range that overlaps a route of the same network. After that,
	// another default network can get the same range, although the route belongs to the first
	// network. The reason is that default networks can share pod ranges.
	must(e.UpdateNetwork(mine, r.Network, pods, 0))(t)
	must(e.UpdateNetwork(other, otherNetwork.ID, pods, 0))(t)
}
