package ccm_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

func sharingService(n string, port int32, change ...func(*v1.Service)) *v1.Service {
	return newService(append([]func(*v1.Service){annotate("shared", "front"), func(s *v1.Service) {
		s.Name, s.UID = n, types.UID("00000000-1111-2222-3333-0000000000"+n)
		s.Spec.Ports[0].Port, s.Spec.Ports[0].NodePort = port, 30000+port
	}}, change...)...)
}

func (r *rig) ports(t *testing.T) (ports []int) {
	t.Helper()
	for _, l := range r.onlyLoadBalancer(t).Listeners {
		ports = append(ports, l.Port)
	}
	return ports
}

func TestSharedFromFirstToLast(t *testing.T) {
	r := newRig(t)
	one, two := sharingService("01", 80), sharingService("02", 81)
	first, second := r.ensure(t, one), r.ensure(t, two)
	if first.Ingress[0].IP != second.Ingress[0].IP {
		t.Errorf("addresses of both Services: got %s and %s, want the same", first.Ingress[0].IP, second.Ingress[0].IP)
	}
	if got := r.ports(t); len(got) != 2 {
		t.Errorf("ports of the load balancer: got %v", got)
	}
	one.Spec.Ports[0].Port = 82
	r.ensure(t, one)
	if got := r.ports(t); len(got) != 2 || got[0]+got[1] != 82+81 {
		t.Errorf("ports of the load balancer after a change: got %v", got)
	}
	r.wire.spoil(nil)
	r.ensure(t, one)
	r.ensure(t, two)
	if made := r.wire.takeCalls(true); len(made) > 0 {
		t.Errorf("the repeated requests made the calls %v", made)
	}
	// A user removes the annotation before the deletion of the Service.
	one.Annotations = nil
	if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, one); err != nil {
		t.Fatal(err)
	}
	if got := r.ports(t); len(got) != 1 || got[0] != 81 {
		t.Errorf("ports of the load balancer after the first Service left: got %v", got)
	}
	if _, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, one); err != nil || exists {
		t.Errorf("first Service: got exists=%v, error %v", exists, err)
	}
	if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, two); err != nil {
		t.Fatal(err)
	}
	if all := r.balancersInCloud(t); len(all) != 0 {
		t.Errorf("load balancers after the last Service left: got %+v", all)
	}
}

// A Service cannot change the settings of a shared load balancer while other
// Services use the load balancer.
func TestSharedRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		other *v1.Service
		says  string
	}{
		"port of another Service": {sharingService("02", 80), "default/01"},
		"other source ranges":     {sharingService("02", 81, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"} }), "settings: source ranges;"},
		"another family":          {sharingService("02", 81, func(s *v1.Service) { s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol} }), "settings: addresses or IP families;"},
		"another scheme":          {sharingService("02", 81, annotate("scheme", "internal")), "settings: scheme;"},
		"another affinity":        {sharingService("02", 81, func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }), "settings: session affinity;"},
		"two other settings": {sharingService("02", 81, annotate("health-check-path", "/ready"), annotate("drain-timeout", "5s")),
			"settings: health check, drain timeout;"},
		"shared annotation on a Service with its own load balancer": {newService(annotate("shared", "front"), func(s *v1.Service) {
			s.UID = "alone"
		}), "cannot be changed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.ensure(t, sharingService("01", 80))
			before := r.onlyLoadBalancer(t)
			if tc.other.UID == "alone" {
				unshared := tc.other.DeepCopy()
				unshared.Annotations = nil
				r.ensure(t, unshared)
			}
			if st, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, tc.other, nil); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, %v; want an error that says %q", st, err, tc.says)
			}
			now, err := r.cloud.GetLoadBalancer(t.Context(), before.ID)
			if err != nil || now.Revision != before.Revision {
				t.Errorf("the CCM changed the shared load balancer to %+v, %v", now, err)
			}
		})
	}
}

// A shared load balancer belongs to one namespace. If Services in two namespaces have the same
// value of the annotation for a shared load balancer, each Service gets its own load balancer.
func TestSharedLoadBalancerStaysInNamespace(t *testing.T) {
	r := newRig(t)
	r.ensure(t, sharingService("01", 80))
	r.ensure(t, sharingService("02", 81, func(s *v1.Service) { s.Namespace = "other" }))
	if all := r.balancersInCloud(t); len(all) != 2 {
		t.Errorf("got %d load balancers", len(all))
	}
}

// The sweeper deletes load balancers of deleted Services. If a deleted Service used a shared load
// balancer, the sweeper removes only the membership of this Service. It does not delete a load
// balancer that other Services use.
func TestSharedPortsOfDeletedService(t *testing.T) {
	r := newRig(t)
	r.cfg = ccm.Config{DeleteOrphans: true}
	r.cfg.OrphanGrace.Duration = 1
	r.provider = r.restarted()
	here := sharingService("02", 81)
	r.ensure(t, sharingService("01", 80))
	r.ensure(t, here)
	r.startMirror(t)
	sweep := r.provider.Sweeper(fake.NewClientset(here), cluster)
	eventually.True(t, "the ports of the deleted Service are removed", func() bool {
		if err := sweep(t.Context()); err != nil && cloudsim.KindOf(err) != cloudsim.Stale {
			t.Fatal(err)
		}
		return len(r.ports(t)) == 1
	})
	if got := r.ports(t); got[0] != 81 {
		t.Errorf("remaining ports of the load balancer: got %v, want 81", got)
	}
}

