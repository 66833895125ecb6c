package dataplane

import (
	"errors"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// A verdict falls after as many probes in a row as the thresholds say. In a
// history, + is a good probe and - a bad one; below it what the verdict then
// is: i(nitial), h(ealthy), u(nhealthy).
func TestVerdict(t *testing.T) {
	for _, tc := range []struct {
		name               string
		healthy, unhealthy int
		probes, want       string
	}{
		{"defaults", 0, 0, "" +
			"+-+--+", "" +
			"hhhhuh"},
		{"never well", 1, 2, "" +
			"----", "" +
			"iuuu"},
		{"slow to trust", 3, 1, "" +
			"++-++++-+++", "" +
			"iiuuuhhuuuh"},
		{"slow to give up", 1, 3, "" +
			"+--+---+", "" +
			"hhhhhhuh"},
		{"unsettled from the start", 2, 2, "" +
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
				v = v.after(found, check)
				got.WriteByte(v.health[0])
				if v.health == cloudsim.TargetHealthy && v.reason != "" {
					t.Errorf("healthy, because %q", v.reason)
				}
				if v.health == cloudsim.TargetUnhealthy && v.reason != "no" {
					t.Errorf("unhealthy, because %q", v.reason)
				}
			}
			if got.String() != tc.want {
				t.Errorf("after %s: %s, want %s", tc.probes, got.String(), tc.want)
			}
		})
	}
}

// Who is next: the fewest connections first, then the longest wait; a target
// that comes late is not made to wait a round.
func TestPick(t *testing.T) {
	b := &balancer{}
	l := &listener{}
	for _, id := range []cloudsim.InstanceID{"a", "b", "c"} {
		b.order = append(b.order, &target{instance: id, listed: true, verdict: verdict{health: cloudsim.TargetHealthy}})
	}
	l.enqueue(b.order)
	pick := func() *target {
		t.Helper()
		p, _, _ := b.pick(l, nil)
		if p == nil {
			t.Fatal("nobody was picked")
		}
		return p
	}
	var got string
	take := func(ends bool) {
		t.Helper()
		p := pick()
		got += string(p.instance)
		if ends {
			p.active--
		}
	}
	for range 4 {
		take(true) // a b c a
	}
	take(false) // b, who stays busy
	for range 4 {
		take(true) // c a c a
	}
	b.order[2].health = cloudsim.TargetUnhealthy
	take(true) // a, alone
	b.order[2].health = cloudsim.TargetHealthy
	take(true) // c, who waited
	d := &target{instance: "d", listed: true, verdict: verdict{health: cloudsim.TargetHealthy}}
	b.order[0].listed = false
	b.order = append(b.order[1:], d)
	l.enqueue(b.order)
	for range 3 {
		take(true) // d c d: a is gone
	}
	if want := "abcabcacaacdcd"; got != want {
		t.Errorf("picked %s, want %s", got, want)
	}
	if p, _, _ := b.pick(l, b.order); p != nil {
		t.Errorf("picked %s, who was tried", p.instance)
	}
}
