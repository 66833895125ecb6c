package informer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/informer"
	"github.com/cloudsim-dev/allinone/internal/backoff"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// names is a Handler that keeps the names of all instances.
type names struct {
	cloud *client.Client

	mu         sync.Mutex
	instances  map[string]bool
	lists      int
	lost       []error // errors of the calls of OnError in which news is true
	tries      int     // number of all calls of OnError
	recoveries int     // number of calls of OnSync in which recovered is true
	syncs      int
	ruin       error // error that Take returns once
}

func (n *names) List(ctx context.Context) (informer.Listed, error) {
	all, at, err := cloudsim.All(ctx, n.cloud.ListInstances, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	zones, zonesAt, err := cloudsim.All(ctx, n.cloud.ListZones, cloudsim.ListOptions{})
	if err != nil || len(zones) == 0 {
		return nil, errors.Join(err, errors.New("no zones"))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lists++
	n.instances = map[string]bool{}
	for _, i := range all {
		n.instances[i.Name] = true
	}
	return informer.Listed{cloudsim.KindInstance: at, cloudsim.KindZone: zonesAt}, nil
}

func (n *names) Take(_ context.Context, e cloudsim.Event) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.ruin; err != nil {
		n.ruin = nil
		return err
	}
	if e.Kind == cloudsim.KindInstance {
		var i cloudsim.Instance
		if err := json.Unmarshal(e.Object, &i); err != nil {
			return err
		}
		n.instances[i.Name] = e.Type != cloudsim.EventDelete
	}
	return nil
}

func (n *names) OnSync(recovered bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.syncs++
	if recovered {
		n.recoveries++
	}
}

func (n *names) OnError(err error, news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tries++
	if news {
		n.lost = append(n.lost, err)
	}
}

func (n *names) await(t *testing.T, description string, condition func() bool) {
	t.Helper()
	eventually.True(t, description, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return condition()
	})
}

// line is an HTTP transport to the cloud. The method cut breaks the connections of the open
// watches. After the call cut(true), every request fails until the call cut(false).
type line struct {
	next http.RoundTripper

	mu    sync.Mutex
	dead  bool
	watch []io.Closer
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return nil, errors.New("the line is dead")
	}
	resp, err := l.next.RoundTrip(r)
	if err == nil && r.URL.Path == "/v1/watch" {
		l.watch = append(l.watch, resp.Body)
	}
	return resp, err
}

func (l *line) cut(dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = dead
	for _, w := range l.watch {
		_ = w.Close()
	}
	l.watch = nil
}

// startFollowing starts a cloud with one instance, and an informer that updates a Handler of
// type names.
func startFollowing(t *testing.T) (*client.Client, *names, *line) {
	t.Helper()
	cloud := cloudtest.Start(t)
	create(t, cloud, "one")
	l := &line{next: cloud.HTTP.Transport}
	by := *cloud
	by.HTTP = &http.Client{Transport: l}
	n := &names{cloud: &by}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		informer.Run(ctx, by.Watch, n, backoff.Backoff{First: time.Millisecond, Most: 10 * time.Millisecond})
	})
	t.Cleanup(func() { cancel(); l.cut(true); running.Wait() })
	n.await(t, "Run lists the first instance and calls OnSync", func() bool { return n.instances["one"] && n.syncs > 0 })
	return cloud, n, l
}

func create(t *testing.T, cloud *client.Client, name string) {
	t.Helper()
	if _, err := cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small"}); err != nil {
		t.Fatal(err)
	}
}

