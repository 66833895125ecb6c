package ccm_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
)

// A Service can use a reserved address. The CCM never uses an address that
// another load balancer uses, and never releases a reserved address.
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
			s := newService(func(s *v1.Service) { ask(s, addr.IP) })
			if st := r.ensure(t, s); st.Ingress[0].IP != addr.IP {
				t.Errorf("address of the load balancer: got %s, want %s", st.Ingress[0].IP, addr.IP)
			}
			before := r.onlyLoadBalancer(t)

			other := newService(func(s *v1.Service) { s.UID = "ffffffff-1111-2222-3333-444455556666"; ask(s, addr.IP) })
			if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, other, nil); err == nil || !strings.Contains(err.Error(), string(before.ID)) {
				t.Errorf("address in use: got error %v, want an error that names the user of the address", err)
			}
			if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, newService(func(s *v1.Service) { ask(s, "127.65.200.200") }), nil); err == nil || !strings.Contains(err.Error(), "127.65.200.200") {
				t.Errorf("an address that is not reserved: got error %v, want an error", err)
			}
			if d := cmp.Diff(before, r.onlyLoadBalancer(t)); d != "" {
				t.Errorf("load balancer (-before +after):\n%s", d)
			}
			s.Spec.Ports[0].Port = 81
			if st := r.ensure(t, s); st.Ingress[0].IP != addr.IP {
				t.Errorf("address of the load balancer after a change: got %s, want %s", st.Ingress[0].IP, addr.IP)
			}
			if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, s); err != nil {
				t.Fatal(err)
			}
			if a, err := r.cloud.GetAddress(t.Context(), addr.ID); err != nil || a.UsedBy != "" {
				t.Errorf("reserved address after the deletion: got %+v, %v; want it unused", a, err)
			}
		})
	}
}

func TestStaticIPv6AddressInOtherForm(t *testing.T) {
	r := newRig(t)
	addr, err := r.cloud.CreateAddress(t.Context(), cloudsim.CreateAddress{Name: "shop", Family: cloudsim.IPv6})
	if err != nil {
		t.Fatal(err)
	}
	s := newService(func(s *v1.Service) {
		s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol}
		s.Annotations = map[string]string{ccm.AnnotationLoadBalancerIP: strings.ToUpper(netip.MustParseAddr(addr.IP).StringExpanded())}
	})
	if st := r.ensure(t, s); st.Ingress[0].IP != addr.IP {
		t.Errorf("address of the load balancer: got %s, want %s", st.Ingress[0].IP, addr.IP)
	}
	r.wire.spoil(nil)
	r.ensure(t, s)
	if made := r.wire.takeCalls(true); len(made) > 0 {
		t.Errorf("the repeated request made the calls %v", made)
	}
}

// If an annotation is very long, the error contains only the beginning of the
// annotation, and still contains the reason.
func TestErrorForLongAnnotationIsShort(t *testing.T) {
	long := strings.Repeat("é", 50_000)
	for name, change := range map[string]func(*v1.Service){
		"idle-timeout":  annotate("idle-timeout", long),
		"ip":            annotate("ip", long),
		"node-selector": annotate("node-selector", long),
		"shared":        annotate("shared", long),
		"source-ranges": func(s *v1.Service) {
			s.Annotations = map[string]string{v1.AnnotationLoadBalancerSourceRangesKey: long}
		},
		"SourceRanges": func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{long} },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newRig(t).balancers().EnsureLoadBalancer(t.Context(), cluster, newService(change), nil)
			if err == nil || len(err.Error()) > 1000 || !strings.Contains(err.Error(), name) {
				t.Errorf("got error %.300v; want an error of at most 1000 bytes with the text %q", err, name)
			}
		})
	}
}

