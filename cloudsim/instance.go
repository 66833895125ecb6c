package cloudsim

import (
	"net/netip"
	"time"
)

// InstanceID names an instance, e.g. "i-000001". The cloud reuses an id only after a user has
// loaded a saved state or reset the cloud.
type InstanceID string

// InstanceState is the lifecycle state of an instance.
type InstanceState string

const (
	InstanceProvisioning InstanceState = "provisioning"
	InstanceRunning      InstanceState = "running"
	InstanceStopping     InstanceState = "stopping"
	InstanceStopped      InstanceState = "stopped"
	InstanceStarting     InstanceState = "starting"
	InstanceRebooting    InstanceState = "rebooting"
	InstanceTerminating  InstanceState = "terminating"
	// InstanceTerminated is the final state of an instance. Only the event of
	// the termination contains this state. After the termination the API
	// answers NotFound for the instance.
	InstanceTerminated InstanceState = "terminated"
)

// instanceMoves lists every allowed transition of an instance. Move returns
// Conflict for a verb that is not listed for the current state.
var instanceMoves = map[InstanceState]map[Verb]InstanceState{
	InstanceProvisioning: {Settle: InstanceRunning, Cancel: InstanceTerminating, Terminate: InstanceTerminating},
	InstanceRunning:      {Stop: InstanceStopping, Reboot: InstanceRebooting, Crash: InstanceRunning, Terminate: InstanceTerminating},
	InstanceStopping:     {Settle: InstanceStopped, Terminate: InstanceTerminating},
	InstanceStopped:      {Start: InstanceStarting, Terminate: InstanceTerminating},
	InstanceStarting:     {Settle: InstanceRunning, Cancel: InstanceStopped, Terminate: InstanceTerminating},
	InstanceRebooting:    {Settle: InstanceRunning, Stop: InstanceStopping, Terminate: InstanceTerminating},
	InstanceTerminating:  {Settle: InstanceTerminated},
}

// InstanceStates lists every state.
func InstanceStates() []InstanceState {
	return []InstanceState{
		InstanceProvisioning, InstanceRunning, InstanceStopping, InstanceStopped,
		InstanceStarting, InstanceRebooting, InstanceTerminating, InstanceTerminated,
	}
}

// InstanceAddressType tells which clients can reach an address.
type InstanceAddressType string

const (
	AddressInternal InstanceAddressType = "internal" // inside the cloud's network
	AddressExternal InstanceAddressType = "external" // from anywhere
	AddressHostname InstanceAddressType = "hostname" // a host name instead of an IP address
)

// InstanceAddress is an address of an instance.
type InstanceAddress struct {
	Type    InstanceAddressType `json:"type" enum:"internal,external,hostname"`
	Address string              `json:"address" example:"127.64.0.1"`
}

// Instance is a virtual machine.
type Instance struct {
	ID InstanceID `json:"id" example:"i-000001"`
	Meta
	Zone           string            `json:"zone" example:"sim-1a"`
	Region         string            `json:"region" example:"sim-1"`
	Type           string            `json:"type" doc:"Instance type" example:"small"`
	State          InstanceState     `json:"state" enum:"provisioning,running,stopping,stopped,starting,rebooting,terminating,terminated"`
	ProviderID     string            `json:"providerID" doc:"Value for node.spec.providerID of Kubernetes" example:"cloudsim://sim-1/sim-1a/i-000001"`
	Addresses      []InstanceAddress `json:"addresses" doc:"Addresses in order of preference. They stay the same after a stop and a start"`
	ServiceAccount ServiceAccountID  `json:"serviceAccount,omitempty" doc:"Service account that the instance authenticates as" example:"sa-000001"`

	Network   NetworkID `json:"network,omitempty" doc:"Id of the instance's first network, which the instance keeps" example:"net-000001"`
	Subnet    SubnetID  `json:"subnet,omitempty" doc:"Id of the subnet with the instance's addresses in its first network" example:"subnet-000001"`
	PodRanges []string  `json:"podRanges,omitempty" doc:"Ranges for the instance's pods, from the network's pod ranges, IPv4 first; for node.spec.podCIDRs" example:"[\"10.244.0.0/24\"]"`
	// NetworkInterfaces contains the instance's addresses in its additional networks. The field
	// Addresses contains only the addresses in the instance's first network.
	NetworkInterfaces []NetworkInterface `json:"networkInterfaces,omitempty" doc:"Addresses of the instance in additional networks. Simulated machines, load balancers and the metadata service do not use these addresses"`
	// Crashed is the time of a simulated power failure of the instance's machine. As in a real
	// cloud, the state does not show such a crash: the instance stays in the state running until
	// its next operation, e.g. a reboot.
	Crashed *time.Time `json:"crashed,omitempty" doc:"Time at which the instance lost its power. The instance keeps the state running until its next operation, such as a reboot"`
	// ReportsDevices becomes true with the first report of a hypervisor about the instance's
	// devices. It becomes false when the hypervisor ends its reports with ForgetDevices.
	ReportsDevices bool     `json:"reportsDevices,omitempty" doc:"Whether a hypervisor reports the devices of the instance's machine. The cloud then completes attachments and detachments only after a report"`
	Notices        []Notice `json:"notices,omitempty" doc:"Announced maintenance and preemption, soonest first"`
}