// If a Service no longer has the annotation for its shared load balancer, UpdateLoadBalancer
// returns an error for this Service. The call does not change the targets of the load balancer,
// because the other Services need these targets.
func TestUpdateWithoutSharedAnnotation(t *testing.T) {
	r := newRig(t, podRanges)
	i := r.createMachine(t, "node-1")
	one, two := sharingService("01", 80), sharingService("02", 81)
	r.ensure(t, one, initializedNode(i))
	r.ensure(t, two, initializedNode(i))
	before := r.onlyLoadBalancer(t)
	for name, change := range map[string]func(*v1.Service){
		"with other nodes": annotate("node-selector", "role=web"),
		"without node ports": func(s *v1.Service) {
			s.Spec.AllocateLoadBalancerNodePorts, s.Spec.Ports[0].NodePort = new(bool), 0
		},
	} {
		svc := sharingService("01", 80, change)
		delete(svc.Annotations, ccm.AnnotationLoadBalancerShared)
		if err := r.balancers().UpdateLoadBalancer(t.Context(), cluster, svc, []*v1.Node{initializedNode(i)}); err == nil || !strings.Contains(err.Error(), "shared load balancer") {
			t.Errorf("%s: got error %v, want an error that says the load balancer is shared", name, err)
		}
		if after := r.onlyLoadBalancer(t); after.Revision != before.Revision {
			t.Errorf("%s: the CCM changed the load balancer to %+v", name, after)
		}
	}
}

// The annotations for a shared load balancer and for a node selector exclude each other. If a
// Service has both, EnsureLoadBalancer and UpdateLoadBalancer return an error. They do not change
// the targets, because other Services on the load balancer need these targets.
func TestUpdateOfMemberThatSelectsNodes(t *testing.T) {
	r := newRig(t)
	nodes := []*v1.Node{initializedNode(r.createMachine(t, "node-1"))}
	r.ensure(t, sharingService("01", 80), nodes...)
	r.ensure(t, sharingService("02", 81), nodes...)
	before := r.onlyLoadBalancer(t)
	selects := sharingService("01", 80, annotate("node-selector", "role=web"))
	_, ensured := r.balancers().EnsureLoadBalancer(t.Context(), cluster, selects, nodes)
	updated := r.balancers().UpdateLoadBalancer(t.Context(), cluster, selects, nodes)
	for call, err := range map[string]error{"EnsureLoadBalancer": ensured, "UpdateLoadBalancer": updated} {
		if err == nil || !strings.Contains(err.Error(), "exclude each other") {
			t.Errorf("%s: got error %v, want an error that the annotations exclude each other", call, err)
		}
	}
	if after := r.onlyLoadBalancer(t); after.Revision != before.Revision {
		t.Errorf("the CCM changed the load balancer to %+v", after)
	}
}

// The status and the events of a Service on a shared load balancer contain only
// the ports of this Service.
func TestSharedStatusHasOnlyOwnPorts(t *testing.T) {
	r, e := newRigAndEngine(t)
	short, broken := sharingService("01", 80, annotate("ip-mode", "VIP")), sharingService("02", 81)
	r.ensure(t, short)
	r.ensure(t, broken)
	ip := r.onlyLoadBalancer(t).IP
	if err := e.ReportLoadBalancer(engine.AsCloud(t.Context()), r.onlyLoadBalancer(t).ID, cloudsim.LoadBalancerStatus{Listeners: []cloudsim.ListenerStatus{
		{Protocol: cloudsim.TCP, Port: 80, IP: ip, Endpoint: ip + ":80"},
		{Protocol: cloudsim.TCP, Port: 81, IP: ip, Error: "the port is taken"},
	}}); err != nil {
		t.Fatal(err)
	}
	got := r.ensure(t, short).Ingress[0]
	if events := r.takeEvents(); *got.IPMode != v1.LoadBalancerIPModeVIP || got.Ports != nil || strings.Contains(events, "81") {
		t.Errorf("first Service: got %+v, mode %s; want mode VIP, no ports and no event about port 81; events:\n%s", got, *got.IPMode, events)
	}
	got = r.ensure(t, broken).Ingress[0]
	if events := r.takeEvents(); *got.IPMode != v1.LoadBalancerIPModeProxy || len(got.Ports) != 1 || got.Ports[0].Port != 81 || !strings.Contains(events, "taken") {
		t.Errorf("second Service: got %+v, mode %s; want mode Proxy, port 81 and an event with its error; events:\n%s", got, *got.IPMode, events)
	}
}

// In TestSharedJoinsDuringDeletion, the CCM handles the deletion of a Service and reads its shared
// load balancer. Then another Service joins the load balancer. The CCM must not delete the load
// balancer.
func TestSharedJoinsDuringDeletion(t *testing.T) {
	r := newRig(t)
	one, two := sharingService("01", 80), sharingService("02", 81)
	r.ensure(t, one)
	r.ensure(t, two)
	both := r.onlyLoadBalancer(t)
	if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, two); err != nil {
		t.Fatal(err)
	}
	var join sync.Once
	r.wire.spoil(func(_ int, req *http.Request) fault {
		if strings.HasSuffix(req.URL.Path, "/"+string(both.ID)) { // the first call about this load balancer
			join.Do(func() {
				if _, err := r.cloud.UpdateLoadBalancer(t.Context(), both.ID, cloudsim.UpdateLoadBalancer{Labels: both.Labels, LoadBalancerSpec: both.LoadBalancerSpec}, 0); err != nil {
					t.Error(err)
				}
			})
		}
		return fault{}
	})
	if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, one); err != nil {
		t.Fatal(err)
	}
	if got := r.ports(t); len(got) != 1 || got[0] != 81 {
		t.Errorf("ports of the load balancer after the first Service left: got %v, want 81", got)
	}
}
