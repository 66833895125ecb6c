package conform

import (
	"context"
	"errors"
)

// Driver gives the checks access to a cloud. Every method is safe for concurrent use. If the named
// object does not exist, a method returns [ErrNotFound]. But DeleteMachine returns nil for a
// missing machine. A method returns [ErrUnsupported] if the cloud does not support the method.
type Driver interface {
	// Capabilities returns the features of the cloud and of its CCM.
	Capabilities(context.Context) (Capabilities, error)
	Machines
	Network
	Faults
}

// Machines manages machines. A machine belongs to the Node with the same name.
type Machines interface {
	// CreateMachine starts a machine. It returns when the machine runs and GetMachine finds it. If
	// the zone or the type of the Machine is empty, the driver chooses a value.
	CreateMachine(context.Context, Machine) (Machine, error)
	// ListMachines returns all machines that CreateMachine has created. It sets the field Run of
	// each machine. The result may contain machines that the cloud is still deleting.
	ListMachines(context.Context) ([]Machine, error)
	// GetMachine returns the machine with this name.
	GetMachine(ctx context.Context, name string) (Machine, error)
	// StopMachine switches a machine off. The machine keeps its name and its provider ID.
	StopMachine(ctx context.Context, name string) error
	// StartMachine switches a stopped machine on.
	StartMachine(ctx context.Context, name string) error
	// DeleteMachine deletes a machine. If the machine does not exist, DeleteMachine returns nil.
	DeleteMachine(ctx context.Context, name string) error
}

// Network reads and deletes the objects that a CCM creates in the cloud. It can also create a route
// for a check.
type Network interface {
	ListLoadBalancers(context.Context) ([]LoadBalancer, error)
	DeleteLoadBalancer(ctx context.Context, id string) error
	ListRoutes(context.Context) ([]Route, error)
	// CreateRoute creates a route that belongs to no cluster, and returns the route with its ID. A
	// check uses this route to prove that the CCM does not delete it.
	CreateRoute(context.Context, Route) (Route, error)
	DeleteRoute(ctx context.Context, id string) error
}

// Faults disturbs and counts the calls of the CCM to the cloud. Faults does not disturb or count
// the calls of the driver itself.
type Faults interface {
	// SetFault replaces the current fault.
	SetFault(context.Context, Fault) error
	// ClearFault removes the current fault. It returns nil if no fault exists.
	ClearFault(context.Context) error
	// Calls returns the number of calls since the driver began to count, separately for each call
	// name.
	Calls(context.Context) (map[string]Count, error)
}

// Machine is a virtual machine of the cloud.
type Machine struct {
	Name       string    `json:"name"`
	Zone       string    `json:"zone,omitempty"`
	Region     string    `json:"region,omitempty"`
	Type       string    `json:"type,omitempty"`
	ProviderID string    `json:"providerID,omitempty"`
	Addresses  []Address `json:"addresses,omitempty"`
	Running    bool      `json:"running"`
	// Run is the name of the run that created the machine. The driver stores this name in the
	// cloud, for example in a label, so that [Cleanup] finds the machine after a crash of the run.
	Run string `json:"run,omitempty"`
}

// Address is an address of a machine. Type is an address type of Kubernetes, such as InternalIP.
type Address struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

// LoadBalancer is a load balancer of the cloud.
type LoadBalancer struct {
	ID string `json:"id"`
	// Addresses contains the IP addresses and the host names of the load balancer.
	Addresses []string `json:"addresses"`
	Ports     []Port   `json:"ports"`
	// Machines contains the names of the machines to which the load balancer forwards.
	Machines []string `json:"machines"`
	// SourceRanges contains the CIDR ranges of the permitted clients. It is empty if all clients
	// are permitted.
	SourceRanges []string `json:"sourceRanges,omitempty"`
	// HealthCheckPort is the port of the machines to which the load balancer sends HTTP health
	// checks. It is 0 if the load balancer makes no HTTP health checks.
	HealthCheckPort int32 `json:"healthCheckPort,omitempty"`
	// ClientIPAffinity is true if the connections of one client go to the same machine.
	ClientIPAffinity bool `json:"clientIPAffinity,omitempty"`
	// Internal is true if only clients in the cloud's network can reach the load balancer.
	Internal bool `json:"internal,omitempty"`
}

// Port is a port of a load balancer. Protocol is TCP, UDP or SCTP.
type Port struct {
	Protocol string `json:"protocol"`
	Port     int32  `json:"port"`
	NodePort int32  `json:"nodePort"`
}

// Route is a route of the cloud's network. CIDR is the destination. Machine is the name of the
// machine that receives the packets.
type Route struct {
	ID      string `json:"id,omitempty"`
	CIDR    string `json:"cidr"`
	Machine string `json:"machine"`
}

