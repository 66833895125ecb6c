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

// Cloud is the part of the cloud API that the data plane calls.
type Cloud interface {
	ListLoadBalancers(context.Context, cloudsim.ListOptions) (cloudsim.List[cloudsim.LoadBalancer], error)
	ListInstances(context.Context, cloudsim.ListOptions) (cloudsim.List[cloudsim.Instance], error)
	ListZones(context.Context, cloudsim.ListOptions) (cloudsim.List[cloudsim.Zone], error)
	Watch(context.Context, cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error]
	// ReportLoadBalancer replaces the Status of a load balancer. The data plane calls it
	// concurrently for different load balancers, but not for the same load balancer.
	ReportLoadBalancer(context.Context, cloudsim.LoadBalancerID, cloudsim.LoadBalancerStatus) error
}

// Config configures Run. If a field has the zero value, Run uses the default value of the field.
type Config struct {
	// LowPortOffset is the number that the data plane adds to a port below 1024 if this machine
	// denies the port. The default is 10000, so port 80 becomes 10080.
	LowPortOffset int
	// DrainTimeout is the time for which a connection may continue after the removal of its target
	// or listener, or after the target's instance begins to shut down. A load balancer can set its
	// own timeout. The default is 30 s. If the value is negative, the data plane cuts these
	// connections at once.
	DrainTimeout time.Duration
	// IdleTimeout is the time for which a connection may be silent in both directions. A listener
	// can set its own timeout. The data plane may cut a silent connection late. The delay is at
	// most a quarter of the timeout. On Linux, a connection is not silent while bytes wait for a
	// slow reader. The default is 350 s. If the value is negative, there is no limit.
	IdleTimeout time.Duration
	// FlowTimeout is the idle timeout of UDP flows. A listener can set its own timeout. The default
	// is 120 s. If the value is negative, there is no limit.
	FlowTimeout time.Duration
	// ShutdownGrace is the time for which connections may continue after the
	// context of Run has ended. The default is 2 s. If the value is negative, Run
	// cuts the connections at once.
	ShutdownGrace time.Duration
	// MaxConnections is the maximum number of open connections or flows of a listener that sets
	// no limit. The data plane refuses further connections. The default is 10,000. A connection
	// needs two file descriptors. Each direction that moves many bytes needs two more. A flow
	// needs one file descriptor.
	MaxConnections int
	// MaxOpen is the maximum number of open connections and flows of all listeners together. The
	// data plane refuses further connections. If a listener sets no limit, its limit is
	// MaxConnections or half of MaxOpen (rounded up), whichever is smaller. The default of
	// MaxOpen is a quarter of the process's limit of file descriptors. Most connections need two
	// descriptors, so about half of the descriptors stay free for the API, disks and health checks.
	MaxOpen int
	// PublishedBind is the address of this machine at which the data plane opens published ports.
	// If PublishedBind is empty, the data plane uses the field Host of each published port as the
	// address.
	PublishedBind string
	// Claim are ranges of addresses. Run adds routes that make these addresses local addresses of
	// this machine, and deletes the routes before it returns. The routes need Linux and
	// CAP_NET_ADMIN. If Run cannot add a route, it logs a warning and continues.
	Claim []netip.Prefix
	// ShowClients makes targets with an IPv4 address see a client's own IPv4 address instead of
	// this machine's address. It needs Linux and CAP_NET_ADMIN. The targets then send their answers
	// to the client's address. So the caller must configure the network to route these answers to
	// this machine. The caller must also configure this machine to accept these answers.
	//
	// HideClients are ranges of client addresses. ShowClients has no effect for clients in these
	// ranges and for clients with loopback addresses. If the targets' answers to a client do not
	// pass through this machine, these ranges must contain the client.
	ShowClients bool
	HideClients []netip.Prefix
	// Instances are the ranges in which the cloud's configuration puts instances and their pods.
	// Load balancers and health checks may connect to all addresses in these ranges. Some of these
	// addresses may belong to this machine. For example, the hollow nodes of a lab use loopback
	// addresses.
	Instances []netip.Prefix
	// Networks are the ranges of networks that projects have created. Load balancers and health
	// checks may connect to addresses in these ranges, except to addresses of this machine and to
	// loopback, link-local and multicast addresses. The data plane refuses to connect to an address
	// that is neither in Instances nor in Networks.
	Networks []netip.Prefix
	// Counters gives the caller access to the statistics. It may be nil.
	Counters *Counters
	// Registry is the Prometheus registry in which Run registers its metrics. Run unregisters them
	// before it returns. If Registry is nil, Run registers no metrics.
	Registry prometheus.Registerer

	listen listenFunc    // nil: the real function; tests set it to deny low ports
	total  *atomic.Int64 // number of connections and flows of all listeners
	dials  *dialPolicy   // made from Instances and Networks
}

type listenFunc func(ctx context.Context, network, address string) (net.Listener, error)

