package cloudsim

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// LoadBalancerID names a load balancer, e.g. "lb-000001".
type LoadBalancerID string

// LoadBalancerState is where a load balancer is in its life.
type LoadBalancerState string

const (
	LoadBalancerProvisioning LoadBalancerState = "provisioning"
	LoadBalancerActive       LoadBalancerState = "active"
	LoadBalancerUpdating     LoadBalancerState = "updating" // still forwards, by its new rules
	LoadBalancerDeleting     LoadBalancerState = "deleting"
	// LoadBalancerDeleted is its last value, in the event that says it is gone.
	LoadBalancerDeleted LoadBalancerState = "deleted"
)

// loadBalancerMoves is the whole life of a load balancer.
var loadBalancerMoves = map[LoadBalancerState]map[Verb]LoadBalancerState{
	LoadBalancerProvisioning: {Settle: LoadBalancerActive, Update: LoadBalancerProvisioning, Delete: LoadBalancerDeleting},
	LoadBalancerActive:       {Update: LoadBalancerUpdating, Delete: LoadBalancerDeleting},
	LoadBalancerUpdating:     {Settle: LoadBalancerActive, Update: LoadBalancerUpdating, Delete: LoadBalancerDeleting},
	LoadBalancerDeleting:     {Settle: LoadBalancerDeleted},
}

// LoadBalancerStates lists every state, for tests and help.
func LoadBalancerStates() []LoadBalancerState {
	return []LoadBalancerState{
		LoadBalancerProvisioning, LoadBalancerActive, LoadBalancerUpdating,
		LoadBalancerDeleting, LoadBalancerDeleted,
	}
}

// Protocol is what a listener forwards.
type Protocol string

// TCP is the only protocol listeners speak today.
const TCP Protocol = "tcp"

// Listener is a port of the load balancer and where its connections go.
type Listener struct {
	Protocol   Protocol `json:"protocol" enum:"tcp"`
	Port       int      `json:"port" minimum:"1" maximum:"65535" doc:"Port on the load balancer's address" example:"80"`
	TargetPort int      `json:"targetPort" minimum:"1" maximum:"65535" doc:"Port on every target" example:"30080"`
}

// Target is an instance that takes connections.
type Target struct {
	Instance InstanceID `json:"instance" example:"i-000001"`
}

// HealthCheck decides which targets take connections. The zero value of a
// number means its default.
type HealthCheck struct {
	Protocol           HealthProtocol `json:"protocol" enum:"tcp,http" doc:"tcp: it accepts a connection; http: it answers GET with 200"`
	Port               int            `json:"port,omitempty" minimum:"0" maximum:"65535" doc:"Port on every target; 0 means the first listener's targetPort"`
	Path               string         `json:"path,omitempty" maxLength:"1024" doc:"Path to GET; default /"`
	IntervalMillis     int            `json:"intervalMillis,omitempty" minimum:"0" maximum:"300000" doc:"Time between two probes of a target; default 2000"`
	TimeoutMillis      int            `json:"timeoutMillis,omitempty" minimum:"0" maximum:"60000" doc:"Time a probe may take; default 1000"`
	HealthyThreshold   int            `json:"healthyThreshold,omitempty" minimum:"0" maximum:"10" doc:"Good probes in a row that make a target healthy; default 1"`
	UnhealthyThreshold int            `json:"unhealthyThreshold,omitempty" minimum:"0" maximum:"10" doc:"Bad probes in a row that make a target unhealthy; default 2"`
}

// HealthProtocol is how a probe asks.
type HealthProtocol string

const (
	HealthTCP  HealthProtocol = "tcp"
	HealthHTTP HealthProtocol = "http"
)

// WithDefaults returns h with every default filled in, for a load balancer
// whose first listener forwards to targetPort.
func (h HealthCheck) WithDefaults(targetPort int) HealthCheck {
	def := func(n *int, d int) {
		if *n == 0 {
			*n = d
		}
	}
	def(&h.Port, targetPort)
	def(&h.IntervalMillis, 2000)
	def(&h.TimeoutMillis, 1000)
	def(&h.HealthyThreshold, 1)
	def(&h.UnhealthyThreshold, 2)
	if h.Protocol == "" {
		h.Protocol = HealthTCP
	}
	if h.Path == "" {
		h.Path = "/"
	}
	return h
}

