package console_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/console"
)

// meter simulates the counters of steady traffic: 10 connections and 2,000 bytes each second. The
// target i-000001 gets 4 of these connections, through two listeners. The counters return to 0
// every minute. If removed is true, the target i-000002 and the listener with port 443 no longer
// exist.
type meter struct {
	began   time.Time
	removed atomic.Bool
}

func (m *meter) LoadBalancerStats(cloudsim.LoadBalancerID) (cloudsim.LoadBalancerStats, bool) {
	n := uint64(time.Since(m.began).Seconds()) % 60
	s := cloudsim.LoadBalancerStats{
		Listeners: []cloudsim.ListenerStats{
			{Port: 80, Accepted: 9 * n, Active: 2, Refused: cloudsim.Refusals{DialFailed: n}},
			{Port: 443, Accepted: n, Active: 1, Refused: cloudsim.Refusals{SourceRange: n}},
		},
		Targets: []cloudsim.TargetStats{
			{Instance: "i-000001", Listener: "tcp/80", Connections: 3 * n, Active: 1, BytesIn: 500 * n, BytesOut: 500 * n},
			{Instance: "i-000002", Connections: 6 * n, Active: 1, BytesOut: 500 * n},
			{Instance: "i-000001", Listener: "tcp/443", Connections: n, Active: 1, BytesOut: 500 * n},
		},
	}
	if m.removed.Load() {
		s.Listeners, s.Targets = s.Listeners[:1], slices.Delete(s.Targets, 1, 2)
	}
	return s, true
}

// The console shows the rates of each load balancer and target. Each second, the
// hub reads the counters of all load balancers with one call. It computes the rates from two reads.
func TestTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{began: time.Now()}
		cloud := cloudtest.Start(t, cloudtest.InBubble(), cloudtest.WithConfig(func(c *engine.Config) { c.Meter = m }))
		lb, err := cloud.CreateLoadBalancer(t.Context(), cloudsim.CreateLoadBalancer{Name: "shop", Region: "sim-1", LoadBalancerSpec: cloudsim.LoadBalancerSpec{HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP}}})
		if err != nil {
			t.Fatal(err)
		}
		hub := *cloud
		hub.Project = "*"
		c := console.New(slog.New(slog.DiscardHandler), console.Config{Cloud: &hub})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = c.Run(ctx) })
		lines := visit(ctx, c, secretOf(t, cloud), 10*time.Second)
		want := []console.Traffic{{
			ID: lb.ID, Active: 3, Rates: console.Rates{Connections: 10, Bytes: 2000}, Refused: 2,
			Targets: []console.TargetTraffic{
				{Instance: "i-000001", Active: 2, Rates: console.Rates{Connections: 4, Bytes: 1500}},
				{Instance: "i-000002", Active: 1, Rates: console.Rates{Connections: 6, Bytes: 500}},
			},
		}}
		if diff := cmp.Diff(want, trafficIn(t, lines)); diff != "" { // the rates of steady traffic do not change, so the stream contains them once
			t.Errorf("traffic (-want +got):\n%s", diff)
		}
		all := trafficIn(t, visit(ctx, c, secretOf(t, cloud), time.Minute)) // the counters begin again in this minute
		if len(all) != 3 || all[1].Connections != 0 || all[1].Bytes != 0 || all[1].Targets[1].Connections != 0 || all[2].Connections != 10 {
			t.Errorf("traffic around a restart of the data plane: got %+v, want 3 entries, the second with the rates 0, the third with 10 connections per second", all)
		}
		time.Sleep(time.Second / 2) // between two reads of the hub: at the time of a read, the order would be random
		m.removed.Store(true)
		var rates [][3]float64
		for _, got := range trafficIn(t, visit(ctx, c, secretOf(t, cloud), 5*time.Second)) {
			rates = append(rates, [3]float64{got.Connections, got.Bytes, got.Refused})
		}
		if diff := cmp.Diff([][3]float64{{10, 2000, 2}, {9, 1500, 1}}, rates); diff != "" {
			t.Errorf("connections, bytes and refused connections per second after the removal of a listener and a target (-want +got):\n%s", diff)
		}
		if _, err := cloud.DeleteLoadBalancer(t.Context(), lb.ID); err != nil {
			t.Fatal(err)
		}
		if lines := visit(ctx, c, secretOf(t, cloud), 3*time.Second); !strings.Contains(lines, `"traffic":["`+string(lb.ID)+`"]`) {
			t.Errorf("the stream does not contain the deletion of the traffic of a deleted load balancer: %s", lines)
		}
		cancel()
		running.Wait()
	})
}

func trafficIn(t *testing.T, lines string) (all []console.Traffic) {
	t.Helper()
	for raw := range strings.Lines(lines) {
		var line struct {
			Put struct{ Traffic []console.Traffic }
		}
		if err := json.Unmarshal([]byte(raw), &line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line.Put.Traffic...)
	}
	return all
}
