package engine_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func addressesOf(l cloudsim.LoadBalancer) (ips []string) {
	for _, a := range l.Addresses {
		ips = append(ips, a.IP)
	}
	return ips
}

// TestLoadBalancerFamilies proves that a load balancer has an address for each of its IP families.
// If the families change, the load balancer keeps the addresses of the remaining families and
// releases the other addresses. The cloud deletes a released address, unless a client reserved it
// with CreateAddress.
func TestLoadBalancerFamilies(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, func(c *engine.Config) { c.InternalLoadBalancers = netip.MustParsePrefix("127.66.0.0/16") })
	defer down()
	front6, err := e.CreateAddress(ctx, cloudsim.CreateAddress{Name: "front", Family: cloudsim.IPv6})
	if err != nil || front6.IP != "fd00:127:65::1" {
		t.Fatalf("new IPv6 address: got %+v, error %v", front6, err)
	}
	req := loadBalancer("shop")
	lb, err := e.CreateLoadBalancer(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	spec := lb.LoadBalancerSpec
	both := []cloudsim.IPFamily{cloudsim.IPv4, cloudsim.IPv6}
	for _, step := range []struct {
		name string
		ask  cloudsim.UpdateLoadBalancer
		want []string
		kind error
	}{
		{"a second family", cloudsim.UpdateLoadBalancer{Families: both}, []string{"127.65.0.1", "fd00:127:65::2"}, nil},
		{"no families", cloudsim.UpdateLoadBalancer{}, []string{"127.65.0.1", "fd00:127:65::2"}, nil},
		{"a reserved address", cloudsim.UpdateLoadBalancer{Addresses: []string{front6.IP}}, []string{"127.65.0.1", front6.IP}, nil},
		{"an address that is not reserved", cloudsim.UpdateLoadBalancer{Addresses: []string{"127.65.0.9"}}, []string{"127.65.0.1", front6.IP}, cloudsim.Invalid},
		{"families in the other order", cloudsim.UpdateLoadBalancer{Families: []cloudsim.IPFamily{cloudsim.IPv6, cloudsim.IPv4}}, []string{front6.IP, "127.65.0.1"}, nil},
		{"another scheme", cloudsim.UpdateLoadBalancer{Scheme: cloudsim.SchemeInternal}, []string{front6.IP, "127.65.0.1"}, cloudsim.Invalid},
		{"one family", cloudsim.UpdateLoadBalancer{Families: both[:1]}, []string{"127.65.0.1"}, nil},
		{"an address of the other family", cloudsim.UpdateLoadBalancer{Addresses: []string{front6.IP}}, []string{"127.65.0.1"}, cloudsim.Invalid},
	} {
		step.ask.LoadBalancerSpec = spec
		_, err := e.UpdateLoadBalancer(ctx, lb.ID, step.ask, 0)
		if step.kind == nil && err != nil || step.kind != nil && !errors.Is(err, step.kind) {
			t.Errorf("update with %s: got error %v, want %v", step.name, err, step.kind)
		}
		got, _ := e.GetLoadBalancer(ctx, lb.ID)
		if d := cmp.Diff(step.want, addressesOf(got)); d != "" {
			t.Errorf("addresses after the update with %s (-want +got):\n%s", step.name, d)
		}
		if got.IP != addressesOf(got)[0] {
			t.Errorf("update with %s: got ip %s, want the first address of %v", step.name, got.IP, addressesOf(got))
		}
	}
	left, err := e.ListAddresses(ctx, cloudsim.ListOptions{})
	if err != nil || len(left.Items) != 2 || left.Items[0].UsedBy != "" {
		t.Errorf("addresses: got %+v, %v; want the unused reserved address and the address of the load balancer", left.Items, err)
	}
	inside := loadBalancer("inside")
	inside.Scheme, inside.Families = cloudsim.SchemeInternal, both
	if lb, err = e.CreateLoadBalancer(ctx, inside); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"127.66.0.1", "fd00:127:65::2"}, addressesOf(lb)); d != "" {
		t.Errorf("internal load balancer: %s", d)
	}
	inside.Name, inside.Addresses = "inside2", []string{front6.IP}
	if _, err := e.CreateLoadBalancer(ctx, inside); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("internal load balancer on an external address: got error %v", err)
	}
}