// Validate returns one error that lists all invalid fields of c.
func (c Config) Validate() error {
	var errs []error
	if c.LowPortOffset < 0 || c.LowPortOffset > 65535-1023 {
		errs = append(errs, fmt.Errorf("LowPortOffset must be between 0 and %d, got %d", 65535-1023, c.LowPortOffset))
	}
	if c.PublishedBind != "" {
		if _, err := netip.ParseAddr(c.PublishedBind); err != nil {
			errs = append(errs, fmt.Errorf("--published-bind must be an IP address, got %q", c.PublishedBind))
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
	if c.MaxOpen < 0 {
		errs = append(errs, fmt.Errorf("MaxOpen must not be negative, got %d", c.MaxOpen))
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

// Run forwards the traffic of every load balancer of the cloud until ctx ends. It returns when it
// has closed every listener and connection and has ended every probe. After the end of ctx,
// connections may continue for ShutdownGrace.
//
// Run fails if cfg is not valid, or if it cannot register its metrics, find the loopback interface
// for Claim or start its event loops. It also fails if the cloud answers the first list calls with
// Invalid, Unauthenticated or Denied. After any other error of the cloud, Run continues with the
// last known state. It repeats the failed call with growing pauses.
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
	release, err := claimRanges(log, cfg.Claim)
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
	ctx, cancel := context.WithCancel(ctx) // when follow returns, cancel ends the listeners and probes
	defer p.close()
	defer cancel()
	return p.follow(ctx)
}

// plane is the state of Run. Only the goroutine of Run uses it.
type plane struct {
	log       *slog.Logger
	cfg       Config
	cloud     Cloud
	prober    *prober
	forwarder *forwarder
	machines  map[cloudsim.InstanceID]machine
	dark      map[string]bool // true for zones whose machines are out of reach
	balancers map[cloudsim.LoadBalancerID]*balancer
	ending    sync.WaitGroup // load balancers that were stopped and still have connections
}

func (p *plane) putInstance(ctx context.Context, i cloudsim.Instance) {
	if i.Revision < p.machines[i.ID].revision {
		return // the event is older than the list
	}
	m := machineOf(i)
	m.dark = p.dark[m.zone]
	p.machines[i.ID] = m
	p.applyMachine(ctx, i.ID, m)
}

// putZone applies the present state of a zone. During an outage of the zone, no traffic reaches its
// instances. When the outage begins, putZone cuts the connections of these instances.
func (p *plane) putZone(ctx context.Context, z cloudsim.Zone) {
	if p.dark[z.Name] == z.Dark() {
		return
	}
	p.dark[z.Name] = z.Dark()
	for id, m := range p.machines {
		if m.zone == z.Name {
			m.dark = z.Dark()
			p.machines[id] = m
			p.applyMachine(ctx, id, m)
		}
	}
}

// forgetRevisions makes the plane accept the next revision of each object, even if it is lower than
// the known revision. The plane calls forgetRevisions before it applies new lists of the cloud's
// objects. The revisions in these lists can be lower, for example if the cloud was started with a
// new database file. forgetRevisions also makes the plane report the status of each load balancer
// again, because a loaded state can contain an older status.
func (p *plane) forgetRevisions() {
	for id, m := range p.machines {
		m.revision = 0
		p.machines[id] = m
	}
	for _, b := range p.balancers {
		b.revision = 0
		b.forgetReport()
		b.notifyReporter()
	}
}

func (p *plane) deleteInstance(ctx context.Context, id cloudsim.InstanceID) {
	delete(p.machines, id)
	p.applyMachine(ctx, id, machine{})
}

func (p *plane) applyMachine(ctx context.Context, id cloudsim.InstanceID, m machine) {
	for _, b := range p.balancers {
		b.applyMachine(ctx, id, m)
	}
}

// putLoadBalancer applies the present state of a load balancer to its balancer in the data plane.
// If the state is active or updating, putLoadBalancer starts or changes the balancer. In all other
// states, it stops the balancer. It ignores lb if the balancer has already received a newer
// revision.
func (p *plane) putLoadBalancer(ctx context.Context, lb cloudsim.LoadBalancer) {
	b := p.balancers[lb.ID]
	if b != nil && lb.Revision < b.revision {
		return // the event is older than the list
	}
	if lb.State != cloudsim.LoadBalancerActive && lb.State != cloudsim.LoadBalancerUpdating {
		p.deleteLoadBalancer(lb.ID)
		return
	}
	if b == nil {
		b = newBalancer(p, lb.ID)
		p.balancers[lb.ID] = b
		p.cfg.Counters.add(b)
	}
	b.apply(ctx, lb, p.machines)
}

// deleteLoadBalancer stops the balancer and resets its connections. It waits until the ports are
// free, because the next event may give the ports to another load balancer.
func (p *plane) deleteLoadBalancer(id cloudsim.LoadBalancerID) {
	if b := p.balancers[id]; b != nil {
		delete(p.balancers, id)
		p.stop(b, 0)
	}
}

func (p *plane) stop(b *balancer, grace time.Duration) {
	b.stop(grace)
	p.ending.Go(func() {
		b.waitGroup.Wait()
		p.cfg.Counters.remove(b)
	})
}

// close stops all balancers and waits until their connections have ended. Connections may continue
// for ShutdownGrace.
func (p *plane) close() {
	for _, b := range p.balancers {
		p.stop(b, p.cfg.ShutdownGrace)
	}
	p.ending.Wait()
}