// Interval is the time between two probes.
func (h HealthCheck) Interval() time.Duration {
	return time.Duration(h.IntervalMillis) * time.Millisecond
}

// Timeout is the time one probe may take.
func (h HealthCheck) Timeout() time.Duration {
	return time.Duration(h.TimeoutMillis) * time.Millisecond
}

// LoadBalancerSpec is what a person wants of a load balancer. An update
// replaces it whole.
type LoadBalancerSpec struct {
	Listeners   []Listener  `json:"listeners" maxItems:"50" doc:"At least one; a protocol and port may appear once"`
	Targets     []Target    `json:"targets,omitempty" maxItems:"5000" doc:"May be empty: then connections are refused"`
	HealthCheck HealthCheck `json:"healthCheck" doc:"How targets are probed"`
}

// LoadBalancer forwards connections from one address to healthy targets.
type LoadBalancer struct {
	ID LoadBalancerID `json:"id" example:"lb-000001"`
	Meta
	LoadBalancerSpec
	Region    string             `json:"region" example:"sim-1"`
	State     LoadBalancerState  `json:"state" enum:"provisioning,active,updating,deleting,deleted"`
	IP        string             `json:"ip" doc:"Where it listens" example:"127.65.0.1"`
	AddressID AddressID          `json:"addressId" doc:"The address resource behind ip" example:"addr-000001"`
	Status    LoadBalancerStatus `json:"status" doc:"What the data plane found; it changes without a request"`
}

// LoadBalancerStatus is what the data plane reports.
type LoadBalancerStatus struct {
	Listeners []ListenerStatus `json:"listeners,omitempty" doc:"One per listener, in the same order"`
	Targets   []TargetStatus   `json:"targets,omitempty" doc:"One per target, in the same order"`
}

// ListenerStatus says where a listener can really be reached.
type ListenerStatus struct {
	Protocol Protocol `json:"protocol" enum:"tcp"`
	Port     int      `json:"port"`
	// Endpoint differs from the load balancer's ip:port where the machine
	// gives it no such port, e.g. one below 1024 without privileges.
	Endpoint string `json:"endpoint,omitempty" doc:"host:port that accepts connections; absent while there is none" example:"127.65.0.1:80"`
	Error    string `json:"error,omitempty" doc:"Why there is no endpoint, or why it is another port"`
}

// TargetHealth is what the probes say of a target.
type TargetHealth string

const (
	TargetInitial   TargetHealth = "initial" // not probed often enough yet: takes no connections
	TargetHealthy   TargetHealth = "healthy"
	TargetUnhealthy TargetHealth = "unhealthy"
)

// TargetStatus is the health of one target.
type TargetStatus struct {
	Instance InstanceID   `json:"instance"`
	Health   TargetHealth `json:"health" enum:"initial,healthy,unhealthy"`
	Reason   string       `json:"reason,omitempty" doc:"Why it is not healthy"`
}

// Move applies verb, or returns Conflict and leaves l as it was.
func (l *LoadBalancer) Move(verb Verb) error {
	return move(&l.State, loadBalancerMoves, verb, KindLoadBalancer, string(l.ID))
}