// If a Service has an invalid value, or needs a feature that the cloud does not
// have, the CCM refuses the whole Service. The error contains the name of the
// field or feature. The CCM does not change the existing load balancer of the
// Service.
func TestUnsupportedServiceIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1.Service)
		says   []string
	}{
		"SCTP":                  {func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolSCTP }, []string{"spec.ports[0]", "80", "SCTP"}},
		"no node port":          {func(s *v1.Service) { s.Spec.Ports[0].NodePort = 0 }, []string{"allocateLoadBalancerNodePorts", "80", "podRanges"}},
		"invalid source ranges": {func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"everybody"} }, []string{"loadBalancerSourceRanges", "everybody"}},
		"no ports":              {func(s *v1.Service) { s.Spec.Ports = nil }, []string{"spec.ports"}},
		"two addresses": {func(s *v1.Service) {
			s.Spec.LoadBalancerIP, s.Annotations = "1.1.1.1", map[string]string{ccm.AnnotationLoadBalancerIP: "2.2.2.2"}
		}, []string{"1.1.1.1", "2.2.2.2"}},
		"two problems": {func(s *v1.Service) {
			s.Spec.LoadBalancerSourceRanges, s.Spec.Ports[0].Protocol = []string{"everybody"}, v1.ProtocolSCTP
		}, []string{"everybody", "SCTP"}},
		"misspelled annotation":       {annotate("proxy-protocoll", "v1"), []string{"proxy-protocoll", "not known"}},
		"scheme of another cloud":     {annotate("scheme", "internet-facing"), []string{"scheme", "external or internal", "internet-facing"}},
		"health check port 0":         {annotate("health-check-port", "0"), []string{"health-check-port", "1 and 65535"}},
		"idle timeout without a unit": {annotate("idle-timeout", "never"), []string{"idle-timeout", "90s", "never"}},
		"invalid node selector":       {annotate("node-selector", "a=b=c"), []string{"node-selector"}},
		"shared annotation on a Local Service": {func(s *v1.Service) {
			s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
			annotate("shared", "front")(s)
		}, []string{"shared", "Cluster"}},
		"an address that is not reserved":    {func(s *v1.Service) { s.Spec.LoadBalancerIP = "127.65.200.200" }, []string{"127.65.200.200"}},
		"host name as address":               {func(s *v1.Service) { s.Spec.LoadBalancerIP = "lb.example.com" }, []string{"spec.loadBalancerIP", "lb.example.com"}},
		"host name in the list of addresses": {annotate("ip", "127.65.0.1,nowhere"), []string{"load-balancer-ip", `"nowhere"`}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, when := range []string{"first", "later"} {
				st, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, newService(tc.change), nil)
				if err == nil {
					t.Fatalf("%s call: got status %v, want an error", when, st)
				}
				for _, word := range tc.says {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("%s call: got error %q, want the text %q", when, err, word)
					}
				}
				if when == "first" {
					if all := r.balancersInCloud(t); len(all) > 0 {
						t.Errorf("unexpected load balancers: %+v", all)
					}
					r.ensure(t, newService()) // in the second pass, the Service already has a working load balancer
				} else if lb := r.onlyLoadBalancer(t); len(lb.Listeners) != 1 || lb.Listeners[0].TargetPort != 30080 {
					t.Errorf("the CCM changed the working load balancer: %+v", lb.LoadBalancerSpec)
				}
			}
		})
	}
}

func annotate(key, value string) func(*v1.Service) {
	return func(s *v1.Service) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations["cloudsim.dev/load-balancer-"+key] = value
	}
}

