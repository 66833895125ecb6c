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

// normalPeriods returns a plane (cloud, API server and controllers) with
// upstream's normal periods. In a synctest bubble these periods take no real
// time.
func normalPeriods(t *testing.T, opts ...cloudtest.Option) plane {
	t.Helper()
	return normalPeriodsAt(t, 2*time.Second, opts...)
}

// normalPeriodsAt returns a plane like normalPeriods, but with the given
// settleTime of the repairer. The repairer checks a load balancer when its
// Service has not changed for this time.
func normalPeriodsAt(t *testing.T, settleTime time.Duration, opts ...cloudtest.Option) plane {
	t.Helper()
	r := newRig(t, append(opts, cloudtest.InBubble())...)
	r.events = record.NewFakeRecorder(10_000)
	r.wire.takes = time.Millisecond // the name of a Kubernetes event contains the time, so two events could get the same name if calls took no time
	r.provider = r.restarted()
	r.startMirror(t)
	// Upstream's workers may finish a call after their controller has ended. So
	// the cloud runs for another minute of the bubble's time.
	t.Cleanup(func() { time.Sleep(time.Minute) })
	return r.startAt(t, pace{5 * time.Minute, 5 * time.Second, settleTime})
}

func awaitEverySecond(t *testing.T, d time.Duration, condition string, isDone func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !isDone(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatalf("timeout after %s: %s", d, condition)
		}
	}
}

func (p plane) postService(t *testing.T, s *v1.Service) {
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
	return newService(func(s *v1.Service) { s.Name, s.UID = "late", "99999999-1111-2222-3333-444455556666" })
}

// populatedPlane returns a plane: a cloud, an API server, and controllers with their normal
// periods. The plane has a ready Node, a Node that is not ready, and a Service with its load
// balancer.
func populatedPlane(t *testing.T) (plane, cloudsim.LoadBalancer) {
	t.Helper()
	p := normalPeriods(t)
	p.join(t, setReady(initializedNode(p.createMachine(t, "node-1"))))
	p.join(t, initializedNode(p.createMachine(t, "node-2")))
	time.Sleep(10 * time.Second)
	p.postService(t, newService())
	awaitEverySecond(t, time.Minute, "the Service has its address", func() bool { return addressed(p.getService(t)) })
	return p, p.onlyLoadBalancer(t)
}

// checkKept fails the test if a Node or the load balancer was deleted, or if the load balancer does
// not have two targets. It also fails the test if the address of the load balancer or of the
// Service is not lb.IP.
func (p plane) checkKept(t *testing.T, lb cloudsim.LoadBalancer) {
	t.Helper()
	for _, n := range []string{"node-1", "node-2"} {
		if p.getNode(t, n) == nil {
			t.Errorf("%s was deleted", n)
		}
	}
	if now, err := p.cloud.GetLoadBalancer(t.Context(), lb.ID); err != nil || now.IP != lb.IP || len(now.Targets) != 2 {
		t.Errorf("load balancer: got %+v, %v", now, err)
	}
	if in := p.getService(t).Status.LoadBalancer.Ingress; len(in) != 1 || in[0].IP != lb.IP {
		t.Errorf("ingress of the Service: got %+v", in)
	}
}

