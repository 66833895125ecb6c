package cloudsim

import (
	"cmp"
	"slices"
	"time"
)

// LoadBalancerID names a load balancer, e.g. "lb-000001".
type LoadBalancerID string

// LoadBalancerState is the lifecycle state of a load balancer.
type LoadBalancerState string

const (
	LoadBalancerProvisioning LoadBalancerState = "provisioning"
	LoadBalancerActive       LoadBalancerState = "active"
	LoadBalancerUpdating     LoadBalancerState = "updating" // the load balancer already uses the new settings
	LoadBalancerDeleting     LoadBalancerState = "deleting"
	// LoadBalancerDeleted is the final state of a load balancer. Only the event of the
	// deletion contains this state.
	LoadBalancerDeleted LoadBalancerState = "deleted"
)

// loadBalancerMoves lists every allowed transition of a load balancer. Move
// returns Conflict for a verb that is not listed for the current state.
var loadBalancerMoves = map[LoadBalancerState]map[Verb]LoadBalancerState{
	LoadBalancerProvisioning: {Settle: LoadBalancerActive, Cancel: LoadBalancerDeleting, Update: LoadBalancerProvisioning, Delete: LoadBalancerDeleting},
	LoadBalancerActive:       {Update: LoadBalancerUpdating, Delete: LoadBalancerDeleting},
	LoadBalancerUpdating:     {Settle: LoadBalancerActive, Update: LoadBalancerUpdating, Delete: LoadBalancerDeleting},
	LoadBalancerDeleting:     {Settle: LoadBalancerDeleted},
}

// LoadBalancerStates lists every state.
func LoadBalancerStates() []LoadBalancerState {
	return []LoadBalancerState{
		LoadBalancerProvisioning, LoadBalancerActive, LoadBalancerUpdating,
		LoadBalancerDeleting, LoadBalancerDeleted,
	}
}

// Protocol is the transport protocol of a listener.
type Protocol string

const (
	TCP Protocol = "tcp" // connections
	UDP Protocol = "udp" // flows: datagrams of one client port in both directions
)

// Scheme selects the address range of a load balancer. It does not restrict the clients of the load
// balancer.
type Scheme string

const (
	SchemeExternal Scheme = "external" // the external range
	SchemeInternal Scheme = "internal" // the internal range; the external range if the cloud has no internal range
)

// ListenerMode tells clients whether they may bypass the load balancer. The cloud only
// stores and returns this value. The load balancer works in the same way in both modes.
type ListenerMode string

const (
	// ModeProxy means that clients must connect to the load balancer, and not directly to a target.
	// If a client connects directly to a target, the target gets no PROXY header, and the load
	// balancer's source ranges do not apply.
	ModeProxy ListenerMode = "proxy"
	// ModeVIP means that a client may connect directly to a target instead of
	// the load balancer's address.
	ModeVIP ListenerMode = "vip"
)

// ProxyProtocol is a version of the PROXY protocol (see haproxy.org). The listener sends the
// header of this protocol to the target before the first byte of a connection. The header contains
// the client's address.
type ProxyProtocol string

const (
	ProxyV1 ProxyProtocol = "v1" // text
	ProxyV2 ProxyProtocol = "v2" // binary
)

// Listener is a port of the load balancer, with the forwarding rules of this port. For each
// optional number, 0 means the default value.
type Listener struct {
	Protocol           Protocol      `json:"protocol" enum:"tcp,udp"`
	Port               int           `json:"port" minimum:"1" maximum:"65535" doc:"Port on each of the load balancer's addresses. A TCP listener and a UDP listener can have the same port" example:"80"`
	TargetPort         int           `json:"targetPort" minimum:"1" maximum:"65535" doc:"Port on every target" example:"30080"`
	Mode               ListenerMode  `json:"mode,omitempty" enum:"vip,proxy" doc:"Whether clients inside the cluster may connect to targets directly (vip) or only through the load balancer (proxy, the default). The cloud only stores this value. The CCM publishes it as ipMode"`
	ProxyProtocol      ProxyProtocol `json:"proxyProtocol,omitempty" enum:"v1,v2" doc:"Version of the PROXY protocol header that targets get; absent for no header. TCP only. Health checks do not send the header"`
	IdleTimeoutSeconds int           `json:"idleTimeoutSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Time without data in either direction after which the load balancer resets a TCP connection (default 350), or forgets a UDP flow (default 120)"`
	MaxConnections     int           `json:"maxConnections,omitempty" minimum:"0" maximum:"1000000" doc:"Maximum number of open connections or UDP flows; default 10000. The load balancer refuses further connections"`
	Targets            []Target      `json:"targets,omitzero" maxItems:"5000" doc:"Targets of only this listener, instead of the load balancer's targets. Absent: the load balancer's targets. Empty: no targets"`
	HealthCheck        *HealthCheck  `json:"healthCheck,omitempty" doc:"Health check of the listener's targets, for only this listener. Its default port is the listener's targetPort, or for UDP the targetPort of the first TCP listener. Absent: the load balancer's health check"`
}