// If a user sets a supported field or annotation of an existing Service, the
// CCM changes the load balancer. When the user removes the field or annotation,
// the load balancer gets the default value again.
func TestServiceBecomesLoadBalancer(t *testing.T) {
	five := int32(5)
	for name, tc := range map[string]struct {
		change func(*v1.Service)
		want   func(*cloudsim.LoadBalancerSpec)
	}{
		"UDP beside TCP on one port": {func(s *v1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "quic", Protocol: v1.ProtocolUDP, Port: 80, NodePort: 30081})
		}, func(w *cloudsim.LoadBalancerSpec) {
			w.Listeners = append(w.Listeners, cloudsim.Listener{Protocol: cloudsim.UDP, Port: 80, TargetPort: 30081, Mode: cloudsim.ModeProxy})
		}},
		"source ranges, the field over the annotation": {func(s *v1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{" 10.0.0.0/8 ", "::/0"}
			s.Annotations = map[string]string{v1.AnnotationLoadBalancerSourceRangesKey: "192.168.0.0/16"}
		}, func(w *cloudsim.LoadBalancerSpec) { w.SourceRanges = []string{"10.0.0.0/8", "::/0"} }},
		"source ranges, the annotation": {func(s *v1.Service) {
			s.Annotations = map[string]string{v1.AnnotationLoadBalancerSourceRangesKey: "192.168.0.0/16, 10.0.0.0/8"}
		}, func(w *cloudsim.LoadBalancerSpec) { w.SourceRanges = []string{"10.0.0.0/8", "192.168.0.0/16"} }},
		"affinity": {func(s *v1.Service) {
			s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: &five}}
		}, func(w *cloudsim.LoadBalancerSpec) {
			w.Affinity, w.AffinityTimeoutSeconds = cloudsim.AffinityClientIP, 5
		}},
		"Local": {func(s *v1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 31000
		}, func(w *cloudsim.LoadBalancerSpec) { w.HealthCheck.Port = 31000 }},
		"mode":            {annotate("ip-mode", "VIP"), func(w *cloudsim.LoadBalancerSpec) { w.Listeners[0].Mode = cloudsim.ModeVIP }},
		"PROXY protocol":  {annotate("proxy-protocol", "v2"), func(w *cloudsim.LoadBalancerSpec) { w.Listeners[0].ProxyProtocol = cloudsim.ProxyV2 }},
		"idle timeout":    {annotate("idle-timeout", "5m"), func(w *cloudsim.LoadBalancerSpec) { w.Listeners[0].IdleTimeoutSeconds = 300 }},
		"max connections": {annotate("max-connections", "7"), func(w *cloudsim.LoadBalancerSpec) { w.Listeners[0].MaxConnections = 7 }},
		"no drain":        {annotate("drain-timeout", "0s"), func(w *cloudsim.LoadBalancerSpec) { w.DrainTimeoutSeconds = -1 }},
		"drain":           {annotate("drain-timeout", "90s"), func(w *cloudsim.LoadBalancerSpec) { w.DrainTimeoutSeconds = 90 }},
		"HTTPS probes": {annotate("health-check-protocol", "https"), func(w *cloudsim.LoadBalancerSpec) {
			w.HealthCheck.Protocol = cloudsim.HealthHTTPS
		}},
		"TCP probes": {annotate("health-check-protocol", "tcp"), func(w *cloudsim.LoadBalancerSpec) {
			w.HealthCheck.Protocol, w.HealthCheck.Path = cloudsim.HealthTCP, ""
		}},
		"probes on another port": {func(s *v1.Service) {
			annotate("health-check-port", "8080")(s)
			annotate("health-check-path", "/ready")(s)
			annotate("health-check-interval", "1500ms")(s)
			annotate("health-check-timeout", "250ms")(s)
			annotate("healthy-threshold", "3")(s)
			annotate("unhealthy-threshold", "4")(s)
		}, func(w *cloudsim.LoadBalancerSpec) {
			w.HealthCheck = cloudsim.HealthCheck{Protocol: cloudsim.HealthHTTP, Port: 8080, Path: "/ready", IntervalMillis: 1500, TimeoutMillis: 250, HealthyThreshold: 3, UnhealthyThreshold: 4}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.ensure(t, newService())
			plain := r.onlyLoadBalancer(t)
			want := plain.LoadBalancerSpec
			want.Listeners = slices.Clone(want.Listeners)
			tc.want(&want)
			for _, step := range []struct {
				phase string
				svc   *v1.Service
				want  cloudsim.LoadBalancerSpec
			}{{"with the change", newService(tc.change), want}, {"after the change was undone", newService(), plain.LoadBalancerSpec}} {
				r.ensure(t, step.svc)
				if d := cmp.Diff(step.want, r.onlyLoadBalancer(t).LoadBalancerSpec); d != "" {
					t.Errorf("load balancer %s (-want +got):\n%s", step.phase, d)
				}
				r.wire.spoil(nil)
				r.ensure(t, step.svc)
				if made := r.wire.takeCalls(true); len(made) > 0 {
					t.Errorf("%s: a repeated request made the calls %v", step.phase, made)
				}
			}
		})
	}
}

// The status contains the addresses in the order of the IP families. If a user
// removes one family, the address of the other family stays the same.
func TestDualStack(t *testing.T) {
	r := newRig(t)
	of := func(fs ...v1.IPFamily) *v1.Service { return newService(func(s *v1.Service) { s.Spec.IPFamilies = fs }) }
	both := r.ensure(t, of(v1.IPv6Protocol, v1.IPv4Protocol))
	if len(both.Ingress) != 2 || !strings.Contains(both.Ingress[0].IP, ":") || strings.Contains(both.Ingress[1].IP, ":") {
		t.Fatalf("ingress: got %+v", both.Ingress)
	}
	one := r.ensure(t, of(v1.IPv6Protocol))
	if d := cmp.Diff(both.Ingress[:1], one.Ingress); d != "" {
		t.Errorf("with IPv6 only (-before +after):\n%s", d)
	}
	four := r.ensure(t, of(v1.IPv4Protocol))
	if len(four.Ingress) != 1 || strings.Contains(four.Ingress[0].IP, ":") {
		t.Errorf("ingress with IPv4 only: got %+v", four.Ingress)
	}
}

func TestScheme(t *testing.T) {
	r := newRig(t)
	r.ensure(t, newService(annotate("scheme", "internal")))
	if lb := r.onlyLoadBalancer(t); lb.Scheme != cloudsim.SchemeInternal {
		t.Errorf("scheme: got %s", lb.Scheme)
	}
	if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, newService(), nil); err == nil || !strings.Contains(err.Error(), "scheme") {
		t.Errorf("change to an external scheme: got error %v, want an error that names the scheme", err)
	}
}

