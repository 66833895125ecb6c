// Package fake contains a cloud in memory, and a CCM for this cloud. The CCM consists of the
// controllers of k8s.io/cloud-provider. The CCM can have known bugs of real CCMs. The tests of the
// conformance checks use these bugs to prove that each check can fail.
package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/conform"
)

// Name is the name of the provider and the scheme of its provider IDs.
const Name = "fake"

// The cloud has one zone and one machine type.
const (
	zone        = "fake-1a"
	region      = "fake-1"
	machineType = "small"
)

// User is the user of the CCM in the cluster.
const User = "conform-fake"

// These annotations of a Service configure its load balancer.
const (
	annotationInternal = "fake/internal"
	annotationProxy    = "fake/proxy"
	annotationShared   = "fake/shared"
)

// ClusterCIDR is the range that contains the pod ranges of all Nodes.
const ClusterCIDR = "10.244.0.0/16"

// Cloud is a cloud in memory. It implements conform.Driver.
type Cloud struct {
	mu       sync.Mutex
	last     int // number of the last created object
	machines map[string]conform.Machine
	lbs      map[string]conform.LoadBalancer // by name
	routes   map[string]conform.Route
	fault    conform.Fault
	hits     map[string]int // number of calls that match the fault, by the name of the call
	calls    map[string]conform.Count
}

var _ conform.Driver = (*Cloud)(nil)

// NewCloud returns an empty cloud.
func NewCloud() *Cloud {
	return &Cloud{
		machines: map[string]conform.Machine{}, lbs: map[string]conform.LoadBalancer{}, routes: map[string]conform.Route{},
		hits: map[string]int{}, calls: map[string]conform.Count{},
	}
}

// Capabilities implements conform.Driver.
func (c *Cloud) Capabilities(context.Context) (conform.Capabilities, error) {
	return conform.Capabilities{
		Provider: Name, ProviderIDPrefix: Name + "://", Zones: true, Shutdown: true, LoadBalancers: true, SourceRanges: true, UDP: true,
		MixedProtocols: true, SessionAffinity: true, DualStack: true, LocalTraffic: true, StaticIP: "203.0.113.250",
		InternalAnnotations: map[string]string{annotationInternal: "true"}, ProxyAnnotations: map[string]string{annotationProxy: "true"},
		SharedAnnotations: map[string]string{annotationShared: "one"}, LeaderElection: true, LeaderMigration: true, User: User,
		Routes: true, ClusterCIDR: ClusterCIDR, Calls: true,
		Faults: []conform.FaultKind{conform.FaultError, conform.FaultUnauthorized, conform.FaultTimeout, conform.FaultEmptyList, conform.FaultLoseReply, conform.FaultThrottle},
	}, nil
}

// CreateMachine implements conform.Machines.
func (c *Cloud) CreateMachine(_ context.Context, m conform.Machine) (conform.Machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.machines[m.Name]; ok {
		return m, fmt.Errorf("the machine %q already exists", m.Name)
	}
	c.last++
	m.Zone, m.Region, m.Type, m.Running = zone, region, machineType, true
	m.ProviderID = fmt.Sprintf("%s://%d", Name, c.last)
	m.Addresses = []conform.Address{
		{Type: "InternalIP", Address: fmt.Sprintf("10.0.%d.%d", c.last/256, c.last%256)},
		{Type: "ExternalIP", Address: fmt.Sprintf("198.18.%d.%d", c.last/256, c.last%256)},
	}
	c.machines[m.Name] = m
	return m, nil
}

// GetMachine implements conform.Machines.
func (c *Cloud) GetMachine(_ context.Context, name string) (conform.Machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.machines[name]
	if !ok {
		return m, fmt.Errorf("machine %q: %w", name, conform.ErrNotFound)
	}
	return m, nil
}

func (c *Cloud) setRunning(name string, running bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.machines[name]
	if !ok {
		return fmt.Errorf("machine %q: %w", name, conform.ErrNotFound)
	}
	m.Running = running
	c.machines[name] = m
	return nil
}

// StopMachine implements conform.Machines.
func (c *Cloud) StopMachine(_ context.Context, name string) error { return c.setRunning(name, false) }

// StartMachine implements conform.Machines.
func (c *Cloud) StartMachine(_ context.Context, name string) error { return c.setRunning(name, true) }

// DeleteMachine implements conform.Machines.
func (c *Cloud) DeleteMachine(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.machines, name)
	return nil
}

// ListLoadBalancers implements conform.Network.
func (c *Cloud) ListLoadBalancers(context.Context) ([]conform.LoadBalancer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.lbs)), nil
}

