package dataplane

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// A target becomes healthy when the number of consecutive successful probes reaches a threshold. It
// becomes unhealthy when the number of consecutive failed probes reaches another threshold. In the
// field named probes, + is a successful probe and - is a failed probe. The field named want
// contains the health after each probe: i(nitial), h(ealthy) or u(nhealthy).
func TestHealthThresholds(t *testing.T) {
	for _, tc := range []struct {
		name               string
		healthy, unhealthy int
		probes, want       string
	}{
		{"defaults", 0, 0, "" +
			"+-+--+", "" +
			"hhhhuh"},
		{"never healthy", 1, 2, "" +
			"----", "" +
			"iuuu"},
		{"high healthy threshold", 3, 1, "" +
			"++-++++-+++", "" +
			"iiuuuhhuuuh"},
		{"high unhealthy threshold", 1, 3, "" +
			"+--+---+", "" +
			"hhhhhhuh"},
		{"alternating from the start", 2, 2, "" +
			"+-+-++", "" +
			"iiiiih"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check := cloudsim.HealthCheck{HealthyThreshold: tc.healthy, UnhealthyThreshold: tc.unhealthy}.WithDefaults(nil)
			v := verdict{health: cloudsim.TargetInitial}
			var got strings.Builder
			for _, p := range tc.probes {
				var found error
				if p == '-' {
					found = errors.New("no")
				}
				v = v.afterProbe(found, check)
				got.WriteByte(v.health[0])
				if v.health == cloudsim.TargetHealthy && v.reason != "" {
					t.Errorf("healthy target: got reason %q, want none", v.reason)
				}
				if v.health == cloudsim.TargetUnhealthy && v.reason != "no" {
					t.Errorf(`unhealthy target: got reason %q, want "no"`, v.reason)
				}
			}
			if got.String() != tc.want {
				t.Errorf("health after the probes %s: got %s, want %s", tc.probes, got.String(), tc.want)
			}
		})
	}
}

// chooser is a balancer with one listener. Tests use it to check which target the balancer
// chooses next.
type chooser struct {
	*balancer
	l *listener
	t *testing.T
}

func newChooser(t *testing.T, weights map[cloudsim.InstanceID]int) chooser {
	c := chooser{newBalancer(&plane{log: slog.New(slog.DiscardHandler)}, "lb"), newListener(port{cloudsim.TCP, 80}), t}
	c.listeners[c.l.port] = c.l
	for _, id := range slices.Sorted(maps.Keys(weights)) {
		c.add(id, weights[id])
	}
	return c
}

func (c chooser) add(id cloudsim.InstanceID, weight int) {
	c.targets[cloudsim.TargetKey{Instance: id}] = &target{key: cloudsim.TargetKey{Instance: id}, listed: true, weight: weight, verdict: verdict{health: cloudsim.TargetHealthy}}
	c.updateSlots(c.targetOf(id))
}

func (c chooser) targetOf(id cloudsim.InstanceID) *target {
	return c.targets[cloudsim.TargetKey{Instance: id}]
}

func (c chooser) health(id cloudsim.InstanceID, h cloudsim.TargetHealth) {
	c.targetOf(id).health = h
	c.updateSlots(c.targetOf(id))
}

func (c chooser) pick(client netip.Addr) choice {
	c.t.Helper()
	p, ok := c.pickTarget(c.l, client, nil)
	if !ok {
		c.t.Fatal("pick returned no target")
	}
	return p
}

// take calls pick n times and returns the ids of the chosen targets. If mustEnd is true, each
// connection ends at once.
func (c chooser) take(n int, mustEnd bool) (got string) {
	c.t.Helper()
	for range n {
		p := c.pick(netip.Addr{})
		got += string(p.target.key.Instance)
		if mustEnd {
			c.release(c.l, p.slot)
		}
	}
	return got
}

// pickTarget prefers the target with the fewest connections. If several targets have the fewest
// connections, it prefers the target that has waited longest. TestPick also proves that a new
// target takes turns with the other targets.
func TestPick(t *testing.T) {
	c := newChooser(t, map[cloudsim.InstanceID]int{"a": 1, "b": 1, "c": 1})
	got := c.take(4, true)  // a b c a
	got += c.take(1, false) // b, which keeps its connection
	got += c.take(4, true)  // c a c a
	c.health("c", cloudsim.TargetUnhealthy)
	got += c.take(1, true) // a, the only target without connections
	c.health("c", cloudsim.TargetHealthy)
	got += c.take(1, true) // c, which waited longest
	c.targetOf("a").listed = false
	c.updateSlots(c.targetOf("a"))
	c.add("d", 1)
	got += c.take(3, true) // d c d: a was removed
	if want := "abcabcacaacdcd"; got != want {
		t.Errorf("got targets %s, want %s", got, want)
	}
	if p, ok := c.pickTarget(c.l, netip.Addr{}, slices.Collect(maps.Values(c.targets))); ok {
		t.Errorf("pick returned target %s, which was already tried", p.target.key.Instance)
	}
	if got := c.take(2, true); got != "cd" && got != "dc" {
		t.Errorf("got targets %s after all targets were tried, want c and d", got)
	}
}

