package ccm_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
)

// A person's address is used, never taken from another, and never given away.
func TestStaticAddress(t *testing.T) {
	for name, ask := range map[string]func(*v1.Service, string){
		"field":      func(s *v1.Service, ip string) { s.Spec.LoadBalancerIP = ip },
		"annotation": func(s *v1.Service, ip string) { s.Annotations = map[string]string{ccm.AnnotationLoadBalancerIP: ip} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			addr, err := r.cloud.CreateAddress(t.Context(), cloudsim.CreateAddress{Name: "shop"})
			if err != nil {
				t.Fatal(err)
			}
			s := service(func(s *v1.Service) { ask(s, addr.IP) })
			if st := r.ensure(t, s); st.Ingress[0].IP != addr.IP {
				t.Errorf("it stands on %s, want %s", st.Ingress[0].IP, addr.IP)
			}
			before := r.only(t)

			other := service(func(s *v1.Service) { s.UID = "ffffffff-1111-2222-3333-444455556666"; ask(s, addr.IP) })
			if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, other, nil); err == nil || !strings.Contains(err.Error(), string(before.ID)) {
				t.Errorf("an address in use: %v; want an error that says by what", err)
			}
			if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, service(func(s *v1.Service) { ask(s, "127.65.200.200") }), nil); err == nil || !strings.Contains(err.Error(), addr.IP) {
				t.Errorf("another address: %v; want an error", err)
			}
			if d := cmp.Diff(before, r.only(t)); d != "" {
				t.Errorf("load balancer (-before +after):\n%s", d)
			}
			s.Spec.Ports[0].Port = 81
			if st := r.ensure(t, s); st.Ingress[0].IP != addr.IP {
				t.Errorf("after a change it stands on %s, want %s", st.Ingress[0].IP, addr.IP)
			}
			if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, s); err != nil {
				t.Fatal(err)
			}
			if a, err := r.cloud.GetAddress(t.Context(), addr.ID); err != nil || a.UsedBy != "" {
				t.Errorf("the person's address afterwards: %+v, %v; want it kept and free", a, err)
			}
		})
	}
}

// What the cloud does not have is refused whole, by a reason that names it, and
// what is there already keeps working.
func TestRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1.Service)
		says   []string
	}{
		"UDP beside TCP": {func(s *v1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "dns", Protocol: v1.ProtocolUDP, Port: 80, NodePort: 30053})
		}, []string{"spec.ports[1]", "80", "UDP"}},
		"SCTP":          {func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolSCTP }, []string{"spec.ports[0]", "80", "SCTP"}},
		"no node port":  {func(s *v1.Service) { s.Spec.Ports[0].NodePort = 0 }, []string{"allocateLoadBalancerNodePorts", "80"}},
		"source ranges": {func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"} }, []string{"loadBalancerSourceRanges"}},
		"source ranges, annotation": {func(s *v1.Service) {
			s.Annotations = map[string]string{v1.AnnotationLoadBalancerSourceRangesKey: "10.0.0.0/8"}
		}, []string{"loadBalancerSourceRanges"}},
		"damaged source ranges": {func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"everybody"} }, []string{"loadBalancerSourceRanges", "everybody"}},
		"session affinity":      {func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }, []string{"sessionAffinity"}},
		"IPv6 only":             {func(s *v1.Service) { s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol} }, []string{"ipFamilies"}},
		"no ports":              {func(s *v1.Service) { s.Spec.Ports = nil }, []string{"spec.ports"}},
		"two addresses": {func(s *v1.Service) {
			s.Spec.LoadBalancerIP, s.Annotations = "1.1.1.1", map[string]string{ccm.AnnotationLoadBalancerIP: "2.2.2.2"}
		}, []string{"1.1.1.1", "2.2.2.2"}},
		"two things": {func(s *v1.Service) {
			s.Spec.SessionAffinity, s.Spec.Ports[0].Protocol = v1.ServiceAffinityClientIP, v1.ProtocolUDP
		}, []string{"sessionAffinity", "UDP"}},
		"an address nobody reserved": {func(s *v1.Service) { s.Spec.LoadBalancerIP = "127.65.200.200" }, []string{"127.65.200.200"}},
		"no address at all":          {func(s *v1.Service) { s.Spec.LoadBalancerIP = "lb.example.com" }, []string{"lb.example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, when := range []string{"first", "later"} {
				st, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, service(tc.change), nil)
				if err == nil {
					t.Fatalf("%s: accepted as %v", when, st)
				}
				for _, word := range tc.says {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("%s: %q does not say %q", when, err, word)
					}
				}
				if when == "first" {
					if all := r.balancersInCloud(t); len(all) > 0 {
						t.Errorf("it made %+v", all)
					}
					r.ensure(t, service()) // and now the Service changes
				} else if lb := r.only(t); len(lb.Listeners) != 1 || lb.Listeners[0].TargetPort != 30080 {
					t.Errorf("it changed what works: %+v", lb.LoadBalancerSpec)
				}
			}
		})
	}
}

// A range that lets everybody in restricts nothing, and dual stack has IPv4.
func TestAcceptsWhatChangesNothing(t *testing.T) {
	r := newRig(t)
	r.ensure(t, service(func(s *v1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{" 0.0.0.0/0 "}
		s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol, v1.IPv4Protocol}
	}))
	r.only(t)
}

// With one region there is nothing to configure; with two there is.
func TestRegion(t *testing.T) {
	r := newRig(t)
	r.wire.spoil(func(_ int, req *http.Request) fault {
		if req.URL.Path == "/v1/regions" {
			return fault{status: 200, body: `{"items":[{"name":"east"},{"name":"west"}]}`}
		}
		return fault{}
	})
	if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, service(), nil); err == nil || !strings.Contains(err.Error(), "region") {
		t.Errorf("two regions: %v; want an error that speaks of the region", err)
	}
	r.wire.spoil(nil)
	r.ensure(t, service())
	if lb := r.only(t); lb.Region != "sim-1" {
		t.Errorf("region %q", lb.Region)
	}
}