// DeleteLoadBalancer implements conform.Network.
func (c *Cloud) DeleteLoadBalancer(_ context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, lb := range c.lbs {
		if lb.ID == id {
			delete(c.lbs, name)
			return nil
		}
	}
	return fmt.Errorf("load balancer %q: %w", id, conform.ErrNotFound)
}

// ListRoutes implements conform.Network.
func (c *Cloud) ListRoutes(context.Context) ([]conform.Route, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.routes)), nil
}

// CreateRoute implements conform.Network.
func (c *Cloud) CreateRoute(_ context.Context, r conform.Route) (conform.Route, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	r.ID = fmt.Sprintf("route-%d", c.last)
	c.routes[r.ID] = r
	return r, nil
}

// DeleteRoute implements conform.Network.
func (c *Cloud) DeleteRoute(_ context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.routes[id]; !ok {
		return fmt.Errorf("route %q: %w", id, conform.ErrNotFound)
	}
	delete(c.routes, id)
	return nil
}

// SetFault implements conform.Faults.
func (c *Cloud) SetFault(_ context.Context, f conform.Fault) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault, c.hits = f, map[string]int{}
	return nil
}

// ClearFault implements conform.Faults.
func (c *Cloud) ClearFault(ctx context.Context) error { return c.SetFault(ctx, conform.Fault{}) }

// Calls implements conform.Faults.
func (c *Cloud) Calls(context.Context) (map[string]conform.Count, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls), nil
}

// timeout is the time after which a caller of the cloud stops waiting for an answer.
const timeout = time.Second

// countCall counts a call of the CCM, and applies the cloud's current fault to this call. The
// function fn executes the call.
func (c *Cloud) countCall(ctx context.Context, name string, write bool, fn func() error) error {
	c.mu.Lock()
	n := c.calls[name]
	c.calls[name] = conform.Count{Calls: n.Calls + 1, Writes: write}
	f := c.fault
	if f.Kind != "" && (write || !f.Writes) && (f.Call == "" || f.Call == name) {
		c.hits[name]++
	}
	if n := c.hits[name]; n <= f.Skip || f.Count > 0 && n > f.Skip+f.Count {
		f = conform.Fault{}
	}
	c.mu.Unlock()
	switch f.Kind {
	case conform.FaultError:
		return errors.New("500 Internal Server Error")
	case conform.FaultUnauthorized:
		return errors.New("401 Unauthorized")
	case conform.FaultThrottle:
		return errors.New("429 Too Many Requests")
	case conform.FaultTimeout:
		select {
		case <-time.After(timeout):
		case <-ctx.Done():
		}
		return context.DeadlineExceeded
	case conform.FaultLoseReply:
		return errors.Join(errors.New("unexpected EOF"), fn())
	case conform.FaultEmptyList: // only the bug EmptyListIsDeleted uses lists: see emptyList
	}
	return fn()
}

func (c *Cloud) findMachine(ctx context.Context, isWanted func(conform.Machine) bool) (m conform.Machine, found bool, err error) {
	err = c.countCall(ctx, "machines.get", false, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, x := range c.machines {
			if isWanted(x) {
				m, found = x, true
			}
		}
		return nil
	})
	return m, found, err
}

func (c *Cloud) emptyList() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault.Kind == conform.FaultEmptyList
}

func (c *Cloud) loadBalancer(ctx context.Context, name string) (lb conform.LoadBalancer, found bool, err error) {
	err = c.countCall(ctx, "loadBalancers.get", false, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		lb, found = c.lbs[name]
		return nil
	})
	return lb, found, err
}

// putLoadBalancer creates the load balancer with the given name. If lb has an ID, putLoadBalancer
// replaces the existing load balancer. In the addresses of a new load balancer, putLoadBalancer
// replaces * by a number.
func (c *Cloud) putLoadBalancer(ctx context.Context, name string, lb conform.LoadBalancer) (conform.LoadBalancer, error) {
	err := c.countCall(ctx, "loadBalancers.put", true, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		created := lb.ID == ""
		if created {
			c.last++
			lb.ID = fmt.Sprintf("lb-%d", c.last)
			for i, a := range lb.Addresses {
				lb.Addresses[i] = strings.Replace(a, "*", fmt.Sprint(c.last), 1)
			}
		}
		if old := c.lbs[name]; !created && old.ID != lb.ID {
			return fmt.Errorf("load balancer %s: %w", lb.ID, conform.ErrNotFound)
		}
		c.lbs[name] = lb
		return nil
	})
	return lb, err
}

func (c *Cloud) removeLoadBalancer(ctx context.Context, name string) error {
	return c.countCall(ctx, "loadBalancers.delete", true, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.lbs, name)
		return nil
	})
}