// If the cloud does not answer for ten minutes, the CCM deletes no Nodes and no
// load balancers during this time. New Services and Nodes wait, and events
// contain the reason. After the outage the CCM finishes all work within the
// retry delay of upstream's queue.
func TestTenMinutesWithoutTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, lb := populatedPlane(t)
		p.wire.spoil(func(int, *http.Request) fault { return fault{cut: true} })
		p.wire.hangUp()
		p.createMachine(t, "node-3")
		p.join(t, setReady(newNode("node-3")))
		p.postService(t, another())
		gone := initializedNode(p.createMachine(t, "node-4"))
		if _, err := p.cloud.DeleteInstance(t.Context(), cloudsim.InstanceID(gone.Spec.ProviderID[len("cloudsim://sim-1/sim-1a/"):])); err != nil {
			t.Fatal(err)
		}
		p.join(t, gone)
		time.Sleep(10 * time.Minute)

		p.checkKept(t, lb)
		if p.getNode(t, "node-4") == nil {
			t.Error("the CCM deleted a Node although it could not read whether the instance exists")
		}
		if !hasTaint(p.getNode(t, "node-3"), cloudapi.TaintExternalCloudProvider) || addressed(p.named(t, "late")) {
			t.Error("the CCM initialized a Node, or gave a Service an address, during the outage of the cloud")
		}
		if err := p.provider.Health(); err == nil {
			t.Error("/healthz reported no error")
		}
		if w := p.warningMessages(t); !strings.Contains(w, errCut.Error()) {
			t.Errorf("no event of the Service contains the reason:\n%s", w)
		}

		p.wire.spoil(nil)
		awaitEverySecond(t, 20*time.Second, "the CCM watches the cloud again", func() bool { return p.provider.Health() == nil })
		awaitEverySecond(t, 10*time.Second, "the Node of the deleted instance is deleted", func() bool { return p.getNode(t, "node-4") == nil })
		awaitEverySecond(t, 6*time.Minute, "the Service gets its address", func() bool { return addressed(p.named(t, "late")) })
		awaitEverySecond(t, 20*time.Minute, "the Node is initialized", func() bool {
			return !hasTaint(p.getNode(t, "node-3"), cloudapi.TaintExternalCloudProvider)
		})
	})
}

// If a person changes or deletes a load balancer during an outage of the CCM's
// connection to the cloud, the CCM repairs the load balancer after the outage.
func TestDriftWithoutTheCloud(t *testing.T) {
	for name, drift := range map[string]func(p plane, lb cloudsim.LoadBalancer) error{
		"deleted": func(p plane, lb cloudsim.LoadBalancer) error {
			_, err := p.cloud.DeleteLoadBalancer(context.Background(), lb.ID)
			return err
		},
		"emptied": func(p plane, lb cloudsim.LoadBalancer) error {
			_, err := p.cloud.SetLoadBalancerTargets(context.Background(), lb.ID, cloudsim.SetTargets{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, lb := populatedPlane(t)
				p.wire.spoil(func(int, *http.Request) fault { return fault{cut: true} })
				p.wire.hangUp()
				if err := drift(p, lb); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				p.wire.spoil(nil)
				awaitEverySecond(t, 6*time.Minute, "the load balancer matches the Service", func() bool {
					all := p.balancersInCloud(t)
					in := p.getService(t).Status.LoadBalancer.Ingress
					return len(all) == 1 && len(all[0].Targets) == 2 && len(in) == 1 && in[0].IP == all[0].IP
				})
			})
		})
	}
}

// If the IP mode of a Service changes, the CCM changes the status of the
// Service, but the address stays the same.
func TestIPModeChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, lb := populatedPlane(t)
		p.update(t, annotate("ip-mode", "VIP"))
		awaitEverySecond(t, time.Minute, "the status matches", func() bool {
			in := p.getService(t).Status.LoadBalancer.Ingress
			return len(in) == 1 && in[0].IP == lb.IP && *in[0].IPMode == v1.LoadBalancerIPModeVIP
		})
		p.checkKept(t, lb)
	})
}

// If a user deletes a Service during an outage of the cloud, the Service exists
// until the cloud answers again.
func TestDeletedWithoutTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := populatedPlane(t)
		p.wire.spoil(func(int, *http.Request) fault { return fault{cut: true} })
		now := metav1.Now()
		p.update(t, func(s *v1.Service) { s.DeletionTimestamp = &now })
		time.Sleep(10 * time.Minute)
		if !servicehelpers.HasLBFinalizer(p.getService(t)) || len(p.balancersInCloud(t)) != 1 {
			t.Error("during the outage of the cloud, the CCM removed the finalizer, or the load balancer was deleted")
		}
		p.wire.spoil(nil)
		awaitEverySecond(t, 6*time.Minute, "the Service loses its finalizer", func() bool { return !servicehelpers.HasLBFinalizer(p.getService(t)) })
		if all := p.balancersInCloud(t); len(all) != 0 {
			t.Errorf("remaining load balancers: %+v", all)
		}
	})
}

