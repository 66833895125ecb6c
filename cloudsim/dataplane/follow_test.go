package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// After a watch breaks, the data plane watches again from the last event. It
// does not list again, and misses no event.
func TestWatchResumes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, sayName)
	targets := f.lb.Targets
	f.lb.Targets = targets[:1]
	f.start(t, dataplane.Config{})
	for i := range 6 {
		f.cloud.breakWatches()
		f.lb.Targets = targets[i%2 : i%2+1]
		f.cloud.putLB(f.lb)
		f.cloud.breakWatches()
		f.cloud.await(t, lbID, unreadyReason)
		if word, _ := ask(t, f.address()); word != string(targets[i%2].Instance) {
			t.Fatalf("round %d: got answer %q, want %s", i, word, targets[i%2].Instance)
		}
	}
	if f.cloud.lists != 1 {
		t.Errorf("got %d list calls, want 1", f.cloud.lists)
	}
}

// While the cloud is not reachable, forwarding continues with the last known
// state. If the cloud returns without its journal of events, the data plane
// reads the changes from new lists.
func TestOutageAndLostJournal(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, each(echo))
	f.start(t, dataplane.Config{})
	kept := dial(t, f.address())
	kept.checkEcho()
	second := f.lb
	second.ID, second.IP = "lb-000002", lbIP()
	f.cloud.putLB(second)
	f.cloud.await(t, "lb-000002", unreadyReason)

	for _, err := range []error{
		cloudsim.Errorf(cloudsim.Unavailable, "away"),
		cloudsim.Errorf(cloudsim.Unauthenticated, "the token expired"),
		errors.New("broken"),
	} {
		f.cloud.setError(err)
		eventually.Empty(t, func() string {
			f.cloud.mu.Lock()
			defer f.cloud.mu.Unlock()
			if !f.cloud.met {
				return "the data plane did not call the cloud"
			}
			return ""
		})
		dial(t, f.address()).checkEcho()
	}
	f.cloud.deleteLB("lb-000002") // the data plane sees no event of this deletion
	f.cloud.deleteInstance(instance(3))
	third := f.lb
	third.ID, third.IP, third.Targets = "lb-000003", second.IP, f.lb.Targets[:2]
	f.cloud.putLB(third) // on the address of the second load balancer
	f.cloud.compact()
	f.cloud.setError(nil)

	f.cloud.await(t, "lb-000003", unreadyReason)
	f.cloud.await(t, lbID, wantHealth(cloudsim.TargetHealthy, cloudsim.TargetHealthy, cloudsim.TargetUnhealthy))
	kept.checkEcho()
	for _, s := range f.cloud.statuses("lb-000003") {
		if s.Listeners[0].Error != "" {
			t.Errorf("listener of the second load balancer: got error %s", s.Listeners[0].Error)
		}
	}
}

// A watch may repeat changes that the preceding list already contains. These old events do not
// restore a deleted load balancer or a removed listener.
func TestOldEventsAreIgnored(t *testing.T) {
	f := newFleet(t, 1, each(echo))
	var addresses []string
	var cfg dataplane.Config
	listening := make(chan string, 100)
	cfg.ListenWith(func(ctx context.Context, network, address string) (net.Listener, error) {
		listening <- address
		return new(net.ListenConfig).Listen(ctx, network, address)
	})
	for _, id := range []cloudsim.LoadBalancerID{"lb-000000", "lb-0000000"} { // these load balancers fill the page before the page with lbID
		other := f.lb
		other.ID, other.State = id, cloudsim.LoadBalancerProvisioning
		f.cloud.putLB(other)
	}
	f.cloud.putLB(f.lb)
	f.cloud.pace = 5 * time.Millisecond
	f.cloud.listing = func(page string) {
		if page == "" {
			gone := f.lb
			gone.ID, gone.IP = "lb-000002", lbIP()
			f.cloud.putLB(gone)
			f.cloud.deleteLB(gone.ID)
			return
		}
		was := f.lb
		was.Listeners = []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: port + 1, TargetPort: f.servers[0].port}}
		f.cloud.putLB(was)
		f.cloud.putLB(f.lb)
	}
	stop := runDataplane(t, f.cloud, cfg)
	f.cloud.await(t, lbID, unreadyReason)
	last := f.lb
	last.ID, last.IP = "lb-000003", lbIP()
	f.cloud.putLB(last)
	f.cloud.await(t, last.ID, unreadyReason) // all earlier events were handled
	stop()
	close(listening)
	for address := range listening {
		addresses = append(addresses, address)
	}
	want := []string{f.address(), fmt.Sprintf("%s:%d", last.IP, port)}
	if diff := cmp.Diff(want, addresses); diff != "" {
		t.Errorf("listen addresses differ (-want +got):\n%s", diff)
	}
}

// The first of two changes removes a target, and the cloud deletes the status of this target. The
// second change adds the target again. The data plane reports the status of the target again, even
// if this status is equal to the last reported status.
func TestUndoneChangeIsReported(t *testing.T) {
	f := newFleet(t, 2, each(echo))
	f.start(t, dataplane.Config{})
	both := f.lb.Targets
	f.lb.Targets = both[:1]
	f.cloud.putLB(f.lb)
	f.lb.Targets = both
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, unreadyReason)
}

// A saved state can contain the present spec of a load balancer, but an older status. After the
// cloud has loaded this state, the data plane reports the present status again.
func TestStatusAfterALoadIsReported(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, each(echo))
	f.start(t, dataplane.Config{})
	f.cloud.mu.Lock()
	f.cloud.rev++ // the events up to this revision are not in the journal
	f.cloud.floor = f.cloud.rev
	lb := f.cloud.lbs[lbID]
	lb.Status = cloudsim.LoadBalancerStatus{}
	f.cloud.lbs[lbID], f.cloud.journal = lb, make([]cloudsim.Event, f.cloud.rev)
	f.cloud.mu.Unlock()
	f.cloud.breakWatches()
	f.cloud.await(t, lbID, unreadyReason)
}