// EffectiveMode returns the listener's mode, or the default mode if Mode is
// empty.
func (l Listener) EffectiveMode() ListenerMode {
	if l.Mode == "" {
		return ModeProxy
	}
	return l.Mode
}

// IdleTimeout returns the time without data after which the load balancer resets a TCP
// connection or ends a UDP flow. The default is 350 s for TCP and 120 s for UDP.
func (l Listener) IdleTimeout() time.Duration {
	switch {
	case l.IdleTimeoutSeconds > 0:
		return time.Duration(l.IdleTimeoutSeconds) * time.Second
	case l.Protocol == UDP:
		return 120 * time.Second
	}
	return 350 * time.Second
}

// Target is an instance that receives connections. The load balancer probes the address in the
// field IP and opens connections to this address. The field contains an address of the instance, or
// an address in the instance's pod ranges, e.g. the address of a pod. If IP is empty, the load
// balancer uses the instance's first internal address. The target exists only as long as the
// instance exists.
type Target struct {
	Instance InstanceID `json:"instance" example:"i-000001"`
	IP       string     `json:"ip,omitempty" doc:"Destination of connections: an address of the instance, or an address in its pod ranges. Absent for the first internal address" example:"10.244.0.7"`
	Weight   int        `json:"weight,omitempty" minimum:"0" maximum:"256" doc:"Share of the connections, relative to the weights of the other targets; default 1"`
}

// TargetKey identifies a target within a load balancer.
type TargetKey struct {
	Instance InstanceID
	IP       string
	Listener string // key of the listener, if the target belongs to only this listener; otherwise ""
}

// Key returns the key of t. The field Listener of the key is empty, because a Target does
// not name a listener.
func (t Target) Key() TargetKey { return TargetKey{Instance: t.Instance, IP: t.IP} }

// String returns the instance id, or INSTANCE/IP if the field IP is set. If the field Listener is
// set, the result begins with this field and "=".
func (k TargetKey) String() string {
	s := string(k.Instance)
	if k.IP != "" {
		s += "/" + k.IP
	}
	if k.Listener != "" {
		return k.Listener + "=" + s
	}
	return s
}

// Compare orders keys by listener, then by instance and then by address.
func (k TargetKey) Compare(other TargetKey) int {
	return cmp.Or(cmp.Compare(k.Listener, other.Listener), cmp.Compare(k.Instance, other.Instance), cmp.Compare(k.IP, other.IP))
}

// Share returns the target's weight, or the default weight 1 if Weight is 0.
func (t Target) Share() int { return max(t.Weight, 1) }

// HealthCheck configures the probes that decide which targets receive connections. For each
// optional number, 0 means the default value.
type HealthCheck struct {
	Protocol           HealthProtocol `json:"protocol" enum:"tcp,http,https,none" doc:"Condition of a healthy target. tcp: the target accepts a connection. http, https: the target answers a GET with an expected status; certificates are not verified. none: the instance runs"`
	Port               int            `json:"port,omitempty" minimum:"0" maximum:"65535" doc:"Port on every target. 0 means the targetPort of the first TCP listener; for a TCP listener with its own targets or health check, it means the targetPort of this listener"`
	Path               string         `json:"path,omitempty" maxLength:"1024" doc:"Path of the GET request; default /"`
	ExpectedCodes      string         `json:"expectedCodes,omitempty" maxLength:"128" doc:"HTTP statuses of healthy targets: numbers and ranges, separated by commas; default 200" example:"200-299,401"`
	IntervalMillis     int            `json:"intervalMillis,omitempty" minimum:"0" maximum:"300000" doc:"Time between two probes of a target; default 2000"`
	TimeoutMillis      int            `json:"timeoutMillis,omitempty" minimum:"0" maximum:"60000" doc:"Time limit of a probe; default 1000"`
	HealthyThreshold   int            `json:"healthyThreshold,omitempty" minimum:"0" maximum:"10" doc:"Number of successful probes in a row after which a target is healthy; default 1"`
	UnhealthyThreshold int            `json:"unhealthyThreshold,omitempty" minimum:"0" maximum:"10" doc:"Number of failed probes in a row after which a target is unhealthy; default 2"`
}

// HealthProtocol is the protocol of a probe.
type HealthProtocol string

const (
	HealthTCP   HealthProtocol = "tcp"
	HealthHTTP  HealthProtocol = "http"
	HealthHTTPS HealthProtocol = "https"
	// HealthNone means no probes. A target is healthy while its instance runs.
	HealthNone HealthProtocol = "none"
)

