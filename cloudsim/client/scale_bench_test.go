package client_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

type size struct{ instances, disks, loadBalancers, watchers int }

var (
	small = size{100, 50, 10, 200}
	large = size{10_000, 5_000, 1_000, 200}
)

// BenchmarkScale makes the same calls to a small cloud and to a large cloud. It alternates between
// the two clouds, so that other load on the machine affects both measurements. The cost of a call
// should grow at most with the logarithm of the store's size.
//
// The metric "of-small" is the time of a call to the large cloud, divided by the time of the same
// call to the small cloud. This ratio should be at most the value of the metric named limit.
func BenchmarkScale(b *testing.B) {
	few, many := fill(b, small), fill(b, large)
	limit := math.Log(float64(large.instances)) / math.Log(float64(small.instances))
	var serial atomic.Int64
	for name, call := range map[string]func(context.Context, *client.Client) error{
		"create": func(ctx context.Context, c *client.Client) error {
			_, err := c.CreateInstance(ctx, cloudsim.CreateInstance{Name: fmt.Sprintf("more-%d", serial.Add(1)), Zone: "sim-1a", Type: "small"})
			return err
		},
		"get": func(ctx context.Context, c *client.Client) error {
			_, err := c.GetInstance(ctx, "i-000032")
			return err
		},
		"list100": func(ctx context.Context, c *client.Client) error {
			_, err := c.ListInstances(ctx, cloudsim.ListOptions{Limit: 100})
			return err
		},
		"byName": func(ctx context.Context, c *client.Client) error {
			l, err := c.ListDisks(ctx, cloudsim.ListOptions{Name: "d-7"})
			if err == nil && len(l.Items) != 1 {
				return fmt.Errorf("got %d disks named d-7, want 1", len(l.Items))
			}
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			var took [2]time.Duration
			calls := 0
			for b.Loop() {
				for i, c := range []*client.Client{few, many} {
					took[i] += times(b, c, 20, call)
				}
				calls += 20
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(took[1].Microseconds())/float64(calls), "us/call")
			b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "of-small")
			b.ReportMetric(limit, "limit")
		})
	}
	b.Run("watch200", func(b *testing.B) {
		var took [2]time.Duration
		rounds := 0
		see := [2]func() time.Duration{beginWatches(b, few, small.watchers), beginWatches(b, many, large.watchers)}
		for b.Loop() {
			for i := range see {
				took[i] += see[i]()
			}
			rounds++
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(took[1].Seconds()*1000/float64(rounds), "ms-until-all-saw")
		b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "of-small")
		b.ReportMetric(limit, "limit")
	})
}

// BenchmarkStates saves the state of the large cloud, resets the cloud, and loads the saved state.
// Each step should take less than 2 s on an idle machine. For comparison, the benchmark also
// measures the metric s-raw in the same run. This metric is the time to unpack the state, to write
// its bytes to two files, and to sync one of these files. A load of the state cannot
// take less time.
func BenchmarkStates(b *testing.B) {
	c := fill(b, large)
	took := map[string]time.Duration{}
	rounds := 0
	for b.Loop() {
		name := fmt.Sprintf("s-%d", rounds)
		for _, step := range []struct {
			operation string
			do        func() error
		}{
			{"save", func() error {
				_, err := c.SaveState(b.Context(), cloudsim.SaveState{Name: name, RecordsOnly: true})
				return err
			}},
			{"reset", func() error { return c.ResetState(b.Context()) }},
			{"load", func() error { return c.LoadState(b.Context(), name, cloudsim.LoadState{}) }},
		} {
			begin := time.Now()
			if err := step.do(); err != nil {
				b.Fatal(err)
			}
			took[step.operation] += time.Since(begin)
		}
		took["raw"] += timeUnpack(b, c, name)
		rounds++
	}
	if l, err := c.ListInstances(b.Context(), cloudsim.ListOptions{Limit: 1}); err != nil || len(l.Items) != 1 {
		b.Fatalf("instances after the state was loaded: got %+v, error %v; want 1", l, err)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(2, "s-limit")
	for metric, d := range took {
		b.ReportMetric(d.Seconds()/float64(rounds), "s-"+metric)
	}
}

func timeUnpack(b *testing.B, c *client.Client, name string) time.Duration {
	b.Helper()
	var state bytes.Buffer
	if err := c.ExportState(b.Context(), name, &state); err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	z, err := gzip.NewReader(&state)
	if err != nil {
		b.Fatal(err)
	}
	all, err := io.ReadAll(z)
	if err != nil {
		b.Fatal(err)
	}
	for _, sync := range []bool{false, true} {
		f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
		if err != nil {
			b.Fatal(err)
		}
		_, err = f.Write(all)
		if sync {
			err = errors.Join(err, f.Sync())
		}
		if err := errors.Join(err, f.Close()); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}

func fill(b *testing.B, s size) *client.Client {
	b.Helper()
	c := cloudtest.Start(b)
	callConcurrently(b, s.instances, func(ctx context.Context, n int) error {
		_, err := c.CreateInstance(ctx, cloudsim.CreateInstance{Name: fmt.Sprintf("i-%d", n), Zone: "sim-1a", Type: "small"})
		return err
	})
	callConcurrently(b, s.disks, func(ctx context.Context, n int) error {
		_, err := c.CreateDisk(ctx, cloudsim.CreateDisk{Name: fmt.Sprintf("d-%d", n), Zone: "sim-1a", Type: "balanced", SizeGiB: 1})
		return err
	})
	callConcurrently(b, s.loadBalancers, func(ctx context.Context, n int) error {
		_, err := c.CreateLoadBalancer(ctx, cloudsim.CreateLoadBalancer{Name: fmt.Sprintf("l-%d", n), Region: "sim-1", LoadBalancerSpec: cloudsim.LoadBalancerSpec{
			Listeners: []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 80, TargetPort: 30080}}, Targets: []cloudsim.Target{{Instance: "i-000001"}},
			HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP},
		}})
		return err
	})
	return c
}

func callConcurrently(b *testing.B, n int, fn func(context.Context, int) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := fn(b.Context(), int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

func times(b *testing.B, c *client.Client, n int, call func(context.Context, *client.Client) error) time.Duration {
	b.Helper()
	begin := time.Now()
	for range n {
		if err := call(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}

// beginWatches begins n watches of addresses. It returns a function that creates an address and
// measures the time until all watches have yielded the event of this address.
func beginWatches(b *testing.B, c *client.Client, n int) func() time.Duration {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	l, err := c.ListAddresses(ctx, cloudsim.ListOptions{Limit: 1})
	if err != nil {
		b.Fatal(err)
	}
	saw := make(chan struct{}, n)
	var wg sync.WaitGroup
	b.Cleanup(func() { stop(); wg.Wait() })
	for range n {
		wg.Go(func() {
			for _, err := range c.Watch(ctx, cloudsim.WatchOptions{Since: l.Revision, Kinds: []cloudsim.ResourceKind{cloudsim.KindAddress}}) {
				if err != nil {
					if !errors.Is(err, context.Canceled) && ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				saw <- struct{}{}
			}
		})
	}
	serial := 0
	see := func() time.Duration {
		serial++
		begin := time.Now()
		if _, err := c.CreateAddress(ctx, cloudsim.CreateAddress{Name: fmt.Sprintf("a-%d", serial)}); err != nil {
			b.Fatal(err)
		}
		for range n {
			select {
			case <-saw:
			case <-time.After(time.Minute):
				b.Fatal("the watch delivered no event within a minute")
			}
		}
		return time.Since(begin)
	}
	see() // wait until all watches are open
	return see
}
