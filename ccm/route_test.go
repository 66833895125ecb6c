package ccm_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

func (r *rig) routes() cloudprovider.Routes {
	routes, _ := r.provider.Routes()
	return routes
}

func routeTo(node, cidr string) *cloudprovider.Route {
	return &cloudprovider.Route{TargetNode: types.NodeName(node), DestinationCIDR: cidr}
}

// listRoutes returns the cluster's routes in the form "destination node",
// sorted.
func (r *rig) listRoutes(t *testing.T, cluster string) []string {
	t.Helper()
	l, err := r.routes().ListRoutes(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, route := range l {
		s := route.DestinationCIDR + " " + string(route.TargetNode)
		if route.Blackhole {
			s += "blackhole"
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

func TestRoutesFromCreateToDelete(t *testing.T) {
	r := newPodRig(t)
	r.createMachine(t, "node-1")
	both := []*cloudprovider.Route{routeTo("node-1", "10.244.0.0/24"), routeTo("node-1", "fd10:244::/64")}
	for range 2 { // the second pass changes nothing
		for _, route := range both {
			if err := r.routes().CreateRoute(t.Context(), cluster, "the-uid-of-the-node", route); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := r.listRoutes(t, cluster); len(got) != 2 || got[0] != "10.244.0.0/24 node-1" || got[1] != "fd10:244::/64 node-1" {
		t.Errorf("routes: got %v", got)
	}
	if got := r.listRoutes(t, "another-cluster"); len(got) != 0 {
		t.Errorf("routes of another cluster: got %v", got)
	}
	l, err := r.routes().ListRoutes(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second pass finds no route
		for _, route := range l {
			if err := r.routes().DeleteRoute(t.Context(), cluster, route); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := r.listRoutes(t, cluster); len(got) != 0 {
		t.Errorf("remaining routes: got %v", got)
	}
}

// If this cluster has a route to the same destination through another node, the
// CCM replaces the route. If a person or another cluster has a route to the
// same destination, the CCM returns an error and keeps that route.
func TestRouteToSameDestination(t *testing.T) {
	r := newPodRig(t)
	instance := r.createMachine(t, "node-1")
	r.createMachine(t, "node-2")
	if err := r.routes().CreateRoute(t.Context(), cluster, "", routeTo("node-1", "10.244.7.0/24")); err != nil {
		t.Fatal(err)
	}
	if err := r.routes().CreateRoute(t.Context(), cluster, "", routeTo("node-2", "10.244.7.0/24")); err != nil {
		t.Fatal(err)
	}
	if got := r.listRoutes(t, cluster); len(got) != 1 || got[0] != "10.244.7.0/24 node-2" {
		t.Errorf("routes: got %v", got)
	}
	person, err := r.cloud.CreateRoute(t.Context(), cloudsim.CreateRoute{Name: "by-hand", Destination: "10.244.9.0/24", NextHop: instance.ID})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.routes().CreateRoute(t.Context(), cluster, "", routeTo("node-2", "10.244.9.0/24")); err == nil || !strings.Contains(err.Error(), "10.244.9.0/24") {
		t.Errorf("creation of a route that a user created before: got error %v, want an error that names the destination", err)
	}
	if now, err := r.cloud.GetRoute(t.Context(), person.ID); err != nil || now.NextHop != instance.ID {
		t.Errorf("the CCM changed the user's route to %+v, %v", now, err)
	}
	if err := r.routes().CreateRoute(t.Context(), "another-cluster", "", routeTo("node-1", "10.244.7.0/24")); err == nil {
		t.Error("another cluster took over the route")
	}
}

// The controller passes a route from an earlier list to DeleteRoute. If a new
// route with the same name has replaced this route, DeleteRoute does not delete
// the new route.
func TestRouteThatWasReplaced(t *testing.T) {
	r := newPodRig(t)
	old := r.createMachine(t, "node-1")
	r.createMachine(t, "node-2")
	if err := r.routes().CreateRoute(t.Context(), cluster, "", routeTo("node-1", "10.244.7.0/24")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.cloud.DeleteInstance(t.Context(), old.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the route is a black hole", func() bool { return slices.Equal(r.listRoutes(t, cluster), []string{"10.244.7.0/24 blackhole"}) })
	l, err := r.routes().ListRoutes(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.routes().CreateRoute(t.Context(), cluster, "", routeTo("node-2", "10.244.7.0/24")); err != nil {
		t.Fatal(err)
	}
	if err := r.routes().DeleteRoute(t.Context(), cluster, l[0]); err != nil {
		t.Fatal(err)
	}
	if got := r.listRoutes(t, cluster); !slices.Equal(got, []string{"10.244.7.0/24 node-2"}) {
		t.Errorf("routes: got %v", got)
	}
}

// ListRoutes omits the routes that persons or other clusters created, so
// upstream's controller never deletes these routes.
func TestForeignRoutesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPodRig(t, cloudtest.InBubble())
		i := r.createMachine(t, "node-1")
		var foreign []cloudsim.Route
		for name, destination := range map[string]string{"by-hand": "10.244.9.0/24", "far": "192.168.99.0/24"} {
			route, err := r.cloud.CreateRoute(t.Context(), cloudsim.CreateRoute{Name: name, Destination: destination, NextHop: i.ID})
			if err != nil {
				t.Fatal(err)
			}
			foreign = append(foreign, route)
		}
		if err := r.routes().CreateRoute(t.Context(), "another-cluster", "", routeTo("node-1", "10.244.8.0/24")); err != nil {
			t.Fatal(err)
		}
		// No Node has the range 10.244.7.0/24, so upstream's controller deletes the
		// route to this range. After this deletion, the test knows that the
		// controller has checked the cloud's routes.
		if err := r.routes().CreateRoute(t.Context(), cluster, "", routeTo("node-1", "10.244.7.0/24")); err != nil {
			t.Fatal(err)
		}
		if got := r.listRoutes(t, cluster); len(got) != 1 || got[0] != "10.244.7.0/24 node-1" {
			t.Errorf("routes of the cluster: got %v", got)
		}
		r.runRouteController(t, 0, "10.244.0.0/16")
		awaitEverySecond(t, time.Minute, "the route without a Node is deleted", func() bool { return len(r.listRoutes(t, cluster)) == 0 })
		for _, f := range foreign {
			if now, err := r.cloud.GetRoute(t.Context(), f.ID); err != nil || now.Revision != f.Revision {
				t.Errorf("route %s: got %+v, error %v; want no change", f.Name, now, err)
			}
		}
		if got := r.listRoutes(t, "another-cluster"); len(got) != 1 {
			t.Errorf("routes of another cluster: got %v", got)
		}
	})
}

// If the cloud reports a concurrent change of the route table, CreateRoute
// returns a conflict, because upstream retries a conflict at once. For other
// errors of the cloud, CreateRoute does not return a conflict.
func TestRouteConflict(t *testing.T) {
	r := newPodRig(t)
	r.createMachine(t, "node-1")
	for kind, tc := range map[string]struct {
		status   int
		conflict bool
	}{"conflict": {409, true}, "stale": {412, true}, "internal": {500, false}} {
		r.wire.spoil(func(_ int, req *http.Request) fault {
			if req.Method != http.MethodPost {
				return fault{}
			}
			return fault{status: tc.status, body: fmt.Sprintf(`{"status":%d,"kind":%q,"detail":"somebody else writes"}`, tc.status, kind)}
		})
		err := r.routes().CreateRoute(t.Context(), cluster, "", routeTo("node-1", "10.244.0.0/24"))
		if err == nil || apierrors.IsConflict(err) != tc.conflict {
			t.Errorf("%s: got error %v, conflict %t; want an error, conflict %t", kind, err, apierrors.IsConflict(err), tc.conflict)
		}
	}
}

// The route of a stopped instance stays, because its Node still exists.
func TestRouteOfAStoppedInstance(t *testing.T) {
	r := newPodRig(t)
	i := r.createMachine(t, "node-1")
	if err := r.routes().CreateRoute(t.Context(), cluster, "", routeTo("node-1", "10.244.0.0/24")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.cloud.StopInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	if got := r.listRoutes(t, cluster); len(got) != 1 || got[0] != "10.244.0.0/24 node-1" {
		t.Errorf("routes of a stopped instance: got %v", got)
	}
	if _, err := r.cloud.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the route is a black hole", func() bool {
		got := r.listRoutes(t, cluster)
		return len(got) == 1 && got[0] == "10.244.0.0/24 blackhole"
	})
}

// If the cloud needs a long time to create a route, CreateRoute returns a conflict. Kubernetes'
// route controller retries immediately after a conflict, but not after other errors. In the second
// part of the test, the CCM does not receive the reply to the creation of a route. The next
// CreateRoute finds this route and succeeds.
func TestRouteThatTakesTime(t *testing.T) {
	r := newRig(t, withSlowProfile(func(p *engine.Profile) { p.Network = time.Hour }))
	r.createMachine(t, "node-1")
	if err := r.routes().CreateRoute(t.Context(), cluster, "", routeTo("node-1", "10.244.0.0/24")); !apierrors.IsConflict(err) {
		t.Errorf("creation of a slow route: got error %v, want a conflict", err)
	}
	r.hourLater(t)
	eventually.True(t, "the first route is created", func() bool {
		return r.routes().CreateRoute(t.Context(), cluster, "", routeTo("node-1", "10.244.0.0/24")) == nil
	})
	r.wire.spoil(func(n int, req *http.Request) fault { return fault{loseReply: req.Method == http.MethodPost} })
	if err := r.routes().CreateRoute(t.Context(), cluster, "", routeTo("node-1", "10.244.1.0/24")); err == nil {
		t.Error("the CCM returned no error after a lost reply")
	}
	r.wire.spoil(nil)
	r.hourLater(t)
	eventually.True(t, "the second call finds the route", func() bool {
		return r.routes().CreateRoute(t.Context(), cluster, "", routeTo("node-1", "10.244.1.0/24")) == nil
	})
	if got := r.listRoutes(t, cluster); len(got) != 2 {
		t.Errorf("routes: got %v", got)
	}
}