// TestPublishedPorts proves that each listener gets the lowest free published port, and keeps this
// port. The free ports come from the range in Config.Published. The deletion of a listener frees
// its port, also for a new listener in the same request. If the configured range changes, the
// listeners get ports of the new range.
func TestPublishedPorts(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	path := file(t)
	publish := func(first, last int) func(*engine.Config) {
		return func(c *engine.Config) { c.Published = engine.Published{Host: "127.0.0.1", First: first, Last: last} }
	}
	e, down := boot(t, path, instant, publish(30080, 30081))
	published := func(l cloudsim.LoadBalancer, err error) (ports []int) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range l.Published {
			ports = append(ports, p.PublishedPort)
		}
		return ports
	}
	expect := func(description string, want, got []int) {
		t.Helper()
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("published ports %s (-want +got):\n%s", description, d)
		}
	}
	req := loadBalancer("a")
	req.Listeners = append(req.Listeners, cloudsim.Listener{Protocol: cloudsim.UDP, Port: 80, TargetPort: 1})
	a, err := e.CreateLoadBalancer(ctx, req)
	expect("of listeners with two protocols", []int{30080, 30080}, published(a, err))
	req = loadBalancer("b")
	req.Listeners = append(req.Listeners, cloudsim.Listener{Protocol: cloudsim.TCP, Port: 81, TargetPort: 1})
	b, err := e.CreateLoadBalancer(ctx, req)
	expect("of the second load balancer", []int{30081}, published(b, err))
	if _, err := e.DeleteLoadBalancer(ctx, a.ID); err != nil {
		t.Fatal(err)
	}
	update := cloudsim.UpdateLoadBalancer{LoadBalancerSpec: b.LoadBalancerSpec}
	update.DrainTimeoutSeconds = 1
	b, err = e.UpdateLoadBalancer(ctx, b.ID, update, 0)
	expect("after the release of a port", []int{30081, 30080}, published(b, err))
	update.Listeners = []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 82, TargetPort: 1}, b.Listeners[1]}
	b, err = e.UpdateLoadBalancer(ctx, b.ID, update, 0)
	expect("after the replacement of a listener in a full range", []int{30081, 30080}, published(b, err))
	down()
	e, down = boot(t, path, instant, publish(30090, 30099))
	b, err = e.GetLoadBalancer(ctx, b.ID)
	expect("of another range", []int{30090, 30091}, published(b, err))
	down()
	e, down = boot(t, path, instant)
	defer down()
	b, err = e.GetLoadBalancer(ctx, b.ID)
	expect("without a range", nil, published(b, err))
}

// TestAddressTargets proves that the IP of a target must be an address of the
// target's instance, or be in the instance's pod ranges. The deletion of the
// instance also removes the target.
func TestAddressTargets(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, func(c *engine.Config) {
		c.Pods.IPv4, c.Pods.IPv6 = "10.244.0.0/16", "fd44::/48"
	})
	defer down()
	one, two := mustCreate(t, e, ctx, "one"), mustCreate(t, e, ctx, "two")
	at := func(i cloudsim.Instance, ips ...string) (all []cloudsim.Target) {
		for _, ip := range ips {
			all = append(all, cloudsim.Target{Instance: i.ID, IP: ip})
		}
		return all
	}
	req := loadBalancer("shop")
	req.Targets = append(at(one, "10.244.0.7", "fd44::7", one.InternalIP()), at(two, "10.244.1.7")...)
	lb := must(e.CreateLoadBalancer(ctx, req))(t)
	for name, tc := range map[string]struct {
		targets []cloudsim.Target
		field   string
	}{
		"pod address of another instance":      {at(one, "10.244.0.7", "10.244.1.8"), "targets[1].ip"},
		"address of the cloud's host":          {at(one, "127.0.0.1"), "targets[0].ip"},
		"internal address of another instance": {at(one, two.InternalIP()), "targets[0].ip"},
		"address of the metadata service":      {at(one, "169.254.169.254"), "targets[0].ip"},
		"unknown instance":                     {[]cloudsim.Target{{Instance: "i-999999", IP: "10.244.0.7"}}, "targets[0].instance"},
	} {
		_, err := e.SetLoadBalancerTargets(ctx, lb.ID, cloudsim.SetTargets{Targets: tc.targets}, 0)
		var bad *cloudsim.Error
		if !errors.As(err, &bad) || bad.Kind != cloudsim.Invalid || len(bad.Fields) != 1 || bad.Fields[0].Field != tc.field {
			t.Errorf("%s: %v, want Invalid of %s", name, err, tc.field)
		}
	}
	must(e.DeleteInstance(ctx, one.ID))(t)
	if d := cmp.Diff(at(two, "10.244.1.7"), must(e.GetLoadBalancer(ctx, lb.ID))(t).Targets); d != "" {
		t.Errorf("targets after the deletion of the instance: %s", d)
	}
}

// TestTargetsOfAllPools proves that the limit of targets applies to the sum of the targets in all
// pools of a load balancer (see cloudsim.TargetPool). The limit also applies if a client replaces
// only the load balancer's own targets.
func TestTargetsOfAllPools(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	req := loadBalancer("shop")
	req.Listeners[0].HealthCheck = &cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP}
	req.Listeners = append(req.Listeners, cloudsim.Listener{Protocol: cloudsim.TCP, Port: 81, TargetPort: 30081})
	lb := must(e.CreateLoadBalancer(ctx, req))(t)
	many := make([]cloudsim.Target, cloudsim.MaxTargets/2+1)
	for n := range many {
		many[n].Instance = cloudsim.InstanceID(fmt.Sprintf("i-%06x", n+1))
	}
	_, err := e.SetLoadBalancerTargets(ctx, lb.ID, cloudsim.SetTargets{Targets: many}, 0)
	var bad *cloudsim.Error
	if !errors.As(err, &bad) || bad.Kind != cloudsim.Invalid || bad.Fields[0].Field != "listeners[0].targets" {
		t.Errorf("got error %v, want Invalid for the targets of the listener", err)
	}
}