// CreateLoadBalancer asks for a load balancer. Asking again with the same name
// and the same words returns the first one; with other words it is Exists.
type CreateLoadBalancer struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"shop"`
	Labels map[string]string `json:"labels,omitempty"`
	Region string            `json:"region" example:"sim-1"`
	IP     string            `json:"ip,omitempty" doc:"A static address of the project to stand on; absent for one of the cloud's choice"`
	LoadBalancerSpec
}

// UpdateLoadBalancer replaces labels and spec. Name, region and address stay.
type UpdateLoadBalancer struct {
	Labels map[string]string `json:"labels,omitempty"`
	LoadBalancerSpec
}

// SetTargets replaces the whole set of targets in one call.
type SetTargets struct {
	Targets []Target `json:"targets" maxItems:"5000"`
}

// Validate checks what needs no other state.
func (r CreateLoadBalancer) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.name("region", r.Region)
	c.labels(r.Labels)
	if r.IP != "" {
		if _, err := netip.ParseAddr(r.IP); err != nil {
			c.addf("ip", "must be an IP address, got %q", clip(r.IP))
		}
	}
	c.spec(r.LoadBalancerSpec)
	return c.err()
}

// Validate checks what needs no other state.
func (r UpdateLoadBalancer) Validate() error {
	var c checks
	c.labels(r.Labels)
	c.spec(r.LoadBalancerSpec)
	return c.err()
}

// Validate checks what needs no other state.
func (r SetTargets) Validate() error {
	var c checks
	c.targets(r.Targets)
	return c.err()
}

func (c *checks) spec(s LoadBalancerSpec) {
	if len(s.Listeners) == 0 {
		c.addf("listeners", "needs at least one entry")
	}
	if len(s.Listeners) > 50 {
		c.addf("listeners", "has %d entries; at most 50 are kept", len(s.Listeners))
		return
	}
	seen := map[Listener]int{}
	for i, l := range s.Listeners {
		at := fmt.Sprintf("listeners[%d].", i)
		if l.Protocol != TCP {
			c.addf(at+"protocol", "must be tcp, got %q", clip(string(l.Protocol)))
		}
		c.between(at+"port", l.Port, 1, 65535)
		c.between(at+"targetPort", l.TargetPort, 1, 65535)
		key := Listener{Protocol: l.Protocol, Port: l.Port}
		if first, dup := seen[key]; dup {
			c.addf(at+"port", "is %s/%d, as is listeners[%d]", l.Protocol, l.Port, first)
		} else {
			seen[key] = i
		}
	}
	c.targets(s.Targets)
	h := s.HealthCheck
	switch h.Protocol {
	case HealthTCP, HealthHTTP:
	default:
		c.addf("healthCheck.protocol", "must be tcp or http, got %q", clip(string(h.Protocol)))
	}
	c.between("healthCheck.port", h.Port, 0, 65535)
	c.between("healthCheck.intervalMillis", h.IntervalMillis, 0, 300_000)
	c.between("healthCheck.timeoutMillis", h.TimeoutMillis, 0, 60_000)
	c.between("healthCheck.healthyThreshold", h.HealthyThreshold, 0, 10)
	c.between("healthCheck.unhealthyThreshold", h.UnhealthyThreshold, 0, 10)
	if _, err := url.ParseRequestURI(h.Path); h.Path != "" && (err != nil || len(h.Path) > 1024 || !strings.HasPrefix(h.Path, "/")) {
		c.addf("healthCheck.path", "must be the path of a URL, begin with / and be at most 1024 bytes, got %q", clip(h.Path))
	}
}

func (c *checks) targets(ts []Target) {
	if len(ts) > 5000 {
		c.addf("targets", "has %d entries; at most 5000 are kept", len(ts))
		return
	}
	seen := make(map[InstanceID]int, len(ts))
	for i, t := range ts {
		at := fmt.Sprintf("targets[%d].instance", i)
		if first, dup := seen[t.Instance]; dup {
			c.addf(at, "is %q, as is targets[%d]", clip(string(t.Instance)), first)
		}
		seen[t.Instance] = i
		if t.Instance == "" {
			c.addf(at, "is required")
		}
	}
}

func (c *checks) between(field string, n, low, high int) {
	if n < low || n > high {
		c.addf(field, "must be between %d and %d, got %d", low, high, n)
	}
}

// For returns the part of s that speaks of what spec asks for, in its order.
func (s LoadBalancerStatus) For(spec LoadBalancerSpec) LoadBalancerStatus {
	var out LoadBalancerStatus
	for _, l := range spec.Listeners {
		for _, have := range s.Listeners {
			if have.Protocol == l.Protocol && have.Port == l.Port {
				out.Listeners = append(out.Listeners, have)
			}
		}
	}
	byInstance := make(map[InstanceID]TargetStatus, len(s.Targets))
	for _, t := range s.Targets {
		byInstance[t.Instance] = t
	}
	for _, t := range spec.Targets {
		if have, ok := byInstance[t.Instance]; ok {
			out.Targets = append(out.Targets, have)
		}
	}
	return out
}