// InternalIP returns the instance's first internal address. Load balancers use this address for
// targets without an IP. InternalIP returns "" if the instance has no internal address.
func (i Instance) InternalIP() string {
	for _, a := range i.Addresses {
		if a.Type == AddressInternal {
			return a.Address
		}
	}
	return ""
}

// Has reports whether ip is in the field Addresses or in a pod range of i. It ignores the addresses
// in additional networks.
func (i Instance) Has(ip netip.Addr) bool {
	for _, a := range i.Addresses {
		if own, err := netip.ParseAddr(a.Address); err == nil && own == ip {
			return true
		}
	}
	for _, r := range i.PodRanges {
		if p, err := netip.ParsePrefix(r); err == nil && p.Contains(ip) {
			return true
		}
	}
	return false
}

// Move applies verb to i. If i's state does not allow verb, Move returns Conflict
// and does not change i.
func (i *Instance) Move(verb Verb) error {
	return changeState(&i.State, instanceMoves, verb, KindInstance, string(i.ID))
}

// CreateInstance requests an instance. The call is idempotent: the same request
// with the same name returns the existing instance. A different request with
// the same name returns Exists.
type CreateInstance struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"node-1" doc:"Name of the instance, which is also its host name"`
	Zone   string            `json:"zone" example:"sim-1a"`
	Type   string            `json:"type" example:"small"`
	Labels map[string]string `json:"labels,omitempty"`
	// The instance gets tokens of this service account from its metadata service.
	ServiceAccount string `json:"serviceAccount,omitempty" maxLength:"128" example:"node" doc:"Service account (id or name) that the instance authenticates as"`
	// If Network and Subnet are empty, the cloud uses the default network of the instance's
	// project. If Subnet is empty, the cloud chooses a subnet of the network. Its first choice is a
	// subnet that serves only the instance's zone. The second choice is a subnet that serves only
	// the instance's region. The last choice is a subnet that serves all regions. If several
	// subnets are equally good, the cloud chooses the oldest.
	Network NetworkID `json:"network,omitempty" maxLength:"128" doc:"Id of the instance's network; absent for the network of subnet, or for the project's default network" example:"net-000001"`
	Subnet  SubnetID  `json:"subnet,omitempty" maxLength:"128" doc:"Id of the instance's subnet; absent for a subnet of the network that serves the instance's zone" example:"subnet-000001"`
	// A caller sets Address if the instance represents an existing machine, e.g. a machine
	// of the caller's own cluster. Address is then the address of this machine.
	Address string `json:"address,omitempty" doc:"Internal address in the subnet; absent for the lowest free address" example:"10.10.1.7"`
	// UserData is not part of the Instance resource. See the type UserData.
	UserData string `json:"userData,omitempty" maxLength:"16384" doc:"User data that the instance reads from its metadata service; at most 16 KiB"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateInstance) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.name("zone", r.Zone)
	c.name("type", r.Type)
	c.labels(r.Labels)
	c.userData(r.UserData)
	c.optionalReference("serviceAccount", r.ServiceAccount)
	c.optionalReference("network", string(r.Network))
	c.optionalReference("subnet", string(r.Subnet))
	if r.Address != "" {
		c.ip("address", r.Address)
	}
	return c.err()
}

// UpdateInstance replaces the labels of an instance. An update cannot change
// other fields of the instance.
type UpdateInstance struct {
	Labels map[string]string `json:"labels" doc:"All labels. The cloud removes labels that are not in this list"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r UpdateInstance) Validate() error {
	var c checks
	c.labels(r.Labels)
	return c.err()
}
