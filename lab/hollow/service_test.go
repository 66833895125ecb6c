package hollow

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// ep returns a ready endpoint on a node. The functions in change may modify the endpoint.
func ep(ip, node string, change ...func(*discoveryv1.Endpoint)) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses: []string{ip}, NodeName: &node,
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func notReadyYet(e *discoveryv1.Endpoint) {
	e.Conditions.Ready, e.Conditions.Serving = new(false), new(false)
}
func setTerminating(e *discoveryv1.Endpoint) {
	e.Conditions.Ready, e.Conditions.Terminating = new(false), new(true)
}
func setDying(e *discoveryv1.Endpoint)   { setTerminating(e); e.Conditions.Serving = new(false) }
func setUnknown(e *discoveryv1.Endpoint) { e.Conditions = discoveryv1.EndpointConditions{} }
func forZone(z string) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) {
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: z}}}
	}
}
func forNode(n string) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) {
		e.Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: n}}}
	}
}

var endpointCases = []struct {
	name          string
	endpoints     []discoveryv1.Endpoint
	cluster       []string
	local         []string
	localHealthy  int
	wrongPortName bool
}{
	{name: "none"},
	{
		name:      "ready ones, sorted",
		endpoints: []discoveryv1.Endpoint{ep("10.0.0.2", "n2"), ep("10.0.0.1", "n1"), ep("10.0.0.3", "n1", notReadyYet)},
		cluster:   []string{"10.0.0.1", "10.0.0.2"}, local: []string{"10.0.0.1"}, localHealthy: 1,
	},
	{
		name:      "no conditions are good ones",
		endpoints: []discoveryv1.Endpoint{ep("10.0.0.1", "n1", setUnknown)},
		cluster:   []string{"10.0.0.1"}, local: []string{"10.0.0.1"}, localHealthy: 1,
	},
	{
		name:      "terminating ones only when there are no others",
		endpoints: []discoveryv1.Endpoint{ep("10.0.0.1", "n1", setTerminating), ep("10.0.0.2", "n2")},
		cluster:   []string{"10.0.0.2"}, local: []string{"10.0.0.1"},
	},
	{
		name:      "terminating ones that still serve",
		endpoints: []discoveryv1.Endpoint{ep("10.0.0.1", "n1", setTerminating), ep("10.0.0.2", "n1", setDying)},
		cluster:   []string{"10.0.0.1"}, local: []string{"10.0.0.1"},
	},
	{
		name:      "the running one of two on one address",
		endpoints: []discoveryv1.Endpoint{ep("10.0.0.1", "n2"), ep("10.0.0.1", "n1", setTerminating)},
		cluster:   []string{"10.0.0.1"},
	},
	{
		name:      "zone hints",
		endpoints: []discoveryv1.Endpoint{ep("10.0.0.1", "n1", forZone("z1")), ep("10.0.0.2", "n2", forZone("z2"))},
		cluster:   []string{"10.0.0.1"}, local: []string{"10.0.0.1"}, localHealthy: 1,
	},
	{
		name:      "zone hints, none for us",
		endpoints: []discoveryv1.Endpoint{ep("10.0.0.1", "n2", forZone("z3")), ep("10.0.0.2", "n2", forZone("z2"))},
		cluster:   []string{"10.0.0.1", "10.0.0.2"},
	},
	{
		name:      "zone hints, one missing",
		endpoints: []discoveryv1.Endpoint{ep("10.0.0.1", "n2", forZone("z1")), ep("10.0.0.2", "n2")},
		cluster:   []string{"10.0.0.1", "10.0.0.2"},
	},
	{
		name:      "node hints",
		endpoints: []discoveryv1.Endpoint{ep("10.0.0.1", "n2", forNode("n2")), ep("10.0.0.2", "n2", forNode("n1"))},
		cluster:   []string{"10.0.0.2"},
	},
	{
		name:      "another port's",
		endpoints: []discoveryv1.Endpoint{ep("10.0.0.1", "n1")}, wrongPortName: true,
	},
}

// TestEndpointsOfNodePort checks which endpoints a node port uses on node n1 in zone z1.
func TestEndpointsOfNodePort(t *testing.T) {
	for _, tc := range endpointCases {
		t.Run(tc.name, func(t *testing.T) {
			svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
			svc.Spec = corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, HealthCheckNodePort: 32000,
				ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
				Ports:                 []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}},
			}
			slice := &discoveryv1.EndpointSlice{
				AddressType: discoveryv1.AddressTypeIPv4, Endpoints: tc.endpoints,
				Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
			}
			if tc.wrongPortName {
				slice.Ports[0].Name = new("metrics")
			}
			six := slice.DeepCopy()
			six.AddressType = discoveryv1.AddressTypeIPv6
			for i := range six.Endpoints {
				six.Endpoints[i].Addresses = []string{"fd00::1"}
			}
			var tab table
			tab.add(svc, []*discoveryv1.EndpointSlice{slice, six})
			s := tab.services[0]
			if diff := cmp.Diff(tc.local, addresses(s.endpointsFrom("n1", "z1"))); diff != "" {
				t.Errorf("Local (-want +got):\n%s", diff)
			}
			if got := tab.checks[0].local["n1"]; got != tc.localHealthy {
				t.Errorf("%d healthy local endpoints, want %d", got, tc.localHealthy)
			}
			s.local = false
			if diff := cmp.Diff(tc.cluster, addresses(s.endpointsFrom("n1", "z1"))); diff != "" {
				t.Errorf("Cluster (-want +got):\n%s", diff)
			}
		})
	}
}

func addresses(es []endpoint) (out []string) {
	for _, e := range es {
		out = append(out, e.addr.Addr().String())
	}
	return out
}

// The responder opens sockets only for ports of Services that have a node port and the protocol TCP
// or UDP.
func TestOnlyNodePorts(t *testing.T) {
	var tab table
	svc := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Port: 80}}}}
	tab.add(svc, nil)
	svc.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{
		{Port: 80, Protocol: corev1.ProtocolTCP}, // allocateLoadBalancerNodePorts: false
		{Port: 81, Protocol: corev1.ProtocolSCTP, NodePort: 30081},
	}}
	tab.add(svc, nil)
	if len(tab.services) != 0 || len(tab.checks) != 0 {
		t.Errorf("got %d services and %d checks, want none", len(tab.services), len(tab.checks))
	}
	s := &service{byNode: map[string][]endpoint{}}
	s.cluster = []endpoint{{addr: netip.MustParseAddrPort("10.0.0.1:80"), ready: true}}
	v := (&table{services: []*service{s}}).viewsOf(machine{Instance: cloudsim.Instance{}}, nodeFacts{}, false)
	if len(v) != 2 {
		t.Errorf("got %d sockets, want the node port and the health port of the proxy", len(v))
	}
}