// WithDefaults returns h with a default value for each unset field. The default port is the
// target port of the first TCP listener. Without a TCP listener, an unset port stays 0.
func (h HealthCheck) WithDefaults(listeners []Listener) HealthCheck {
	def := func(n *int, d int) {
		if *n == 0 {
			*n = d
		}
	}
	for _, l := range listeners {
		if l.Protocol == TCP {
			def(&h.Port, l.TargetPort)
		}
	}
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
	if h.ExpectedCodes == "" {
		h.ExpectedCodes = "200"
	}
	return h
}

// Expects reports whether an answer with the given HTTP status means that the
// target is healthy.
func (h HealthCheck) Expects(status int) bool {
	codes, _ := parseCodes(h.ExpectedCodes)
	for _, c := range codes {
		if c[0] <= status && status <= c[1] {
			return true
		}
	}
	return false
}

// Interval returns the time between two probes.
func (h HealthCheck) Interval() time.Duration {
	return time.Duration(h.IntervalMillis) * time.Millisecond
}

// Timeout returns the time limit of one probe.
func (h HealthCheck) Timeout() time.Duration {
	return time.Duration(h.TimeoutMillis) * time.Millisecond
}

// Affinity describes which connections go to the same target.
type Affinity string

const (
	AffinityNone     Affinity = "none"     // the balancer chooses the least loaded target for each connection
	AffinityClientIP Affinity = "clientIP" // connections of a client address go to the same target until the affinity timeout
)

// LoadBalancerSpec is the part of a load balancer that the user chooses. An
// update replaces the whole spec.
type LoadBalancerSpec struct {
	Listeners              []Listener  `json:"listeners" maxItems:"50" doc:"Listeners, each with a different pair of protocol and port. Without listeners, the load balancer keeps its addresses, accepts no connections and does not probe its targets"`
	Targets                []Target    `json:"targets,omitempty" maxItems:"5000" doc:"Targets of connections, for listeners without their own targets. Without targets, the load balancer refuses connections"`
	HealthCheck            HealthCheck `json:"healthCheck" doc:"Health check of the targets, for listeners without their own health check"`
	SourceRanges           []string    `json:"sourceRanges,omitempty" maxItems:"200" doc:"Ranges of clients that may connect, in CIDR notation, IPv4 and IPv6. The load balancer refuses all other clients and resets their open connections. Absent or empty: all clients may connect" example:"[\"10.0.0.0/8\"]"`
	Affinity               Affinity    `json:"affinity,omitempty" enum:"none,clientIP" doc:"clientIP: all connections of a client go to the same target on all listeners, while this target is healthy. Default none"`
	AffinityTimeoutSeconds int         `json:"affinityTimeoutSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Time for which the load balancer remembers the target of a client after the start or end of the client's last connection; default 10800"`
	DrainTimeoutSeconds    int         `json:"drainTimeoutSeconds,omitempty" minimum:"-1" maximum:"3600" doc:"Time for which connections stay open after the removal of their target or listener; default 30. With -1 the load balancer resets them at once"`
}

// DrainTimeout returns how long connections of a removed target or listener may continue. The
// default is 30 s. If the result is 0, the load balancer resets the connections at once.
func (s LoadBalancerSpec) DrainTimeout() time.Duration {
	if s.DrainTimeoutSeconds == 0 {
		return 30 * time.Second
	}
	return time.Duration(max(s.DrainTimeoutSeconds, 0)) * time.Second
}

// AffinityTimeout returns how long the load balancer remembers a client's
// target. The default is 10800 s. If the result is 0, the load balancer has no
// affinity.
func (s LoadBalancerSpec) AffinityTimeout() time.Duration {
	switch {
	case s.Affinity != AffinityClientIP:
		return 0
	case s.AffinityTimeoutSeconds == 0:
		return 10800 * time.Second
	}
	return time.Duration(s.AffinityTimeoutSeconds) * time.Second
}

// Check returns the health check with a default value for each unset field.
func (s LoadBalancerSpec) Check() HealthCheck { return s.HealthCheck.WithDefaults(s.Listeners) }

// Same reports whether two specs are equal. A nil list equals an empty list, except for the
// targets of a listener. The order of the items in a list matters.
func (s LoadBalancerSpec) Same(other LoadBalancerSpec) bool {
	return s.HealthCheck == other.HealthCheck &&
		s.Affinity == other.Affinity && s.AffinityTimeoutSeconds == other.AffinityTimeoutSeconds &&
		s.DrainTimeoutSeconds == other.DrainTimeoutSeconds &&
		slices.EqualFunc(s.Listeners, other.Listeners, Listener.equal) && slices.Equal(s.Targets, other.Targets) &&
		slices.Equal(s.SourceRanges, other.SourceRanges)
}

