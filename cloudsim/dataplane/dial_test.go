package dataplane

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

func prefixesOf(words ...string) (all []netip.Prefix) {
	for _, w := range words {
		all = append(all, netip.MustParsePrefix(w))
	}
	return all
}

// The data plane connects only to addresses in Config.Instances and Config.Networks. It refuses
// this machine's own addresses, unless they are in Config.Instances.
func TestDialPolicy(t *testing.T) {
	p := newDialPolicy(Config{
		Instances: prefixesOf("127.64.0.0/16", "10.20.0.0/16"),
		Networks:  prefixesOf("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "fc00::/7", "::/8"),
	})
	p.host = func() ([]netip.Prefix, error) {
		return prefixesOf("127.0.0.0/8", "10.0.0.5/32", "10.20.0.5/32", "fd00::5/128"), nil
	}
	for ip, want := range map[string]bool{
		"127.64.0.1":      true, // a hollow node
		"10.20.0.5":       true, // an instance address that the operator gave to this machine
		"10.1.0.1":        true, // an instance of a project's network
		"fd00::1":         true,
		"10.0.0.5":        false, // this machine
		"fd00::5":         false,
		"127.0.0.1":       false,
		"127.65.0.1":      false,
		"::1":             false,
		"169.254.169.254": false,
		"192.168.1.1":     false, // in no range of instances
		"0.0.0.0":         false,
		"8.8.8.8":         false,
	} {
		if err := p.check(netip.MustParseAddr(ip)); (err == nil) != want {
			t.Errorf("%s: got error %v, want it allowed: %t", ip, err, want)
		}
	}
	if err := newDialPolicy(Config{}).check(netip.MustParseAddr("127.64.0.1")); err == nil {
		t.Error("the policy without ranges allows 127.64.0.1")
	}
}

// If an address of this machine is in Config.Networks but not in Config.Instances, the policy
// refuses this address. If this machine gets an address that the policy allowed before, the policy
// refuses this address after the next read of this machine's addresses. If the policy cannot read
// this machine's addresses, it allows no address in the ranges of Config.Networks.
func TestDialPolicyRefusesNewLocalAddress(t *testing.T) {
	p := newDialPolicy(Config{Networks: prefixesOf("10.0.0.0/8")})
	var host []netip.Prefix
	var failure error
	p.host = func() ([]netip.Prefix, error) { return host, failure }
	ip := netip.MustParseAddr("10.0.0.5")
	if err := p.check(ip); err != nil {
		t.Error(err)
	}
	host = prefixesOf("10.0.0.5/32")
	p.until = time.Now()
	if err := p.check(ip); err == nil {
		t.Error("the policy allows a local address of this machine")
	}
	host, failure = nil, errors.New("no routes")
	p.until = time.Now()
	if err := p.check(ip); !errors.Is(err, failure) {
		t.Error(err)
	}
}