// A cloud can lose its records and get new records. The data plane accepts the
// lists of this cloud, although the new revisions are lower than the revisions
// that the data plane knows.
func TestCloudThatBeganAnew(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, sayName)
	f.start(t, dataplane.Config{})
	f.cloud.setError(cloudsim.Errorf(cloudsim.Unavailable, "away"))
	f.cloud.restart()
	f.cloud.putInstance(instance(2), f.servers[0].ip, cloudsim.InstanceRunning) // has the address of the former first instance
	f.lb.Targets = f.lb.Targets[1:]
	f.cloud.putLB(f.lb)
	f.cloud.setError(nil)
	f.cloud.await(t, lbID, unreadyReason)
	if word, _ := ask(t, f.address()); word != string(instance(1)) {
		t.Errorf("got answer %q, want the server of the second instance", word)
	}
}

func TestReportIsRetried(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, each(echo))
	f.start(t, dataplane.Config{})
	f.cloud.setError(cloudsim.Errorf(cloudsim.Unavailable, "away"))
	f.servers[0].close()
	eventually.Empty(t, func() string {
		f.cloud.mu.Lock()
		defer f.cloud.mu.Unlock()
		if f.cloud.failed == 0 {
			return "nothing was reported"
		}
		return ""
	})
	f.cloud.setError(nil)
	f.cloud.await(t, lbID, wantHealth(cloudsim.TargetUnhealthy))
}

// After a restart, the data plane forwards new connections and applies changes. It reports the
// status of each load balancer, even if the cloud already has the same status.
func TestRestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, each(echo))
	stop := f.start(t, dataplane.Config{ShutdownGrace: -1})
	c := dial(t, f.address())
	c.checkEcho()
	stop()
	c.wasReset()
	before := f.cloud.statuses(lbID)
	runDataplane(t, f.cloud, dataplane.Config{})
	eventually.Empty(t, func() string {
		if len(f.cloud.statuses(lbID)) == len(before) {
			return "no report after a restart"
		}
		return ""
	})
	f.cloud.await(t, lbID, unreadyReason)
	dial(t, f.address()).checkEcho()
	f.lb.Targets = f.lb.Targets[:1]
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
		return cmp.Diff([]cloudsim.TargetStatus{{Instance: instance(1), Health: cloudsim.TargetHealthy}}, s.Targets)
	})
}

// When the data plane stops, it accepts no new connections. Open connections may continue for
// ShutdownGrace. The data plane then resets them, even if their drain timeout is longer.
func TestShutdownGrace(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, each(echo))
	const grace = 3 * time.Second
	stop := f.start(t, dataplane.Config{ShutdownGrace: grace})
	polite, stays, drains := dial(t, f.address()), dial(t, f.address()), dial(t, f.address())
	for _, c := range []client{polite, stays, drains} {
		c.checkEcho()
	}
	f.lb.Targets = f.lb.Targets[1:] // at least one connection drains, for 30 s
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, unreadyReason)
	begin := time.Now()
	done := make(chan struct{})
	go func() { defer close(done); stop() }()
	eventually.Empty(t, func() string {
		if listens(f.address()) {
			return "the load balancer still listens"
		}
		return ""
	})
	polite.checkEcho()
	_ = polite.CloseWrite()
	if rest, err := io.ReadAll(polite); len(rest) != 0 || err != nil {
		t.Errorf("connection that ends in the grace period: got rest %q, error %v", rest, err)
	}
	stays.wasReset()
	drains.wasReset()
	<-done
	if took := time.Since(begin); took < grace || took > grace+testTimeout/2 {
		t.Errorf("Run returned after %v, want %v", took, grace)
	}
}

// If the cloud refuses access at the start, Run returns the error, because the configuration is
// wrong. If the cloud is not available yet, Run waits.
func TestRunEndsIfAccessIsRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	cloud := newMemory()
	cloud.setError(cloudsim.Errorf(cloudsim.Unauthenticated, "no such token"))
	if err := dataplane.Run(ctx, log, dataplane.Config{}, cloud); !errors.Is(err, cloudsim.Unauthenticated) {
		t.Errorf("Run: got error %v, want Unauthenticated", err)
	}
	f := newFleet(t, 1, each(echo))
	f.cloud.putLB(f.lb)
	f.cloud.setError(cloudsim.Errorf(cloudsim.Unavailable, "booting"))
	runDataplane(t, f.cloud, dataplane.Config{})
	f.cloud.setError(nil)
	f.cloud.await(t, lbID, unreadyReason)
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		cfg  dataplane.Config
		want string
	}{
		{dataplane.Config{}, ""},
		{dataplane.Config{IdleTimeout: -1, DrainTimeout: -1, ShutdownGrace: -1, LowPortOffset: 64512}, ""},
		{dataplane.Config{LowPortOffset: 64513, MaxConnections: -1}, "data plane: LowPortOffset must be between 0 and 64512, got 64513\nMaxConnections must not be negative, got -1"},
		{dataplane.Config{MaxOpen: -1}, "data plane: MaxOpen must not be negative, got -1"},
		{dataplane.Config{LowPortOffset: -1}, "data plane: LowPortOffset must be between 0 and 64512, got -1"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		got := ""
		if err := dataplane.Run(ctx, slog.New(slog.DiscardHandler), tc.cfg, newMemory()); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("Run with %+v: got %q, want %q", tc.cfg, got, tc.want)
		}
	}
}
