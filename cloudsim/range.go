package cloudsim

import "net/netip"

// reservedRanges lists the ranges from which no machine gets an address. The ranges of
// networks, subnets, pods and routes must not overlap a reserved range. This rule also
// applies to admins.
var reservedRanges = []struct {
	netip.Prefix
	of string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	// Instances of default networks may have loopback addresses from 127.64.0.0 upward.
	// Other programs on the machine use the lower loopback addresses.
	{netip.MustParsePrefix("127.0.0.0/10"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/3"), "multicast and future use"},
	{netip.MustParsePrefix("::/8"), "loopback and embedded IPv4 addresses"}, // contains ::ffff:0:0/96 and 64:ff9b::/96
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// outsideReserved returns false and reports the field if p overlaps a reserved range.
func (c *checks) outsideReserved(field string, p netip.Prefix) bool {
	for _, r := range reservedRanges {
		if r.Overlaps(p) {
			c.addf(field, "must not overlap %s, which is reserved (%s); got %s", r.Prefix, r.of, p)
			return false
		}
	}
	return true
}

// DefaultNetworkRanges returns the ranges that projects may use if the operator configures
// no ranges: the private addresses of RFC 1918 and RFC 4193.
func DefaultNetworkRanges() []netip.Prefix {
	return parseRanges("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
}

// loopback4 is the whole IPv4 loopback range. The operator may configure a part of this range for
// the instances of default networks. Other networks never use loopback addresses, so the ranges
// that projects are allowed to use must not overlap this range.
var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

// ValidateNetworkRanges checks the ranges that projects are allowed to use. It returns Invalid if a
// range has host bits, or overlaps the loopback range or a reserved range.
func ValidateNetworkRanges(all []netip.Prefix) error {
	var c checks
	for _, p := range all {
		switch {
		case p.Masked() != p:
			c.addf("networkRanges", "must not have host bits: want %s, got %s", p.Masked(), p)
		case p.Overlaps(loopback4):
			c.addf("networkRanges", "must not overlap %s, the loopback range; got %s", loopback4, p)
		default:
			c.outsideReserved("networkRanges", p)
		}
	}
	return c.err()
}

// Inside reports whether the first range is inside the second range. The result is also
// true for equal ranges.
func Inside(part, whole netip.Prefix) bool {
	return whole.Bits() <= part.Bits() && whole.Contains(part.Addr())
}
