package dataplane

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// If many targets of a load balancer accept connections and never answer, the probes of this load
// balancer are late. The probes of other load balancers are on time.
func TestSlowProbesDelayNoOthers(t *testing.T) {
	const slots, mute, seconds = 8, 50, 60
	for _, greedy := range []int{1, 3} {
		t.Run(fmt.Sprint(greedy, " greedy"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProber(slots, newDialPolicy(Config{Instances: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("10.0.0.0/24")}}))
				p.http.DialContext = func(_ context.Context, _, address string) (net.Conn, error) {
					p.slots.mu.Lock()
					defer p.slots.mu.Unlock()
					if p.slots.free < 0 {
						t.Errorf("%d more health checks run than the slots allow", -p.slots.free)
					}
					near, far := net.Pipe()
					go answer(far, strings.HasPrefix(address, "10."))
					return near, nil
				}
				check := cloudsim.HealthCheck{Protocol: cloudsim.HealthHTTP, Port: 80, Path: "/", IntervalMillis: 1000, TimeoutMillis: 10_000}.WithDefaults(nil)
				ctx, stop := context.WithCancel(t.Context())
				var work sync.WaitGroup
				var silent, healthy atomic.Int64
				probe := func(own *probeShare, ip string, tell func(error)) {
					work.Go(func() { p.repeatCheck(ctx, own, check, ip, tell) })
				}
				for range greedy {
					own := new(probeShare)
					for range mute {
						probe(own, "192.0.2.1", func(error) { silent.Add(1) })
					}
				}
				time.Sleep(500 * time.Millisecond) // until the greedy load balancers have all slots that they can get
				for n := range 2 * slots {
					due := time.Now()
					probe(new(probeShare), fmt.Sprint("10.0.0.", n), func(err error) {
						if late := time.Since(due); late != 0 || err != nil {
							t.Errorf("health check of a healthy target ended %v late with error %v", late, err)
						}
						due = due.Add(check.Interval())
						healthy.Add(1)
					})
				}
				time.Sleep(seconds*time.Second - check.Interval()/4)
				stop()
				work.Wait()
				if n, want := healthy.Load(), int64(seconds*2*slots); n < want {
					t.Errorf("got %d health checks of healthy targets, want at least %d", n, want)
				}
				if n, want := silent.Load(), int64(seconds/10*slots/(greedy+1)*greedy); n < want {
					t.Errorf("got %d health checks of silent targets, want at least %d", n, want)
				}
				if p.slots.free != slots || len(p.slots.waiting) != 0 {
					t.Errorf("after the test: %d slots are free and %d load balancers wait; want all slots free and 0 waiting", p.slots.free, len(p.slots.waiting))
				}
			})
		})
	}
}

func answer(c net.Conn, healthy bool) {
	defer c.Close()
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	_ = req.Body.Close()
	if healthy {
		_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n")
		return
	}
	_, _ = io.Copy(io.Discard, c)
}

// TestProbeSlotOrder checks in which order load balancers get slots for their probes. The field
// story contains the steps of a test case. Each letter stands for a load balancer. A lower-case
// letter requests a slot. A capital letter requests a slot, and then cancels the request. The
// character "-" and the next letter are one step: the load balancer gives back one slot. The field
// named got contains the expected order: one letter for each slot that a load balancer gets.
func TestProbeSlotOrder(t *testing.T) {
	for _, tc := range []struct {
		name       string
		size       int
		story, got string
	}{
		{"a single caller gets half of the slots", 4, "aaaa", "aa"},
		{"a second caller gets half of the rest", 8, "aaaaaabbbb", "aaaabb"},
		{"a returned slot serves a waiting caller", 4, "aaa-a", "aaa"},
		{"the caller with the fewest slots is first", 3, "abcab-c-b", "abcb"},
		{"callers with equal slots take turns", 1, "abbcc-a-b-c-b", "abcbc"},
		{"a caller that left gets no slot", 1, "aBbBc-a-b", "abc"},
		{"the last waiting caller left", 1, "aBCCc-a", "ac"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, all, got := &probeSlots{free: tc.size}, map[string]*probeShare{}, ""
				back := false
				for _, letter := range tc.story {
					caller := strings.ToLower(string(letter))
					if all[caller] == nil {
						all[caller] = new(probeShare)
					}
					ctx, leave := context.WithCancel(t.Context())
					switch {
					case letter == '-':
						back = true
					case back:
						r.giveSlot(all[caller])
						back = false
					default:
						go func() {
							if r.takeSlot(ctx, all[caller]) {
								got += caller // no lock needed: each step waits for the end of the goroutine
							}
						}()
					}
					synctest.Wait()
					if string(letter) != caller {
						leave()
						synctest.Wait()
					}
					defer leave()
				}
				if got != tc.got {
					t.Errorf("steps %q with %d slots: load balancers got slots in the order %q, want %q", tc.story, tc.size, got, tc.got)
				}
			})
		})
	}
}