// LoadBalancer forwards connections from its addresses to healthy targets.
type LoadBalancer struct {
	ID LoadBalancerID `json:"id" example:"lb-000001"`
	Meta
	LoadBalancerSpec
	Region    string                `json:"region" example:"sim-1"`
	Scheme    Scheme                `json:"scheme" enum:"external,internal" doc:"Range of the load balancer's addresses: external or internal. The scheme never changes"`
	State     LoadBalancerState     `json:"state" enum:"provisioning,active,updating,deleting,deleted"`
	IP        string                `json:"ip" doc:"First address of the load balancer" example:"127.65.0.1"`
	Addresses []LoadBalancerAddress `json:"addresses" doc:"Addresses of the listeners: one address for each family, in the order of the families"`
	Published []PublishedPort       `json:"published,omitempty" doc:"Published ports: host ports that clients outside the machine's network can use, one for each listener. Published ports exist only if the cloud has a range of published ports, and the range has free ports"`
	Status    LoadBalancerStatus    `json:"status" doc:"State of the addresses, listeners and targets, as the data plane reports it. The data plane can change the status without a request of a client"`
}

// LoadBalancerAddress is an address of a load balancer.
type LoadBalancerAddress struct {
	Family IPFamily  `json:"family" enum:"ipv4,ipv6"`
	IP     string    `json:"ip" example:"127.65.0.1"`
	ID     AddressID `json:"id" doc:"Id of the address resource" example:"addr-000001"`
}

// PublishedPort is a port of the cloud's host that forwards to a listener.
type PublishedPort struct {
	Protocol      Protocol `json:"protocol" enum:"tcp,udp" doc:"Protocol of the listener"`
	Port          int      `json:"port" doc:"Port of the listener" example:"80"`
	Host          string   `json:"host" example:"127.0.0.1"`
	PublishedPort int      `json:"publishedPort" example:"30080"`
}

// Families returns the IP family of each address, in the order of the addresses.
func (l LoadBalancer) Families() []IPFamily {
	var all []IPFamily
	for _, a := range l.Addresses {
		all = append(all, a.Family)
	}
	return all
}

// Reported reports whether the data plane has reported a status for every
// listener on every address.
func (l LoadBalancer) Reported() bool {
	for _, li := range l.Listeners {
		for _, a := range l.Addresses {
			if !slices.ContainsFunc(l.Status.Listeners, func(s ListenerStatus) bool {
				return s.Protocol == li.Protocol && s.Port == li.Port && s.IP == a.IP
			}) {
				return false
			}
		}
	}
	return true
}

// Move applies verb to l. If l's state does not allow verb, Move returns Conflict
// and does not change l.
func (l *LoadBalancer) Move(verb Verb) error {
	return changeState(&l.State, loadBalancerMoves, verb, KindLoadBalancer, string(l.ID))
}

// CreateLoadBalancer requests a load balancer. The call is idempotent: the same
// request with the same name returns the existing load balancer. A different
// request with the same name returns Exists.
type CreateLoadBalancer struct {
	Name      string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"shop"`
	Labels    map[string]string `json:"labels,omitempty"`
	Region    string            `json:"region" example:"sim-1"`
	Scheme    Scheme            `json:"scheme,omitempty" enum:"external,internal" doc:"Default external"`
	Families  []IPFamily        `json:"families,omitempty" maxItems:"2" doc:"IP families in order. The load balancer gets one address for each family. Default: the families of the field addresses, or ipv4 if that field is empty" example:"[\"ipv4\",\"ipv6\"]"`
	Addresses []string          `json:"addresses,omitempty" maxItems:"2" doc:"Reserved addresses of the project, at most one for each family. For a family without a reserved address, the cloud chooses an address" example:"[\"127.65.0.1\"]"`
	LoadBalancerSpec
}

// UpdateLoadBalancer replaces the labels and the spec of a load balancer. The name, the
// region and the scheme of a load balancer never change.
type UpdateLoadBalancer struct {
	Labels    map[string]string `json:"labels,omitempty"`
	Scheme    Scheme            `json:"scheme,omitempty" enum:"external,internal" doc:"Must equal the current value. For another scheme, create another load balancer"`
	Families  []IPFamily        `json:"families,omitempty" maxItems:"2" doc:"IP families in order. A new family gets an address, and a removed family releases its address. Absent: no change"`
	Addresses []string          `json:"addresses,omitempty" maxItems:"2" doc:"Reserved addresses of the project that the load balancer gets, at most one for each family. A family without an entry keeps its address"`
	LoadBalancerSpec
}

// SetTargets replaces all targets of a load balancer in one call.
type SetTargets struct {
	Targets []Target `json:"targets" maxItems:"5000"`
}
