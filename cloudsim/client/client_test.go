package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func instance(name string) cloudsim.CreateInstance {
	return cloudsim.CreateInstance{Name: name, Zone: "sim-1b", Type: "small", Labels: map[string]string{"app": "x"}}
}

func balancer(name string, targets ...cloudsim.InstanceID) cloudsim.CreateLoadBalancer {
	req := cloudsim.CreateLoadBalancer{Name: name, Region: "sim-1", LoadBalancerSpec: cloudsim.LoadBalancerSpec{
		Listeners:   []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 80, TargetPort: 30080}},
		HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthHTTP, Port: 10256, Path: "/healthz"},
	}}
	for _, id := range targets {
		req.Targets = append(req.Targets, cloudsim.Target{Instance: id})
	}
	return req
}

// The expression must(v, err)(t) returns v. If err is not nil, the expression ends the test t.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestEveryVerb calls the operations of the resources through the client and the HTTP API.
func TestEveryVerb(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()

	if l := must(c.ListRegions(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 1 {
		t.Errorf("regions: got %+v, want 1", l.Items)
	}
	if z := must(c.GetZone(ctx, "sim-1b"))(t); z.Region != "sim-1" {
		t.Errorf("zone sim-1b: got %+v, want region sim-1", z)
	}
	if ty := must(c.GetInstanceType(ctx, "small"))(t); ty.CPUs != 2 {
		t.Errorf("instance type small: got %+v, want 2 CPUs", ty)
	}
	must(c.GetRegion(ctx, "sim-1"))(t)
	must(c.ListZones(ctx, cloudsim.ListOptions{}))(t)
	must(c.ListInstanceTypes(ctx, cloudsim.ListOptions{}))(t)

	i := must(c.CreateInstance(ctx, instance("a")))(t)
	if diff := cmp.Diff(i, must(c.GetInstance(ctx, i.ID))(t)); diff != "" {
		t.Errorf("GetInstance differs from CreateInstance: %s", diff)
	}
	if op := must(c.WaitOperation(ctx, i.Operation))(t); op.State != cloudsim.OperationDone || op.Target != string(i.ID) {
		t.Errorf("operation: got %+v, want done, with the instance as its target", op)
	}
	must(c.ListOperations(ctx, cloudsim.ListOptions{}))(t)
	for _, act := range []func(context.Context, cloudsim.InstanceID) (cloudsim.Instance, error){c.StopInstance, c.StartInstance, c.CrashInstance, c.RebootInstance} {
		must(act(ctx, i.ID))(t)
	}

	everyDiskVerb(t, c, i)
	everyNetworkVerb(t, c)
	everyIdentityVerb(t, c, i)

	lb := must(c.CreateLoadBalancer(ctx, balancer("lb", i.ID)))(t)
	upd := balancer("")
	upd.Listeners[0].Port = 81
	lb2 := must(c.UpdateLoadBalancer(ctx, lb.ID, cloudsim.UpdateLoadBalancer{LoadBalancerSpec: upd.LoadBalancerSpec}, lb.Revision))(t)
	if lb2.Listeners[0].Port != 81 || len(lb2.Targets) != 0 || lb2.IP != lb.IP {
		t.Errorf("updated load balancer: got %+v, want port 81, no targets and the same IP", lb2)
	}
	if _, err := c.UpdateLoadBalancer(ctx, lb.ID, cloudsim.UpdateLoadBalancer{LoadBalancerSpec: balancer("").LoadBalancerSpec}, lb.Revision); !errors.Is(err, cloudsim.Stale) {
		t.Errorf("update with an old revision: got error %v, want Stale", err)
	}
	if lb3 := must(c.SetLoadBalancerTargets(ctx, lb.ID, cloudsim.SetTargets{Targets: []cloudsim.Target{{Instance: i.ID}}}))(t); len(lb3.Targets) != 1 {
		t.Errorf("targets of the load balancer: got %+v, want 1", lb3.Targets)
	}
	must(c.GetLoadBalancer(ctx, lb.ID))(t)
	must(c.ListLoadBalancers(ctx, cloudsim.ListOptions{}))(t)
	if _, err := c.LoadBalancerStats(ctx, lb.ID); !errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("statistics without a data plane: got error %v, want Unavailable", err)
	}
	if l := must(c.ListLoadBalancerStats(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 0 {
		t.Errorf("statistics of all load balancers without a data plane: got %+v, want none", l.Items)
	}
	must(c.DeleteLoadBalancer(ctx, lb.ID))(t)

	a := must(c.CreateAddress(ctx, cloudsim.CreateAddress{Name: "front"}))(t)
	must(c.GetAddress(ctx, a.ID))(t)
	must(c.ListAddresses(ctx, cloudsim.ListOptions{}))(t)
	if err := c.DeleteAddress(ctx, a.ID); err != nil {
		t.Error(err)
	}
	everyRecordVerb(t, c)
	everyMetadataTreeVerb(t, c)
	must(c.DeleteInstance(ctx, i.ID))(t)
	if _, err := c.GetInstance(ctx, i.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("GetInstance after the deletion: got error %v, want NotFound", err)
	}

	p := must(c.CreateProject(ctx, cloudsim.CreateProject{Name: "shop"}))(t)
	admin := *c
	admin.Project = ""
	must(admin.GetProject(ctx, p.ID))(t)
	must(admin.ListProjects(ctx, cloudsim.ListOptions{}))(t)
	tok := must(admin.CreateToken(ctx, cloudsim.CreateToken{Name: "t", Role: cloudsim.RoleReader, Project: p.ID}))(t)
	must(admin.GetToken(ctx, tok.ID))(t)
	must(admin.ListTokens(ctx, cloudsim.ListOptions{}))(t)
	if err := admin.DeleteToken(ctx, tok.ID); err != nil {
		t.Error(err)
	}
	if err := admin.DeleteProject(ctx, p.ID); err != nil {
		t.Error(err)
	}
	everyClockVerb(t, c)
	everyHoldVerb(t, c)
	everyStateVerb(t, c)
	w := must(c.Why(ctx, "instance/held"))(t)
	if r := must(c.WhyRequest(ctx, w.Steps[0].RequestID))(t); r.Name != "instances.create" || len(r.Calls) != 1 || len(r.Steps) == 0 {
		t.Errorf("why of a request: got %+v, want the call that created the instance, with steps", r)
	}
	if !w.Gone || len(w.Steps) == 0 {
		t.Errorf("why: got %+v, want steps of a deleted instance", w)
	}
	newest := must(c.ListNewestEvents(ctx, cloudsim.EventOptions{ID: string(i.ID), Kinds: []cloudsim.ResourceKind{cloudsim.KindInstance}, Limit: 1}))(t)
	if len(newest.Items) != 1 || newest.Items[0].Type != cloudsim.EventDelete || newest.Next == "" {
		t.Errorf("newest events of the instance: got %+v, want one delete event and a next page", newest)
	}
	if l := must(c.ListNewestEvents(ctx, cloudsim.EventOptions{RequestID: newest.Items[0].RequestID}))(t); len(l.Items) == 0 {
		t.Error("no events of the request that deleted the instance")
	}
	f := must(c.CreateFault(ctx, cloudsim.CreateFault{Name: "f", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "zones.get"}, When: cloudsim.FaultWhen{Max: 1}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultThrottle},
	}}))(t)
	if _, err := c.GetZone(ctx, "sim-1b"); !errors.Is(err, cloudsim.Exhausted) {
		t.Errorf("GetZone with a fault: got error %v, want Exhausted", err)
	}
	if f = must(c.GetFault(ctx, f.ID))(t); f.Hits != 1 || f.Seen != 1 {
		t.Errorf("fault: got %+v, want 1 hit of 1 matching call", f)
	}
	if l := must(c.ListFaults(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 1 {
		t.Errorf("faults: got %+v, want 1", l.Items)
	}
	must(c.FaultTargets(ctx))(t)
	if d := cmp.Diff(cloudsim.FaultPresets(), must(c.FaultPresets(ctx))(t)); d != "" {
		t.Error(d)
	}
	if err := c.DeleteFault(ctx, f.ID); err != nil {
		t.Error(err)
	}
	if err := c.Ready(ctx); err != nil {
		t.Error(err)
	}
}

func TestListPagesAndFilters(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	for i := range 25 {
		req := instance(fmt.Sprintf("n-%02d", i))
		if i%5 == 0 {
			req.Zone, req.Labels = "sim-1c", map[string]string{"app": "y", "tier": "1"}
		}
		must(c.CreateInstance(ctx, req))(t)
	}
	all, rev, err := cloudsim.All(ctx, c.ListInstances, cloudsim.ListOptions{Limit: 7})
	if err != nil || len(all) != 25 || rev == 0 {
		t.Fatalf("list in pages of 7: got %d instances at revision %d, error %v; want 25 instances and a revision", len(all), rev, err)
	}
	for i := 1; i < len(all); i++ {
		if all[i-1].ID >= all[i].ID {
			t.Errorf("list is not sorted: %s precedes %s", all[i-1].ID, all[i].ID)
		}
	}
	for name, tc := range map[string]struct {
		o    cloudsim.ListOptions
		want int
	}{
		"name":                 {cloudsim.ListOptions{Name: "n-03"}, 1},
		"unknown name":         {cloudsim.ListOptions{Name: "n-99"}, 0},
		"name in another zone": {cloudsim.ListOptions{Name: "n-03", Zone: "sim-1c"}, 0},
		"zone":                 {cloudsim.ListOptions{Zone: "sim-1c"}, 5},
		"label":                {cloudsim.ListOptions{Labels: map[string]string{"app": "x"}}, 20},
		"two labels":           {cloudsim.ListOptions{Labels: map[string]string{"app": "y", "tier": "1"}}, 5},
		"unknown label":        {cloudsim.ListOptions{Labels: map[string]string{"tier": "2"}}, 0},
		"empty label value":    {cloudsim.ListOptions{Labels: map[string]string{"tier": ""}}, 0},
		"label and limit":      {cloudsim.ListOptions{Labels: map[string]string{"app": "y"}, Limit: 2}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := cloudsim.All(ctx, c.ListInstances, tc.o)
			if err != nil || len(got) != tc.want {
				t.Errorf("got %d instances, error %v; want %d", len(got), err, tc.want)
			}
		})
	}
}

// TestWatchResumes proves that a watcher can disconnect many times while writers change the cloud.
// If the watcher resumes after its last handled revision, it gets every event exactly once.
func TestWatchResumes(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	const writers, each = 20, 5
	l := must(c.ListInstances(ctx, cloudsim.ListOptions{}))(t)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				if _, err := c.CreateInstance(ctx, instance(fmt.Sprintf("w%d-%d", w, n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	const want = writers * each * 2 // two events for each instance: provisioning, running
	rev, seen, batch := l.Revision, 0, 0
	for seen < want {
		batch = 0
		for e, err := range c.Watch(ctx, cloudsim.WatchOptions{Since: rev, Kinds: []cloudsim.ResourceKind{cloudsim.KindInstance}}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Rev <= rev {
				t.Fatalf("event has revision %d, want more than %d", e.Rev, rev)
			}
			rev = e.Rev
			seen++
			if batch++; batch == 13 || seen == want {
				break // disconnect
			}
		}
	}
	wg.Wait()
	evs, err := c.ListEvents(ctx, cloudsim.WatchOptions{Since: rev, Kinds: []cloudsim.ResourceKind{cloudsim.KindInstance}})
	if err != nil || len(evs.Items) != 0 {
		t.Errorf("got %d more events, error %v; want 0", len(evs.Items), err)
	}
}

// TestWatchEndsWithItsToken proves that a watch ends when an admin revokes the token of the watch.
// The last item of the watch is the error Unauthenticated.
func TestWatchEndsWithItsToken(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	tok := must(c.CreateToken(ctx, cloudsim.CreateToken{Name: "brief", Role: cloudsim.RoleReader}))(t)
	brief := *c
	brief.Token = client.StaticToken(tok.Secret)
	soon, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	var last error
	for e, err := range brief.Watch(soon, cloudsim.WatchOptions{Bookmark: time.Minute}) {
		if last = err; e.Type != cloudsim.EventBookmark {
			continue
		}
		if err := c.DeleteToken(ctx, tok.ID); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(last, cloudsim.Unauthenticated) {
		t.Errorf("watch ended with error %v, want Unauthenticated", last)
	}
}

// TestAllEvents saves the state of a cloud and loads this state. The test proves that AllEvents
// returns the same events before and after the load. The journal does not fit in one page, so
// AllEvents must not stop after the first page.
func TestAllEvents(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	for rev := uint64(0); rev <= cloudsim.DefaultPageSize; {
		rev = must(c.CreateAddress(ctx, cloudsim.CreateAddress{Name: fmt.Sprintf("a-%d", rev)}))(t).Revision
	}
	addresses := cloudsim.WatchOptions{Kinds: []cloudsim.ResourceKind{cloudsim.KindAddress}}
	before := must(c.AllEvents(ctx, addresses))(t)
	must(c.SaveState(ctx, cloudsim.SaveState{Name: "s"}))(t)
	if err := c.LoadState(ctx, "s", cloudsim.LoadState{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, must(c.AllEvents(ctx, addresses))(t)); diff != "" || len(before) == 0 {
		t.Errorf("the events of the state (%d) differ after the load (-want +got):\n%s", len(before), diff)
	}
	if _, err := c.AllEvents(ctx, cloudsim.WatchOptions{Since: before[0].Rev}); !errors.Is(err, cloudsim.Gone) {
		t.Errorf("events since a revision before the load: got error %v, want Gone", err)
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestAllEventsDuringWrites proves that AllEvents does not read pages forever if the journal grows
// after each page.
func TestAllEventsDuringWrites(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	busy, pages := *c, 0
	busy.HTTP = &http.Client{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
		if pages++; pages > 10 {
			return nil, errors.New("too many pages")
		}
		resp, err := c.HTTP.Transport.RoundTrip(r)
		must(c.CreateAddress(ctx, cloudsim.CreateAddress{Name: fmt.Sprintf("a-%d", pages)}))(t)
		return resp, err
	})}
	must(busy.AllEvents(ctx, cloudsim.WatchOptions{}))(t)
}

func TestWatchSaysGone(t *testing.T) {
	c := cloudtest.Start(t)
	for _, err := range c.Watch(t.Context(), cloudsim.WatchOptions{Since: 1 << 40}) {
		if !errors.Is(err, cloudsim.Gone) {
			t.Fatalf("watch since a future revision: got error %v, want Gone", err)
		}
		return
	}
	t.Fatal("watch since a future revision ended without an error")
}

func TestWaitOperationWaits(t *testing.T) {
	c, ctx := cloudtest.Start(t, cloudtest.WithProfile(engine.Profile{Provision: 300 * time.Millisecond})), t.Context()
	i := must(c.CreateInstance(ctx, instance("a")))(t)
	if i.State != cloudsim.InstanceProvisioning {
		t.Fatalf("created instance: got state %s, want provisioning", i.State)
	}
	must(c.WaitOperation(ctx, i.Operation))(t)
	if i = must(c.GetInstance(ctx, i.ID))(t); i.State != cloudsim.InstanceRunning {
		t.Errorf("instance after the wait: got state %s, want running", i.State)
	}
}

func TestClientReturnsErrorKinds(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	_, err := c.CreateLoadBalancer(ctx, balancer("lb", "i-ffffff"))
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || e.Kind != cloudsim.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != "targets[0].instance" {
		t.Errorf("got error %#v, want Invalid with the field targets[0].instance", err)
	}
	anonymous := *c
	anonymous.Token = nil
	if _, err := anonymous.ListInstances(ctx, cloudsim.ListOptions{}); !errors.Is(err, cloudsim.Unauthenticated) {
		t.Errorf("list without a token: got error %v, want Unauthenticated", err)
	}
	broken := *c
	broken.Token = func() (string, error) { return "", errors.New("no such file") }
	if _, err := broken.ListInstances(ctx, cloudsim.ListOptions{}); !errors.Is(err, cloudsim.Unauthenticated) {
		t.Errorf("list without a token file: got error %v, want Unauthenticated", err)
	}
	gone := client.Client{URL: "http://127.0.0.1:1", HTTP: &http.Client{}}
	if _, err := gone.ListInstances(ctx, cloudsim.ListOptions{}); !errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("list without a server: got error %v, want Unavailable", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.ListInstances(ended, cloudsim.ListOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("list with a cancelled context: got error %v, want context.Canceled", err)
	}
}
