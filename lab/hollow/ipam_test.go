package hollow

import (
	"net/netip"
	"testing"
)

func TestNextAddress(t *testing.T) {
	taken := map[netip.Addr]bool{}
	for _, a := range []string{"10.0.0.3", "10.0.0.4", "192.0.2.1"} {
		taken[netip.MustParseAddr(a)] = true
	}
	for _, tc := range []struct{ in, last, want string }{
		{"10.0.0.0/29", "", "10.0.0.2"},
		{"10.0.0.0/29", "10.0.0.2", "10.0.0.5"},
		{"10.0.0.0/29", "10.0.0.6", "10.0.0.2"},
		{"10.0.0.0/29", "10.0.0.5", "10.0.0.6"},
		{"10.0.0.0/24", "10.0.0.254", "10.0.0.2"},
		{"10.0.0.2/31", "", "none"},
		{"10.0.0.0/30", "10.0.0.2", "10.0.0.2"},
		{"10.0.0.1/32", "", "none"},
		{"192.0.2.0/30", "", "192.0.2.2"},
		{"255.255.255.252/30", "255.255.255.254", "255.255.255.254"},
		{"fd00::/64", "", "fd00::2"},
	} {
		var last netip.Addr
		if tc.last != "" {
			last = netip.MustParseAddr(tc.last)
		}
		got, ok := nextFree(netip.MustParsePrefix(tc.in), last, taken)
		if want, err := netip.ParseAddr(tc.want); ok != (err == nil) || got != want {
			t.Errorf("next of %s after %q = %s, %v, want %s", tc.in, tc.last, got, ok, tc.want)
		}
	}
	taken[netip.MustParseAddr("10.0.0.2")], taken[netip.MustParseAddr("10.0.0.5")], taken[netip.MustParseAddr("10.0.0.6")] = true, true, true
	if got, ok := nextFree(netip.MustParsePrefix("10.0.0.0/29"), netip.MustParseAddr("10.0.0.4"), taken); ok {
		t.Errorf("next of a full range = %s", got)
	}
}
