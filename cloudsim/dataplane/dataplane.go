package dataplane

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// Cloud is what the data plane needs of a cloud.
type Cloud interface {
	ListLoadBalancers(context.Context, cloudsim.ListOptions) (cloudsim.List[cloudsim.LoadBalancer], error)
	ListInstances(context.Context, cloudsim.ListOptions) (cloudsim.List[cloudsim.Instance], error)
	ListZones(context.Context, cloudsim.ListOptions) (cloudsim.List[cloudsim.Zone], error)
	Watch(context.Context, cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error]
	// ReportLoadBalancer replaces a load balancer's Status. It is called for
	// many load balancers at once, but for each by one caller at a time.
	ReportLoadBalancer(context.Context, cloudsim.LoadBalancerID, cloudsim.LoadBalancerStatus) error
}

// Config says how to forward. The zero value of a field means its default.
type Config struct {
	// LowPortOffset is added to a port below 1024 that this machine does not
	// give to an unprivileged program. Default 10000: 80 becomes 10080.
	LowPortOffset int
	// DrainTimeout is how long a connection may go on after its target or its
	// listener was taken away, where the load balancer does not say. Default 30 s; a negative one cuts it at once.
	DrainTimeout time.Duration
	// IdleTimeout is how long a connection may be silent in both directions
	// where its listener does not say; it is cut within a quarter of it more.
	// Bytes that wait for a slow reader are not silence (on Linux, which can
	// tell). Default 350 s; a negative one lets it be silent for ever.
	IdleTimeout time.Duration
	// FlowTimeout is the same for UDP. Default 120 s.
	FlowTimeout time.Duration
	// ShutdownGrace is how long connections may go on after the context of
	// Run ended. Default 2 s; a negative one cuts them at once.
	ShutdownGrace time.Duration
	// MaxConnections bounds the open connections, or flows, of a listener that
	// does not say; more are refused. Default 10,000. A connection needs two
	// file descriptors, and two more per direction while many bytes move; a
	// flow needs one.
	MaxConnections int
	// MaxOpen bounds the open connections and flows of all listeners together; more
	// are refused. A listener that does not say has at most half. The default is a quarter
	// of the file descriptors that the process may have: half of them is then left for
	// the API, disks and health checks.
	MaxOpen int
	// PublishedBind is the address of this machine at which published ports
	// are opened; absent: at the published host itself.
	PublishedBind string
	// Claim are ranges that Run makes addresses of this machine, where it may
	// (Linux, with CAP_NET_ADMIN), and gives back at its end.
	Claim []netip.Prefix
	// ShowClients has targets see a client's own IPv4 address and not this
	// machine's: Linux, with CAP_NET_ADMIN. Their answers must come back here,
	// and be taken here though they are for others: that is for whoever lays
	// the network. HideClients are ranges whose clients targets would answer on
	// a shorter way: of those they see this machine.
	ShowClients bool
	HideClients []netip.Prefix
	// Instances are the ranges in which the cloud's configuration puts instances
	// and their pods. Load balancers and health checks connect to addresses in
	// them, also to addresses of this machine, as those of hollow nodes are.
	Instances []netip.Prefix
	// Networks are further ranges to connect to, of networks that projects made.
	// Addresses of this machine in them are refused. An address in neither list
	// is refused, too.
	Networks []netip.Prefix
	// Counters are read by whoever wants to know what passes; nil if nobody
	// does.
	Counters *Counters
	// Registry gets the metrics, for as long as Run runs; nil keeps none.
	Registry prometheus.Registerer

	listen listenFunc    // nil is the real one; a test denies low ports with it
	total  *atomic.Int64 // connections and flows of all listeners
	dials  *dialPolicy   // of Instances and Networks
}

type listenFunc func(ctx context.Context, network, address string) (net.Listener, error)

