package ccm_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	cloudapi "k8s.io/cloud-provider/api"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// calm returns a plane with upstream's normal periods. In a synctest bubble these
// periods take no real time.
func calm(t *testing.T, opts ...cloudtest.Option) plane {
	t.Helper()
	return calmAt(t, 2*time.Second, opts...)
}

// calmAt is calm with the given settle time of the repairer.
func calmAt(t *testing.T, settle time.Duration, opts ...cloudtest.Option) plane {
	t.Helper()
	r := newRig(t, append(opts, cloudtest.InBubble())...)
	r.events = record.NewFakeRecorder(10_000)
	r.wire.takes = time.Millisecond // otherwise two events get the same name
	r.provider = r.again()
	r.mirrored(t)
	// Upstream's workers may outlive their controller by one call, so the cloud
	// runs for another minute of the bubble's time.
	t.Cleanup(func() { time.Sleep(time.Minute) })
	return r.startAt(t, pace{5 * time.Minute, 5 * time.Second, settle})
}

// within waits until ok returns true, for at most d, in steps of a second.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", d, what)
		}
	}
}

// post creates a Service.
func (p plane) post(t *testing.T, s *v1.Service) {
	t.Helper()
	if _, err := p.kube.CoreV1().Services(s.Namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (p plane) named(t *testing.T, name string) *v1.Service {
	t.Helper()
	s, err := p.kube.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func addressed(s *v1.Service) bool { return len(s.Status.LoadBalancer.Ingress) > 0 }

func another() *v1.Service {
	return service(func(s *v1.Service) { s.Name, s.UID = "late", "99999999-1111-2222-3333-444455556666" })
}

// peopled returns a calm plane with a ready Node, a Node that is not ready, and a
// Service with its load balancer.
func peopled(t *testing.T) (plane, cloudsim.LoadBalancer) {
	t.Helper()
	p := calm(t)
	p.join(t, ready(initialised(p.machine(t, "node-1"))))
	p.join(t, initialised(p.machine(t, "node-2")))
	time.Sleep(10 * time.Second)
	p.post(t, service())
	within(t, time.Minute, "the Service has its address", func() bool { return addressed(p.service(t)) })
	return p, p.only(t)
}

// kept fails the test if a Node or the load balancer is lost, or if the Service
// shows another address.
func (p plane) kept(t *testing.T, lb cloudsim.LoadBalancer) {
	t.Helper()
	for _, n := range []string{"node-1", "node-2"} {
		if p.node(t, n) == nil {
			t.Errorf("%s was deleted", n)
		}
	}
	if now, err := p.cloud.GetLoadBalancer(t.Context(), lb.ID); err != nil || now.IP != lb.IP || len(now.Targets) != 2 {
		t.Errorf("the load balancer is %+v, %v", now, err)
	}
	if in := p.service(t).Status.LoadBalancer.Ingress; len(in) != 1 || in[0].IP != lb.IP {
		t.Errorf("the Service shows %+v", in)
	}
}

// An outage of ten minutes loses no existing objects. New requests wait and
// report the reason. After the outage the CCM finishes all requests, within the
// retry delay of upstream's queue.
func TestTenMinutesWithoutTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, lb := peopled(t)
		p.wire.spoil(func(int, *http.Request) fault { return fault{cut: true} })
		p.wire.hangUp()
		p.machine(t, "node-3")
		p.join(t, ready(node("node-3")))
		p.post(t, another())
		gone := initialised(p.machine(t, "node-4"))
		if _, err := p.cloud.DeleteInstance(t.Context(), cloudsim.InstanceID(gone.Spec.ProviderID[len("cloudsim://sim-1/sim-1a/"):])); err != nil {
			t.Fatal(err)
		}
		p.join(t, gone)
		time.Sleep(10 * time.Minute)

		p.kept(t, lb)
		if p.node(t, "node-4") == nil {
			t.Error("a Node went while nobody could know that its instance was gone")
		}
		if !hasTaint(p.node(t, "node-3"), cloudapi.TaintExternalCloudProvider) || addressed(p.named(t, "late")) {
			t.Error("something was initialised by a cloud that was away")
		}
		if err := p.provider.Health(); err == nil {
			t.Error("/healthz is well")
		}
		if w := p.warned(t); !strings.Contains(w, errCut.Error()) {
			t.Errorf("no event of the Service says why:\n%s", w)
		}

		p.wire.spoil(nil)
		within(t, 20*time.Second, "the cloud is watched again", func() bool { return p.provider.Health() == nil })
		within(t, 10*time.Second, "the Node of the instance that is gone goes", func() bool { return p.node(t, "node-4") == nil })
		within(t, 6*time.Minute, "the Service gets its address", func() bool { return addressed(p.named(t, "late")) })
		within(t, 20*time.Minute, "the Node is initialised", func() bool {
			return !hasTaint(p.node(t, "node-3"), cloudapi.TaintExternalCloudProvider)
		})
	})
}