// Capabilities describes a cloud and its CCM. If a field is false or empty, a run skips the checks
// of the feature that the field describes.
type Capabilities struct {
	// Provider is the name of the provider, for reports.
	Provider string `json:"provider"`
	// ProviderIDPrefix is the beginning of each provider ID, for example "aws://".
	ProviderIDPrefix string `json:"providerIDPrefix"`
	// Zones is true if the CCM adds labels with a zone and a region to Nodes.
	Zones bool `json:"zones,omitempty"`
	// Shutdown is true if the CCM adds the shutdown taint to the Nodes of stopped machines.
	Shutdown      bool `json:"shutdown,omitempty"`
	LoadBalancers bool `json:"loadBalancers,omitempty"`
	SourceRanges  bool `json:"sourceRanges,omitempty"`
	UDP           bool `json:"udp,omitempty"`
	SCTP          bool `json:"sctp,omitempty"`
	// MixedProtocols is true if one load balancer can have TCP ports and UDP ports.
	MixedProtocols bool `json:"mixedProtocols,omitempty"`
	// SessionAffinity is true if load balancers support the affinity ClientIP.
	SessionAffinity bool `json:"sessionAffinity,omitempty"`
	// DualStack is true if a load balancer can have an IPv4 address and an IPv6 address.
	DualStack bool `json:"dualStack,omitempty"`
	// LocalTraffic is true if the health check of a load balancer uses the healthCheckNodePort of a
	// Service with externalTrafficPolicy Local.
	LocalTraffic bool `json:"localTraffic,omitempty"`
	// StaticIP is an address that a Service can request with spec.loadBalancerIP. No load balancer
	// may use this address when the run starts.
	StaticIP string `json:"staticIP,omitempty"`
	// InternalAnnotations are the annotations of a Service that requests an internal load balancer.
	InternalAnnotations map[string]string `json:"internalAnnotations,omitempty"`
	// ProxyAnnotations are the annotations of a Service that requests PROXY headers from its load
	// balancer.
	ProxyAnnotations map[string]string `json:"proxyAnnotations,omitempty"`
	// SharedAnnotations are the annotations with which Services request one shared load balancer.
	SharedAnnotations map[string]string `json:"sharedAnnotations,omitempty"`
	// Routes is true if the CCM creates routes to the pod ranges of Nodes. If Routes is true,
	// ClusterCIDR must not be empty.
	Routes bool `json:"routes,omitempty"`
	// ClusterCIDR is the value of the flag --cluster-cidr of the CCM.
	ClusterCIDR string `json:"clusterCIDR,omitempty"`
	// Faults lists the faults that the driver can inject.
	Faults []FaultKind `json:"faults,omitempty"`
	// Calls is true if the driver counts the calls of the CCM.
	Calls bool `json:"calls,omitempty"`
	// LeaderElection is true if the CCM takes a Lease before it starts its controllers.
	// LeaderMigration is true if the CCM also takes the Lease of a leader migration (KEP-2436).
	LeaderElection  bool `json:"leaderElection,omitempty"`
	LeaderMigration bool `json:"leaderMigration,omitempty"`
	// User is the name of the CCM's user in the cluster, such as
	// system:serviceaccount:kube-system:cloud-controller-manager.
	User string `json:"user,omitempty"`
	// KnownIssues maps the ID of a check to the link of an issue. If this check fails, its verdict
	// is KnownIssue.
	KnownIssues map[string]string `json:"knownIssues,omitempty"`
}

// FaultKind is a kind of disturbance.
type FaultKind string

// These are the kinds of faults.
const (
	FaultError        FaultKind = "error"        // the cloud answers with an internal error
	FaultUnauthorized FaultKind = "unauthorized" // the cloud refuses the CCM's credentials
	FaultTimeout      FaultKind = "timeout"      // the cloud does not answer
	FaultEmptyList    FaultKind = "emptyList"    // each list of machines is empty
	FaultLoseReply    FaultKind = "loseReply"    // the cloud executes the call, but the CCM gets no reply
	FaultThrottle     FaultKind = "throttle"     // the cloud refuses the call with the status 429
	FaultLatency      FaultKind = "latency"      // the cloud executes the call after a delay
)

// Fault disturbs the calls of the CCM.
type Fault struct {
	Kind FaultKind `json:"kind"`
	// Writes is true if the fault disturbs only calls that change the cloud.
	Writes bool `json:"writes,omitempty"`
	// Call is the name of the calls that the fault disturbs. It is a name that the method
	// Faults.Calls can return. If Call is empty, the fault disturbs calls with any name.
	Call string `json:"call,omitempty"`
	// Skip is the number of calls before the first disturbed call, for each call name.
	Skip int `json:"skip,omitempty"`
	// Count is the number of calls that the fault disturbs, for each call name. If Count is 0, the
	// fault disturbs all calls until ClearFault.
	Count int `json:"count,omitempty"`
	// LatencySeconds is the delay of each disturbed call in seconds, if Kind is FaultLatency.
	LatencySeconds float64 `json:"latencySeconds,omitempty"`
}

// Count describes the calls with one name. The field Calls is the number of these calls.
type Count struct {
	Calls int `json:"calls"`
	// Writes is true if these calls change the cloud.
	Writes bool `json:"writes,omitempty"`
}

// ErrNotFound means that the object does not exist in the cloud.
var ErrNotFound = errors.New("not found")

// ErrUnsupported means that the cloud does not support the called method.
var ErrUnsupported = errors.New("the driver does not support this function")