// TestDroppedStream proves that Run resumes a broken watch after the last revision that Run has
// read. The handler misses no event, and Run does not list the resources again.
func TestDroppedStream(t *testing.T) {
	cloud, n, l := startFollowing(t)
	for try := range 5 {
		name := fmt.Sprintf("more-%d", try)
		l.cut(true)
		n.await(t, "Run calls OnError after the broken watch", func() bool { return len(n.lost) == try+1 })
		create(t, cloud, name)
		l.cut(false)
		n.await(t, "Run passes the event of the interruption to Take, and calls OnSync again", func() bool { return n.instances[name] && n.recoveries == try+1 })
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lists != 1 {
		t.Errorf("List: got %d calls, want 1", n.lists)
	}
	for _, err := range n.lost {
		if !errors.Is(err, cloudsim.Unavailable) {
			t.Errorf("OnError: got error %v, want Unavailable", err)
		}
	}
}

// TestOnSyncWithoutEvents proves that Run calls OnSync as soon as a new watch works, even if no
// resource changes.
func TestOnSyncWithoutEvents(t *testing.T) {
	_, n, l := startFollowing(t)
	l.cut(true)
	n.await(t, "Run calls OnError after the broken watch", func() bool { return len(n.lost) == 1 })
	l.cut(false)
	n.await(t, "Run calls OnSync again", func() bool { return n.recoveries == 1 })
}

// TestExpiredRevision proves that Run lists everything again if the watch ends with the error Gone
// (410). In this test, the watch ends because the cloud loads a saved state. With the new list, the
// handler also removes resources for which it got no delete event.
func TestExpiredRevision(t *testing.T) {
	cloud, n, _ := startFollowing(t)
	if _, err := cloud.SaveState(t.Context(), cloudsim.SaveState{Name: "s", RecordsOnly: true}); err != nil {
		t.Fatal(err)
	}
	create(t, cloud, "two")
	n.await(t, "Run passes the event of the second instance to Take", func() bool { return n.instances["two"] })
	if err := cloud.LoadState(t.Context(), "s", cloudsim.LoadState{}); err != nil {
		t.Fatal(err)
	}
	n.await(t, "Run lists the resources again, without the second instance", func() bool { return !n.instances["two"] && n.instances["one"] && n.lists == 2 && n.recoveries == 1 })
	if !errors.Is(n.lost[0], cloudsim.Gone) {
		t.Errorf("OnError: got error %v, want Gone", n.lost[0])
	}
	create(t, cloud, "three")
	n.await(t, "Run passes the event of the third instance to Take", func() bool { return n.instances["three"] })
}

func TestRunListsAgainAfterTakeFails(t *testing.T) {
	cloud, n, _ := startFollowing(t)
	n.mu.Lock()
	n.ruin = errors.New("what is that")
	n.mu.Unlock()
	create(t, cloud, "two")
	n.await(t, "Run lists the second instance after the error of Take", func() bool { return n.instances["two"] && n.lists >= 2 })
}

// scriptedHandler is a Handler that records the calls of Take, OnSync and OnError.
type scriptedHandler struct {
	list  func() (informer.Listed, error)
	taken []cloudsim.Event
	calls []string
}

func (s *scriptedHandler) List(context.Context) (informer.Listed, error) { return s.list() }

func (s *scriptedHandler) Take(_ context.Context, e cloudsim.Event) error {
	s.taken = append(s.taken, e)
	return nil
}

func (s *scriptedHandler) OnSync(recovered bool) {
	s.calls = append(s.calls, fmt.Sprintf("OnSync(%v)", recovered))
}

func (s *scriptedHandler) OnError(err error, news bool) {
	s.calls = append(s.calls, fmt.Sprintf("OnError(%v, %v)", err, news))
}

// TestBackoff proves that the backoff grows while the cloud does not answer, and that an event
// resets the backoff. If the cloud refuses a watch with Exhausted, Run does not list the resources
// again.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var intervals []time.Duration
		lists := 0
		p := &scriptedHandler{list: func() (informer.Listed, error) {
			lists++
			return informer.Listed{cloudsim.KindInstance: 7}, nil
		}}
		watch := func(_ context.Context, o cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error] {
			return func(yield func(cloudsim.Event, error) bool) {
				intervals = append(intervals, time.Since(began))
				began = time.Now()
				switch len(intervals) {
				case 5:
					if !yield(cloudsim.Event{Rev: 8, Type: cloudsim.EventBookmark}, nil) {
						return
					}
				case 7:
					cancel()
				}
				yield(cloudsim.Event{}, cloudsim.Errorf(cloudsim.Exhausted, "slow down"))
			}
		}
		informer.Run(ctx, watch, p, backoff.Backoff{First: time.Second, Most: 4 * time.Second})
		for i, most := range []time.Duration{0, 1, 2, 4, 4, 1, 2} {
			if most *= time.Second; intervals[i] > most || intervals[i] < most/2 {
				t.Errorf("pause before watch %d: got %s, want %s to %s", i+1, intervals[i], most/2, most)
			}
		}
		if lists != 1 {
			t.Errorf("List: got %d calls, want 1", lists)
		}
		want := []string{
			"OnSync(false)", "OnError(slow down, true)", "OnError(slow down, false)", "OnError(slow down, false)", "OnError(slow down, false)",
			"OnSync(true)", "OnError(slow down, true)", "OnError(slow down, false)",
		}
		if !slices.Equal(p.calls, want) {
			t.Errorf("calls of OnSync and OnError: got %q, want %q", p.calls, want)
		}
	})
}

// TestListsOfTwoMoments proves that Run accepts lists with different revisions for two kinds. Run
// ignores events that are older than the list of their kind. It calls OnSync only when the watch
// has reached the revisions of both lists.
func TestListsOfTwoMoments(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &scriptedHandler{list: func() (informer.Listed, error) {
		return informer.Listed{cloudsim.KindInstance: 5, cloudsim.KindLoadBalancer: 8}, nil
	}}
	watch := func(_ context.Context, o cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error] {
		return func(yield func(cloudsim.Event, error) bool) {
			if o.Since != 5 || !slices.Equal(o.Kinds, []cloudsim.ResourceKind{cloudsim.KindInstance, cloudsim.KindLoadBalancer}) {
				t.Errorf("watch: got options %+v, want Since 5 and the kinds instance and loadBalancer", o)
			}
			for _, e := range []cloudsim.Event{
				{Rev: 6, Kind: cloudsim.KindLoadBalancer, Type: cloudsim.EventPut}, // older than the list of its kind
				{Rev: 7, Kind: cloudsim.KindInstance, Type: cloudsim.EventPut},
				{Rev: 9, Kind: cloudsim.KindLoadBalancer, Type: cloudsim.EventPut},
			} {
				if e.Rev < 9 && len(p.calls) > 0 {
					t.Errorf("calls of OnSync and OnError before revision %d: got %q, want none", e.Rev, p.calls)
				}
				if !yield(e, nil) {
					return
				}
			}
			cancel()
		}
	}
	informer.Run(ctx, watch, p, backoff.Backoff{})
	if len(p.taken) != 2 || p.taken[0].Rev != 7 || p.taken[1].Rev != 9 || !slices.Equal(p.calls, []string{"OnSync(false)"}) {
		t.Errorf("Take: got events %+v, want revisions 7 and 9\ncalls of OnSync and OnError: got %q, want OnSync(false)", p.taken, p.calls)
	}
}