// After an outage the CCM notices the changes of a load balancer that were made
// during the outage.
func TestDriftWithoutTheCloud(t *testing.T) {
	for what, drift := range map[string]func(p plane, lb cloudsim.LoadBalancer) error{
		"deleted": func(p plane, lb cloudsim.LoadBalancer) error {
			_, err := p.cloud.DeleteLoadBalancer(context.Background(), lb.ID)
			return err
		},
		"emptied": func(p plane, lb cloudsim.LoadBalancer) error {
			_, err := p.cloud.SetLoadBalancerTargets(context.Background(), lb.ID, cloudsim.SetTargets{})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, lb := peopled(t)
				p.wire.spoil(func(int, *http.Request) fault { return fault{cut: true} })
				p.wire.hangUp()
				if err := drift(p, lb); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				p.wire.spoil(nil)
				within(t, 6*time.Minute, "it is as the Service says", func() bool {
					all := p.balancersInCloud(t)
					in := p.service(t).Status.LoadBalancer.Ingress
					return len(all) == 1 && len(all[0].Targets) == 2 && len(in) == 1 && in[0].IP == all[0].IP
				})
			})
		})
	}
}

// A change of the IP mode changes the status of the Service and keeps the
// address.
func TestIPModeChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, lb := peopled(t)
		p.update(t, annotate("ip-mode", "VIP"))
		within(t, time.Minute, "the status says so", func() bool {
			in := p.service(t).Status.LoadBalancer.Ingress
			return len(in) == 1 && in[0].IP == lb.IP && *in[0].IPMode == v1.LoadBalancerIPModeVIP
		})
		p.kept(t, lb)
	})
}

// A Service that is deleted during an outage stays until the cloud answers again.
func TestDeletedWithoutTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := peopled(t)
		p.wire.spoil(func(int, *http.Request) fault { return fault{cut: true} })
		now := metav1.Now()
		p.update(t, func(s *v1.Service) { s.DeletionTimestamp = &now })
		time.Sleep(10 * time.Minute)
		if !servicehelpers.HasLBFinalizer(p.service(t)) || len(p.balancersInCloud(t)) != 1 {
			t.Error("the Service was let go without the cloud's word")
		}
		p.wire.spoil(nil)
		within(t, 6*time.Minute, "the Service is let go", func() bool { return !servicehelpers.HasLBFinalizer(p.service(t)) })
		if all := p.balancersInCloud(t); len(all) != 0 {
			t.Errorf("left behind: %+v", all)
		}
	})
}