// With the PROXY protocol the IP mode is always Proxy. With the mode VIP,
// connections from the cluster's pods would bypass the load balancer and lack
// the header of the protocol.
func TestIPMode(t *testing.T) {
	r := newRig(t)
	for mode, svc := range map[v1.LoadBalancerIPMode]*v1.Service{
		v1.LoadBalancerIPModeVIP:   newService(annotate("ip-mode", "VIP")),
		v1.LoadBalancerIPModeProxy: newService(annotate("ip-mode", "VIP"), annotate("proxy-protocol", "v1")),
	} {
		if st := r.ensure(t, svc); *st.Ingress[0].IPMode != mode {
			t.Errorf("%v: mode %s, want %s", svc.Annotations, *st.Ingress[0].IPMode, mode)
		}
	}
}

func TestNodeSelector(t *testing.T) {
	r := newRig(t)
	front, back := initializedNode(r.createMachine(t, "front")), initializedNode(r.createMachine(t, "back"))
	front.Labels = map[string]string{"role": "front"}
	s := newService(annotate("node-selector", "role in (front)"))
	targets := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, i := range r.onlyLoadBalancer(t).Targets {
			got = append(got, string(i.Instance))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("targets %s (-want +got):\n%s", when, d)
		}
	}
	r.ensure(t, s, front, back)
	targets("at first", "i-000001")
	back.Labels = map[string]string{"role": "front"}
	if err := r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, []*v1.Node{front, back}); err != nil {
		t.Fatal(err)
	}
	targets("after a label changed", "i-000001", "i-000002")
}

// If the cloud has one region, the configuration may omit the region. If the
// cloud has two regions, the configuration must contain a region.
func TestRegion(t *testing.T) {
	r := newRig(t)
	r.wire.spoil(func(_ int, req *http.Request) fault {
		if req.URL.Path == "/v1/regions" {
			return fault{status: 200, body: `{"items":[{"name":"east"},{"name":"west"}]}`}
		}
		return fault{}
	})
	if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, newService(), nil); err == nil || !strings.Contains(err.Error(), "region") {
		t.Errorf("two regions: got error %v, want an error that names the region", err)
	}
	r.wire.spoil(nil)
	r.ensure(t, newService())
	if lb := r.onlyLoadBalancer(t); lb.Region != "sim-1" {
		t.Errorf("region of the load balancer: got %q, want sim-1", lb.Region)
	}
}

// The load balancer has addresses of the same IP families as the Service, in
// the same order. The families of the nodes have no effect.
func TestFamiliesOfAService(t *testing.T) {
	r := newRig(t) // the instances in this cloud have only IPv4 addresses
	n := initializedNode(r.createMachine(t, "node-1"))
	four, six := v1.IPv4Protocol, v1.IPv6Protocol
	of := map[v1.IPFamily]string{}
	for _, families := range [][]v1.IPFamily{{six, four}, {four, six}, {six}, {six, four}, {four}} {
		st := r.ensure(t, newService(func(s *v1.Service) { s.Spec.IPFamilies = families }), n)
		if len(st.Ingress) != len(families) {
			t.Fatalf("IP families %v: ingress: got %+v, want one address for each family", families, st.Ingress)
		}
		for i, in := range st.Ingress {
			is := four
			if strings.Contains(in.IP, ":") {
				is = six
			}
			if is != families[i] {
				t.Errorf("IP families %v: address %d: got %s, want the family %s", families, i, in.IP, families[i])
			}
			if before := of[is]; before != "" && before != in.IP && len(families) == 2 && is == six {
				t.Errorf("IP families %v: the address changed from %s to %s without a request", families, before, in.IP)
			}
			of[is] = in.IP
		}
		if lb := r.onlyLoadBalancer(t); len(lb.Targets) != 1 {
			t.Errorf("IP families %v: targets of the load balancer: got %+v, want 1", families, lb.Targets)
		}
	}
	if l, err := r.cloud.ListAddresses(t.Context(), cloudsim.ListOptions{}); err != nil || len(l.Items) != 1 {
		t.Errorf("addresses with one family: got %+v, error %v; want 1", l.Items, err)
	}
}

// EnsureLoadBalancer always returns the same error text for the same invalid Service. So
// Kubernetes can combine the events that contain this error.
func TestErrorsHaveFixedOrder(t *testing.T) {
	r := newRig(t)
	svc := newService(annotate("a", ""), annotate("b", ""), annotate("c", ""), annotate("d", ""), annotate("e", ""))
	_, first := r.balancers().EnsureLoadBalancer(t.Context(), cluster, svc, nil)
	if first == nil {
		t.Fatal("EnsureLoadBalancer accepted unknown annotations")
	}
	for range 20 {
		if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, svc, nil); err == nil || err.Error() != first.Error() {
			t.Fatalf("EnsureLoadBalancer: got error %v, want the same error as before: %v", err, first)
		}
	}
}
