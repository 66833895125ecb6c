package wire_test

import (
	"testing"

	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

func TestParseIdentifiers(t *testing.T) {
	const all = "cidr=10.0.0.0%2F8&default-route=true&host=node-1&ipv4=10.0.0.1&ipv6=fd00%3A%3A1"
	id, err := wire.ParseIdentifiers(all)
	if err != nil || id.String() != all {
		t.Errorf("got %s, error %v; want %s", id, err, all)
	}
	const bad = "zone=a&ipv6=::ffff:10.0.0.1&ipv4=fd00::1&default-route=maybe&cidr=10.0.0.0&cidr=::ffff:10.0.0.0/104"
	const want = `agent identifier cidr: "10.0.0.0" is not a CIDR such as 10.0.0.0/24
agent identifier cidr: "::ffff:10.0.0.0/104" is a range of IPv4 addresses in the form of IPv6: use the form 10.0.0.0/24
agent identifier default-route: "maybe" is not true or false
agent identifier ipv4: "fd00::1" is not an address of this family
agent identifier ipv6: "::ffff:10.0.0.1" is an IPv4 address in the form of IPv6: use ipv4=10.0.0.1
agent identifier zone: unknown: use host, ipv4, ipv6, cidr or default-route`
	if _, err := wire.ParseIdentifiers(bad); err == nil || err.Error() != want {
		t.Errorf("invalid identifiers: got error %v, want %s", err, want)
	}
}