// If the cloud refuses calls, the CCM deletes no Nodes and no load balancers.
// If a user creates a Service during this time, an event of this Service
// contains the reason. When the cloud accepts calls again, the Service gets its
// load balancer.
func TestRefusalsSayWhy(t *testing.T) {
	none := int64(1)
	for name, tc := range map[string]struct {
		refuse func(*testing.T, plane) (allow func())
		says   string // part of the event; empty if the cloud does not refuse the load balancer of the Service
	}{
		"bad credentials": {func(_ *testing.T, p plane) func() {
			return p.replaceToken(client.StaticToken("nope"))
		}, "the token is not known"},
		"missing permission": {func(t *testing.T, p plane) func() {
			return p.replaceToken(cloudtest.As(t, p.cloud, "nobody", cloudsim.RoleRegistryReader).Token)
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
				p, lb := populatedPlane(t)
				allow := tc.refuse(t, p)
				p.wire.hangUp()
				p.postService(t, another())
				time.Sleep(10 * time.Minute)
				p.checkKept(t, lb)
				if tc.says != "" {
					if w := p.warningMessages(t); !strings.Contains(strings.ToLower(w), tc.says) {
						t.Errorf("no event contains %q:\n%s", tc.says, w)
					}
					if addressed(p.named(t, "late")) {
						t.Error("the Service got an address")
					}
				}
				allow()
				awaitEverySecond(t, 6*time.Minute, "the Service gets its address", func() bool { return addressed(p.named(t, "late")) })
				awaitEverySecond(t, time.Minute, "the CCM watches the cloud", func() bool { return p.provider.Health() == nil })
				p.checkKept(t, lb)
			})
		})
	}
}

func (p plane) replaceToken(token client.TokenSource) (restore func()) {
	set := func(s client.TokenSource) {
		p.wire.spoil(nil)
		p.wire.mu.Lock()
		defer p.wire.mu.Unlock()
		p.wire.token = s
	}
	set(token)
	return func() { set(nil) }
}

func (p plane) incident(t *testing.T, f cloudsim.CreateFault) (remove func()) {
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

// While the cloud cannot provide a port of a Service, the Service has the
// condition LoadBalancerPortsError.
func TestPortsErrorCondition(t *testing.T) {
	taken := sharingService("01", 80)
	taken.Name = "taken"
	for name, tc := range map[string]struct {
		svc  *v1.Service
		says string
		mend func(*v1.Service)
	}{
		"SCTP": {newService(func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolSCTP }), "SCTP",
			func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolTCP }},
		"no node ports": {newService(func(s *v1.Service) {
			s.Spec.Ports[0].NodePort, s.Spec.AllocateLoadBalancerNodePorts = 0, new(bool)
		}), "allocateLoadBalancerNodePorts", func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30080 }},
		"port of another Service": {sharingService("02", 80), "default/taken", func(s *v1.Service) { s.Spec.Ports[0].Port = 81 }},
		"Service type changes":    {newService(func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolSCTP }), "SCTP", func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := normalPeriods(t)
				p.join(t, setReady(initializedNode(p.createMachine(t, "node-1")))) // the network of this Node has no pod ranges
				time.Sleep(10 * time.Second)                                       // upstream's service controller has a data race if a Service and a Node change at the same time
				p.postService(t, taken.DeepCopy())
				time.Sleep(10 * time.Second)
				s := tc.svc.DeepCopy()
				s.Name = "web"
				p.postService(t, s)
				awaitEverySecond(t, time.Minute, "the Service has the condition", func() bool {
					c := p.getService(t).Status.Conditions
					return len(c) == 1 && c[0].Type == v1.LoadBalancerPortsError && c[0].Status == metav1.ConditionTrue && strings.Contains(c[0].Message, tc.says)
				})
				p.update(t, tc.mend)
				awaitEverySecond(t, 6*time.Minute, "the Service has no condition", func() bool { return len(p.getService(t).Status.Conditions) == 0 })
				awaitEverySecond(t, 6*time.Minute, "the Service has an address", func() bool {
					s := p.getService(t)
					return s.Spec.Type != v1.ServiceTypeLoadBalancer || addressed(s)
				})
			})
		})
	}
}

// If a Service disables the allocation of node ports, but a user has set node
// ports, the CCM uses these node ports.
func TestNodePortsByHand(t *testing.T) {
	r := newRig(t)
	r.ensure(t, newService(func(s *v1.Service) { s.Spec.AllocateLoadBalancerNodePorts = new(bool) }))
	if l := r.onlyLoadBalancer(t).Listeners; l[0].TargetPort != 30080 {
		t.Errorf("listeners: got %+v, want target port 30080", l)
	}
}