// A refusal by the cloud never loses a Node or a load balancer. The event of the
// Service contains the reason. When the reason is removed, the Service gets its
// load balancer.
func TestRefusalsSayWhy(t *testing.T) {
	none := int64(1)
	for name, tc := range map[string]struct {
		refuse func(*testing.T, plane) (allow func())
		says   string // empty: the Service is not refused
	}{
		"bad credentials": {func(_ *testing.T, p plane) func() {
			return p.as(client.StaticToken("nope"))
		}, "the token is not known"},
		"no rights": {func(t *testing.T, p plane) func() {
			return p.as(cloudtest.As(t, p.cloud, "nobody", cloudsim.RoleRegistryReader).Token)
		}, "lacks the permission loadbalancers.list"},
		"quota": {func(t *testing.T, p plane) func() {
			if _, err := p.cloud.SetQuota(t.Context(), cloudsim.QuotaLoadBalancers, cloudsim.SetQuota{Limit: &none}); err != nil {
				t.Fatal(err)
			}
			return func() {
				if _, err := p.cloud.SetQuota(t.Context(), cloudsim.QuotaLoadBalancers, cloudsim.SetQuota{}); err != nil {
					t.Fatal(err)
				}
			}
		}, "quota loadbalancers"},
		"throttled": {func(t *testing.T, p plane) func() {
			return p.incident(t, cloudsim.CreateFault{Name: "slow-down", FaultSpec: cloudsim.FaultSpec{
				Match: cloudsim.FaultMatch{Operation: "*", Caller: "ccm"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultThrottle, RetryAfterSeconds: 2},
			}})
		}, "slow-down"},
		"zone outage": {func(t *testing.T, p plane) func() {
			return p.incident(t, cloudsim.CreateFault{Name: "zone-down", FaultSpec: cloudsim.FaultSpec{
				Match: cloudsim.FaultMatch{Operation: "*", Zone: "sim-1a"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultZoneOutage, Scope: cloudsim.OutageAPI},
			}})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, lb := peopled(t)
				allow := tc.refuse(t, p)
				p.wire.hangUp()
				p.post(t, another())
				time.Sleep(10 * time.Minute)
				p.kept(t, lb)
				if tc.says != "" {
					if w := p.warned(t); !strings.Contains(strings.ToLower(w), tc.says) {
						t.Errorf("no event says %q:\n%s", tc.says, w)
					}
					if addressed(p.named(t, "late")) {
						t.Error("the Service got an address")
					}
				}
				allow()
				within(t, 6*time.Minute, "the Service gets its address", func() bool { return addressed(p.named(t, "late")) })
				within(t, time.Minute, "the cloud is watched", func() bool { return p.provider.Health() == nil })
				p.kept(t, lb)
			})
		})
	}
}

// as replaces the token of the provider's calls.
func (p plane) as(token client.TokenSource) (back func()) {
	set := func(s client.TokenSource) {
		p.wire.spoil(nil)
		p.wire.mu.Lock()
		defer p.wire.mu.Unlock()
		p.wire.token = s
	}
	set(token)
	return func() { set(nil) }
}

// incident creates a fault in the cloud.
func (p plane) incident(t *testing.T, f cloudsim.CreateFault) (over func()) {
	t.Helper()
	made, err := p.cloud.CreateFault(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := p.cloud.DeleteFault(context.Background(), made.ID); err != nil {
			t.Error(err)
		}
	}
}

// The status of the Service shows a port that cannot be provided, until the port
// can be provided.
func TestPortsErrorCondition(t *testing.T) {
	taken := sharing("01", 80)
	taken.Name = "taken"
	for name, tc := range map[string]struct {
		svc  *v1.Service
		says string
		mend func(*v1.Service)
	}{
		"SCTP": {service(func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolSCTP }), "SCTP",
			func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolTCP }},
		"no node ports": {service(func(s *v1.Service) {
			s.Spec.Ports[0].NodePort, s.Spec.AllocateLoadBalancerNodePorts = 0, new(bool)
		}), "allocateLoadBalancerNodePorts", func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30080 }},
		"a port that another has": {sharing("02", 80), "default/taken", func(s *v1.Service) { s.Spec.Ports[0].Port = 81 }},
		"another type":            {service(func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolSCTP }), "SCTP", func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := calm(t)
				p.join(t, ready(initialised(p.machine(t, "node-1")))) // its network has no pod ranges
				time.Sleep(10 * time.Second)                          // see peopled
				p.post(t, taken.DeepCopy())
				time.Sleep(10 * time.Second)
				s := tc.svc.DeepCopy()
				s.Name = "web"
				p.post(t, s)
				within(t, time.Minute, "the condition is there", func() bool {
					c := p.service(t).Status.Conditions
					return len(c) == 1 && c[0].Type == v1.LoadBalancerPortsError && c[0].Status == metav1.ConditionTrue && strings.Contains(c[0].Message, tc.says)
				})
				p.update(t, tc.mend)
				within(t, 6*time.Minute, "it is gone", func() bool { return len(p.service(t).Status.Conditions) == 0 })
				within(t, 6*time.Minute, "it has an address", func() bool {
					s := p.service(t)
					return s.Spec.Type != v1.ServiceTypeLoadBalancer || addressed(s)
				})
			})
		})
	}
}

// A Service that disables node ports but has them set by hand is served.
func TestNodePortsByHand(t *testing.T) {
	r := newRig(t)
	r.ensure(t, service(func(s *v1.Service) { s.Spec.AllocateLoadBalancerNodePorts = new(bool) }))
	if l := r.only(t).Listeners; l[0].TargetPort != 30080 {
		t.Errorf("it forwards to %+v", l)
	}
}