// Each target gets connections in proportion to its weight, whether the connections end at once or
// stay open. When a target becomes healthy again, it gets its share of the connections, and not
// more.
func TestWeights(t *testing.T) {
	count := func(s string) map[rune]int {
		n := map[rune]int{}
		for _, r := range s {
			n[r]++
		}
		return n
	}
	for _, ends := range []bool{true, false} {
		c := newChooser(t, map[cloudsim.InstanceID]int{"a": 3, "b": 1})
		if d := cmp.Diff(map[rune]int{'a': 30, 'b': 10}, count(c.take(40, ends))); d != "" {
			t.Errorf("connections end at once: %v: targets differ: %s", ends, d)
		}
	}
	c := newChooser(t, map[cloudsim.InstanceID]int{"a": 3, "b": 1})
	c.health("b", cloudsim.TargetUnhealthy)
	c.take(1000, true)
	c.health("b", cloudsim.TargetHealthy)
	if n := count(c.take(40, true))['b']; n < 10 || n > 11 {
		t.Errorf("got %d of 40 connections for the recovered target b, want 10 or 11", n)
	}
}

// A client keeps its target until the affinity timeout is over or the target is unhealthy. Each
// connection of the client restarts the timeout. The balancer stores the targets of at most maxKept
// clients. Beyond this number, a new client replaces the client that connected least recently.
func TestAffinity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChooser(t, map[cloudsim.InstanceID]int{"a": 1, "b": 1, "c": 1})
		c.kept.setTimeout(time.Minute)
		ann, bob := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
		visit := func(client netip.Addr) cloudsim.InstanceID {
			p := c.pick(client)
			c.release(c.l, p.slot)
			return p.target.key.Instance
		}
		first := visit(ann)
		for range 5 {
			time.Sleep(50 * time.Second)
			if now := visit(ann); now != first {
				t.Fatalf("got target %s and then %s, want the same target", first, now)
			}
		}
		if other := visit(bob); other == first {
			t.Errorf("two clients: got target %s for both, want an idle target for the second", other)
		}
		c.health(first, cloudsim.TargetUnhealthy)
		second := visit(ann)
		c.health(first, cloudsim.TargetHealthy)
		if now := visit(ann); second == first || now != second {
			t.Errorf("after target %s became unhealthy: got %s and then %s, want the second target again", first, second, now)
		}
		time.Sleep(61 * time.Second)
		seen := map[cloudsim.InstanceID]bool{}
		for range 3 {
			seen[visit(ann)] = true
			time.Sleep(61 * time.Second)
		}
		if len(seen) < 2 {
			t.Errorf("visits after the affinity timeout: got targets %v only", seen)
		}
		for n := range maxKept + 10 {
			visit(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}))
		}
		if n := len(c.kept.byClient); n != maxKept || c.kept.recent.Len() != n {
			t.Errorf("affinity: got %d clients in the map and %d in the list, want %d in both", n, c.kept.recent.Len(), maxKept)
		}
		if c.kept.setTimeout(0); len(c.kept.byClient) != 0 {
			t.Error("got stored clients without affinity")
		}
	})
}

// If a target has an address of the client's IP family, the balancer dials this address.
// Otherwise the balancer dials the target's address of the other IP family.
func TestReach(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	internal := func(ips ...string) (i cloudsim.Instance) {
		i.Addresses = []cloudsim.InstanceAddress{{Type: cloudsim.AddressExternal, Address: "203.0.113.1"}}
		for _, ip := range ips {
			i.Addresses = append(i.Addresses, cloudsim.InstanceAddress{Type: cloudsim.AddressInternal, Address: ip})
		}
		return i
	}
	for _, tc := range []struct {
		of           cloudsim.Instance
		from4, from6 string
	}{
		{internal(), "", ""},
		{internal("10.1.0.1"), "10.1.0.1", "10.1.0.1"},
		{internal("fd01::1"), "fd01::1", "fd01::1"},
		{internal("10.1.0.1", "10.1.0.2", "fd01::1"), "10.1.0.1", "fd01::1"},
		{internal("fd01::1", "10.1.0.1"), "10.1.0.1", "fd01::1"},
	} {
		m := machineOf(tc.of)
		if got4, got6 := m.reach(v4), m.reach(v6); got4 != tc.from4 || got6 != tc.from6 {
			t.Errorf("%v: got addresses %q and %q, want %q and %q", tc.of.Addresses, got4, got6, tc.from4, tc.from6)
		}
	}
}