// Validate reports every field that cannot work.
func (c Config) Validate() error {
	var errs []error
	if c.LowPortOffset < 0 || c.LowPortOffset > 65535-1023 {
		errs = append(errs, fmt.Errorf("LowPortOffset must be between 0 and %d, got %d", 65535-1023, c.LowPortOffset))
	}
	if c.PublishedBind != "" {
		if _, err := netip.ParseAddr(c.PublishedBind); err != nil {
			errs = append(errs, fmt.Errorf("PublishedBind must be an IP address, got %q", c.PublishedBind))
		}
	}
	if c.ShowClients {
		if err := canShow(); err != nil {
			errs = append(errs, err)
		}
	}
	if c.MaxConnections < 0 {
		errs = append(errs, fmt.Errorf("MaxConnections must not be negative, got %d", c.MaxConnections))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	def(&c.LowPortOffset, 10000)
	def(&c.DrainTimeout, 30*time.Second)
	def(&c.IdleTimeout, 350*time.Second)
	def(&c.ShutdownGrace, 2*time.Second)
	def(&c.MaxConnections, 10_000)
	def(&c.MaxOpen, run.Descriptors()/4)
	c.total = new(atomic.Int64)
	def(&c.FlowTimeout, 120*time.Second)
	if c.Counters == nil {
		c.Counters = NewCounters()
	}
	c.dials = newDialPolicy(c)
	return c
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Run forwards for every load balancer of the cloud until ctx ends. It returns
// when every listener, probe and connection is closed, ShutdownGrace after ctx
// at the latest.
//
// It fails if cfg is wrong, or if the cloud turns it away before it has listed
// anything. Once it has, it goes on with what it knows through any failure of
// the cloud, and asks again with growing pauses.
func Run(ctx context.Context, log *slog.Logger, cfg Config, cloud Cloud) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("data plane: %w", err)
	}
	cfg = cfg.withDefaults()
	if cfg.Registry != nil {
		m := metrics{cfg.Counters}
		if err := cfg.Registry.Register(m); err != nil {
			return fmt.Errorf("data plane: metrics: %w", err)
		}
		defer cfg.Registry.Unregister(m)
	}
	release, err := claim(log, cfg.Claim)
	if err != nil {
		return fmt.Errorf("data plane: %w", err)
	}
	defer release()
	forwarder, err := newForwarder()
	if err != nil {
		return fmt.Errorf("data plane: %w", err)
	}
	defer forwarder.close()
	p := &plane{
		log: log, cfg: cfg, cloud: cloud, prober: newProber(maxProbes, cfg.dials), forwarder: forwarder,
		machines:  map[cloudsim.InstanceID]machine{},
		dark:      map[string]bool{},
		balancers: map[cloudsim.LoadBalancerID]*balancer{},
	}
	ctx, cancel := context.WithCancel(ctx) // whatever ends follow ends its listeners and probes
	defer p.close()
	defer cancel()
	return p.follow(ctx)
}

// plane is the data plane at work. Only the goroutine of Run touches it.
type plane struct {
	log       *slog.Logger
	cfg       Config
	cloud     Cloud
	prober    *prober
	forwarder *forwarder
	machines  map[cloudsim.InstanceID]machine
	dark      map[string]bool // zones that nothing reaches
	balancers map[cloudsim.LoadBalancerID]*balancer
	ending    sync.WaitGroup // load balancers that were stopped and not yet empty
}

// putInstance takes in an instance as it now is.
func (p *plane) putInstance(ctx context.Context, i cloudsim.Instance) {
	if i.Revision < p.machines[i.ID].revision {
		return // news from before the list
	}
	m := machineOf(i)
	m.dark = p.dark[m.zone]
	p.machines[i.ID] = m
	p.steer(ctx, i.ID, m)
}

// putZone takes in a zone as it now is: what runs in a dark one is out of
// reach, and what was connected to it is cut.
func (p *plane) putZone(ctx context.Context, z cloudsim.Zone) {
	if p.dark[z.Name] == z.Dark() {
		return
	}
	p.dark[z.Name] = z.Dark()
	for id, m := range p.machines {
		if m.zone == z.Name {
			m.dark = z.Dark()
			p.machines[id] = m
			p.steer(ctx, id, m)
		}
	}
}

// forgetRevisions makes the plane believe whatever it is told next: a list is
// the truth, also when it is of a cloud that began anew and counts from one.
func (p *plane) forgetRevisions() {
	for id, m := range p.machines {
		m.revision = 0
		p.machines[id] = m
	}
	for _, b := range p.balancers {
		b.revision = 0
	}
}

func (p *plane) deleteInstance(ctx context.Context, id cloudsim.InstanceID) {
	delete(p.machines, id)
	p.steer(ctx, id, machine{})
}

func (p *plane) steer(ctx context.Context, id cloudsim.InstanceID, m machine) {
	for _, b := range p.balancers {
		b.steer(ctx, id, m)
	}
}

// putLoadBalancer takes in a load balancer as it now is: it starts, changes or
// stops what forwards for it.
func (p *plane) putLoadBalancer(ctx context.Context, lb cloudsim.LoadBalancer) {
	if lb.State != cloudsim.LoadBalancerActive && lb.State != cloudsim.LoadBalancerUpdating {
		p.deleteLoadBalancer(lb.ID)
		return
	}
	b := p.balancers[lb.ID]
	if b == nil {
		b = newBalancer(p, lb.ID)
		p.balancers[lb.ID] = b
		p.cfg.Counters.add(b)
	}
	b.apply(ctx, lb, p.machines)
}

// deleteLoadBalancer frees its ports before it returns, because the next event
// may give them to another.
func (p *plane) deleteLoadBalancer(id cloudsim.LoadBalancerID) {
	if b := p.balancers[id]; b != nil {
		delete(p.balancers, id)
		p.stop(b, 0)
	}
}

func (p *plane) stop(b *balancer, grace time.Duration) {
	b.stop(grace)
	p.ending.Go(func() {
		b.work.Wait()
		p.cfg.Counters.remove(b)
	})
}

// close stops all and returns when nothing is left.
func (p *plane) close() {
	for _, b := range p.balancers {
		p.stop(b, p.cfg.ShutdownGrace)
	}
	p.ending.Wait()
}
