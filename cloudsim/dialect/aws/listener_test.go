package aws

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TestPermit checks the source ranges that the function permit computes from the rules of
// security groups. It also checks which listeners refuse all connections.
func TestPermit(t *testing.T) {
	tcp := func(from, to int, cidr string) rule { return rule{Protocol: "tcp", From: from, To: to, CIDR: cidr} }
	for name, tc := range map[string]struct {
		rules   []rule
		ranges  []string
		refused []int // ports
	}{
		"no rules":           {nil, nil, []int{80, 443}},
		"one port":           {[]rule{tcp(80, 80, "10.0.0.0/8")}, []string{"10.0.0.0/8"}, []int{443}},
		"both ports":         {[]rule{tcp(80, 443, "10.0.0.0/8")}, []string{"10.0.0.0/8"}, nil},
		"two ranges":         {[]rule{tcp(80, 80, "10.0.0.0/8"), tcp(80, 80, "0.0.0.0/0"), tcp(443, 443, "10.1.0.0/16")}, []string{"10.1.0.0/16"}, nil},
		"disjoint ranges":    {[]rule{tcp(80, 80, "10.0.0.0/8"), tcp(443, 443, "192.0.2.0/24")}, nil, []int{80, 443}},
		"all protocols":      {[]rule{{Protocol: "-1", CIDR: "10.0.0.0/8"}}, []string{"10.0.0.0/8"}, nil},
		"other protocols":    {[]rule{{Protocol: "udp", From: 80, To: 443, CIDR: "10.0.0.0/8"}, {Protocol: "icmp", From: 3, To: 4, CIDR: "0.0.0.0/0"}}, nil, []int{80, 443}},
		"a group as source":  {[]rule{{Protocol: "-1", Group: "sg-00100000000000001"}}, nil, []int{80, 443}},
		"the same twice":     {[]rule{tcp(80, 443, "10.0.0.0/8"), tcp(1, 65535, "10.0.0.0/8")}, []string{"10.0.0.0/8"}, nil},
		"IPv4 and IPv6":      {[]rule{tcp(80, 443, "::/0"), tcp(80, 443, "0.0.0.0/0")}, []string{"0.0.0.0/0", "::/0"}, nil},
		"families of a port": {[]rule{tcp(80, 80, "::/0"), tcp(443, 443, "0.0.0.0/0")}, nil, []int{80, 443}},
	} {
		l := cloudsim.LoadBalancerSpec{Listeners: []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 80}, {Protocol: cloudsim.TCP, Port: 443}}, SourceRanges: []string{"192.0.2.0/24"}}
		permit(&l, tc.rules)
		var refused []int
		for _, li := range l.Listeners {
			if li.Targets != nil {
				refused = append(refused, li.Port)
			}
		}
		if !slices.Equal(l.SourceRanges, tc.ranges) || !slices.Equal(refused, tc.refused) {
			t.Errorf("%s: got ranges %v and refusing ports %v, want %v and %v", name, l.SourceRanges, refused, tc.ranges, tc.refused)
		}
	}
}

// TestPermitOnly proves with random rules that a client can connect only if a rule permits this
// client. For load balancers with only one listener, it also proves that each permitted client can
// connect.
func TestPermitOnly(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // repeatable random numbers
	for range 2000 {
		l := cloudsim.LoadBalancerSpec{}
		for port := range 1 + random.IntN(3) {
			l.Listeners = append(l.Listeners, cloudsim.Listener{Protocol: []cloudsim.Protocol{cloudsim.TCP, cloudsim.UDP}[random.IntN(2)], Port: port})
		}
		var rules []rule
		for range random.IntN(6) {
			from := random.IntN(3)
			ip := fmt.Sprintf("10.%d.%d.0/%d", random.IntN(2), random.IntN(2), []int{0, 8, 16, 24}[random.IntN(4)])
			rules = append(rules, rule{Protocol: []string{"tcp", "udp", "-1"}[random.IntN(3)], From: from, To: from + random.IntN(2), CIDR: netip.MustParsePrefix(ip).Masked().String()})
		}
		permit(&l, rules)
		client := netip.MustParseAddr(fmt.Sprintf("10.%d.%d.1", random.IntN(2), random.IntN(2)))
		in := func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(client) }
		for _, li := range l.Listeners {
			want := slices.ContainsFunc(rules, func(r rule) bool {
				return (r.Protocol == "-1" || r.Protocol == string(li.Protocol) && r.From <= li.Port && li.Port <= r.To) && in(r.CIDR)
			})
			got := li.Targets == nil && slices.ContainsFunc(l.SourceRanges, in)
			if got && !want || want && !got && len(l.Listeners) == 1 {
				t.Fatalf("rules %+v, client %s, port %d: got %v, want %v", rules, client, li.Port, got, want)
			}
		}
	}
}