// TestListenerTargets proves that the engine checks, stores and removes the targets of a listener
// in the same way as the targets of the load balancer. If the last target of a listener is deleted,
// the listener keeps an empty list. With nil instead of the empty list, the listener would use the
// targets of the load balancer.
func TestListenerTargets(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	path := file(t)
	e, down := boot(t, path, instant)
	a, b := mustCreate(t, e, ctx, "a"), mustCreate(t, e, ctx, "b")
	req := loadBalancer("shop", b.ID)
	req.Listeners[0].Targets = []cloudsim.Target{{Instance: "i-999999"}}
	_, err := e.CreateLoadBalancer(ctx, req)
	var bad *cloudsim.Error
	if !errors.As(err, &bad) || bad.Kind != cloudsim.Invalid || bad.Fields[0].Field != "listeners[0].targets[0].instance" {
		t.Errorf("unknown instance: got error %v, want Invalid of listeners[0].targets[0].instance", err)
	}
	req.Listeners[0].Targets = []cloudsim.Target{{Instance: a.ID, Weight: 2}}
	req.Listeners[0].HealthCheck = &cloudsim.HealthCheck{Protocol: cloudsim.HealthHTTP, Path: "/ready"}
	lb := must(e.CreateLoadBalancer(ctx, req))(t)
	if repeated := must(e.CreateLoadBalancer(ctx, req))(t); repeated.ID != lb.ID {
		t.Errorf("repeated request: got load balancer %s", repeated.ID)
	}
	other := req
	other.Listeners = []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 80, TargetPort: 30080}}
	if _, err := e.CreateLoadBalancer(ctx, other); !errors.Is(err, cloudsim.Exists) {
		t.Errorf("same name without the listener's targets: got error %v, want Exists", err)
	}
	status := []cloudsim.TargetStatus{{Instance: a.ID, Listener: "tcp/80", Health: cloudsim.TargetHealthy}}
	stray := cloudsim.TargetStatus{Instance: b.ID, Health: cloudsim.TargetHealthy} // no listener uses the targets of the load balancer
	if err := e.ReportLoadBalancer(ctx, lb.ID, cloudsim.LoadBalancerStatus{Targets: append(status, stray)}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(status, must(e.GetLoadBalancer(ctx, lb.ID))(t).Status.Targets); d != "" {
		t.Error(d)
	}

	must(e.DeleteInstance(ctx, a.ID))(t)
	down()
	e, down = boot(t, path, instant)
	defer down()
	got := must(e.GetLoadBalancer(ctx, lb.ID))(t)
	if l := got.Listeners[0]; l.Targets == nil || len(l.Targets) != 0 || l.HealthCheck == nil || l.HealthCheck.Path != "/ready" {
		t.Errorf("listener after the deletion of the instance and a restart: got %+v, want an empty list of targets", l)
	}
	if len(got.Targets) != 1 || len(got.Status.Targets) != 0 {
		t.Errorf("targets %+v, status %+v; want one target and no status", got.Targets, got.Status.Targets)
	}
}

type meter map[cloudsim.LoadBalancerID]bool

func (m meter) LoadBalancerStats(id cloudsim.LoadBalancerID) (cloudsim.LoadBalancerStats, bool) {
	return cloudsim.LoadBalancerStats{Targets: []cloudsim.TargetStats{{Connections: 1}}}, m[id]
}

// TestListLoadBalancerStats proves that the pages of ListLoadBalancerStats together contain exactly
// the load balancers that the caller may see and that forward connections.
func TestListLoadBalancerStats(t *testing.T) {
	e, down := boot(t, file(t), instant, func(c *engine.Config) { c.Meter = meter{"lb-000001": true, "lb-000003": true, "lb-000004": true} })
	defer down()
	must(e.CreateProject(engine.AsCloud(t.Context()), cloudsim.CreateProject{Name: "other"}))(t)
	ctx := enter(t, e, "secret", engine.DefaultProject)
	for _, name := range []string{"a", "b", "c"} {
		must(e.CreateLoadBalancer(ctx, loadBalancer(name)))(t)
	}
	must(e.CreateLoadBalancer(enter(t, e, "secret", "other"), loadBalancer("d")))(t)
	all, _, err := cloudsim.All(ctx, e.ListLoadBalancerStats, cloudsim.ListOptions{Limit: 1})
	var got []string
	for _, l := range all {
		if l.Targets[0].Connections == 1 {
			got = append(got, l.Name)
		}
	}
	if d := cmp.Diff([]string{"a", "c"}, got); err != nil || d != "" {
		t.Errorf("names of the load balancers with statistics: got error %v (-want +got):\n%s", err, d)
	}
}
