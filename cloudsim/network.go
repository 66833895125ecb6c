package cloudsim

import (
	"net/netip"
	"strings"
)

// NetworkID names a network, e.g. "net-000001". The cloud reuses an id only after a user has loaded
// a saved state or reset the cloud.
type NetworkID string

// NetworkState is the lifecycle state of a network.
type NetworkState string

const (
	NetworkCreating  NetworkState = "creating"
	NetworkAvailable NetworkState = "available"
	NetworkUpdating  NetworkState = "updating" // callers can use the network, and the new settings apply
	NetworkDeleting  NetworkState = "deleting"
	// NetworkDeleted is the final state of a network. Only the event of the
	// deletion contains this state. After the deletion the API answers
	// NotFound for the network.
	NetworkDeleted NetworkState = "deleted"
)

// networkMoves lists every allowed transition of a network. Move returns
// Conflict for a verb that is not listed for the current state.
var networkMoves = map[NetworkState]map[Verb]NetworkState{
	NetworkCreating:  {Settle: NetworkAvailable, Delete: NetworkDeleting},
	NetworkAvailable: {Update: NetworkUpdating, Delete: NetworkDeleting},
	NetworkUpdating:  {Settle: NetworkAvailable, Update: NetworkUpdating, Delete: NetworkDeleting},
	NetworkDeleting:  {Settle: NetworkDeleted},
}

// NetworkStates lists every state.
func NetworkStates() []NetworkState {
	return []NetworkState{NetworkCreating, NetworkAvailable, NetworkUpdating, NetworkDeleting, NetworkDeleted}
}

// DefaultNetwork is the name of the network that the cloud creates with every
// project. The cloud also creates one subnet in this network. The network and
// the subnet have the same name.
const DefaultNetwork = "default"

// DefaultMaxRoutes is the maximum number of routes in a network if its spec sets no maximum.
const DefaultMaxRoutes = 1000

// PodRanges configures the pod ranges of a network. For each configured IP family, the
// network gives each instance one range for its pods. The zero value means no pod ranges.
type PodRanges struct {
	IPv4     string `json:"ipv4,omitempty" doc:"IPv4 range that contains the pod ranges of all instances" example:"10.244.0.0/16"`
	IPv4Mask int    `json:"ipv4Mask,omitempty" minimum:"0" maximum:"30" doc:"Prefix length of each instance's IPv4 pod range; default 24" example:"24"`
	IPv6     string `json:"ipv6,omitempty" doc:"IPv6 range that contains the pod ranges of all instances" example:"fd10:244::/56"`
	IPv6Mask int    `json:"ipv6Mask,omitempty" minimum:"0" maximum:"126" doc:"Prefix length of each instance's IPv6 pod range; default 64" example:"64"`
}

// WithDefaults returns p with default values for IPv4Mask and IPv6Mask. It sets the default value
// of a mask only if the mask is 0 and p has a range of the mask's IP family.
func (p PodRanges) WithDefaults() PodRanges {
	if p.IPv4 != "" && p.IPv4Mask == 0 {
		p.IPv4Mask = 24
	}
	if p.IPv6 != "" && p.IPv6Mask == 0 {
		p.IPv6Mask = 64
	}
	return p
}

// PodRange contains the settings of PodRanges for one IP family. The field In is the pod range of
// the whole network. Each instance gets a part of this range. The field Bits is the prefix length
// of this part.
type PodRange struct {
	In   netip.Prefix
	Bits int
}

// Families returns the settings of each configured IP family, IPv4 first. It
// leaves out ranges that it cannot parse. The Validate methods of requests
// reject such ranges.
func (p PodRanges) Families() []PodRange {
	p = p.WithDefaults()
	var all []PodRange
	for _, f := range []struct {
		in   string
		bits int
	}{{p.IPv4, p.IPv4Mask}, {p.IPv6, p.IPv6Mask}} {
		if in, err := netip.ParsePrefix(f.in); err == nil {
			all = append(all, PodRange{In: in, Bits: f.bits})
		}
	}
	return all
}

// NetworkSpec is the part of a network that a user may change. An update
// replaces the whole spec.
type NetworkSpec struct {
	PodRanges PodRanges `json:"podRanges,omitzero" doc:"Ranges from which each new instance gets a range for its pods; absent for no pod ranges"`
	MaxRoutes int       `json:"maxRoutes,omitempty" minimum:"0" maximum:"100000" doc:"Maximum number of routes; default 1000" example:"1000"`
}

// Network is a private network (a VPC). The ranges of its subnets are parts of
// the network's ranges. Each instance is in a subnet. Routes forward traffic to
// destinations outside the network's ranges.
type Network struct {
	ID NetworkID `json:"id" example:"net-000001"`
	Meta
	NetworkSpec
	IPv4    string       `json:"ipv4" doc:"IPv4 range that contains all subnets" example:"10.10.0.0/16"`
	IPv6    string       `json:"ipv6,omitempty" doc:"IPv6 range that contains all subnets; absent without IPv6" example:"fd10::/48"`
	Default bool         `json:"default,omitempty" doc:"Whether this is the default network of the project. It exists as long as the project"`
	State   NetworkState `json:"state" enum:"creating,available,updating,deleting,deleted"`
}

// Ranges returns the network's own ranges, IPv4 first.
func (n Network) Ranges() []netip.Prefix { return parseRanges(n.IPv4, n.IPv6) }

// Usable reports whether callers can create resources in n.
func (n Network) Usable() bool { return n.State == NetworkAvailable || n.State == NetworkUpdating }

// Move applies verb to n. If n's state does not allow verb, Move returns Conflict and does not
// change n.
func (n *Network) Move(verb Verb) error {
	return changeState(&n.State, networkMoves, verb, KindNetwork, string(n.ID))
}

// CreateNetwork requests a network. The call is idempotent: the same request
// with the same name returns the existing network. A different request with the
// same name returns Exists.
//
// All networks of a cloud exist on one machine. The ranges of two networks therefore must
// not overlap, even if the networks belong to different projects. The default networks of
// the projects are the exception. All default networks share one range, and each instance
// has its own address in this range.
type CreateNetwork struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"shop"`
	Labels map[string]string `json:"labels,omitempty"`
	IPv4   string            `json:"ipv4" doc:"IPv4 range that contains all subnets, from /8 to /30" example:"10.10.0.0/16"`
	IPv6   string            `json:"ipv6,omitempty" doc:"IPv6 range that contains all subnets; absent for a network without IPv6" example:"fd10::/48"`
	NetworkSpec
}

// UpdateNetwork replaces the labels and the spec of a network. The name and the ranges of a
// network never change.
type UpdateNetwork struct {
	Labels map[string]string `json:"labels,omitempty"`
	NetworkSpec
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateNetwork) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.labels(r.Labels)
	c.networkRanges(r.IPv4, r.IPv6)
	c.networkSpec(r.NetworkSpec)
	c.noOverlaps(namedRanges(r.IPv4, r.IPv6, r.PodRanges))
	return c.err()
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r UpdateNetwork) Validate() error {
	var c checks
	c.labels(r.Labels)
	c.networkSpec(r.NetworkSpec)
	return c.err()
}

// CheckNetwork returns Invalid if a new pod range overlaps a range of the network n.
func (r UpdateNetwork) CheckNetwork(n Network) error {
	var c checks
	c.noOverlaps(namedRanges(n.IPv4, n.IPv6, r.PodRanges))
	return c.err()
}

// Limits of prefix lengths. A /30 range is the smallest IPv4 range with an address for an instance
// and an address for the gateway.
const (
	minNetworkBits = 8
	maxNetworkBits = 30
	minIPv6Bits    = 32 // so that one project cannot reserve the whole range fd00::/8
	maxIPv6Bits    = 126
)

// networkRanges checks the ranges in a request for a network or a subnet.
func (c *checks) networkRanges(ipv4, ipv6 string) {
	if ipv4 == "" {
		c.addf("ipv4", "is required")
	} else {
		c.parsePrefix("ipv4", ipv4, minNetworkBits, maxNetworkBits)
	}
	if ipv6 != "" {
		c.parsePrefix("ipv6", ipv6, minIPv6Bits, maxIPv6Bits)
	}
}

func (c *checks) networkSpec(s NetworkSpec) {
	p := s.PodRanges.WithDefaults()
	c.between("maxRoutes", s.MaxRoutes, 0, 100_000)
	for _, f := range []struct {
		field, in      string
		bits, min, max int
	}{{"podRanges.ipv4", p.IPv4, p.IPv4Mask, minNetworkBits, maxNetworkBits}, {"podRanges.ipv6", p.IPv6, p.IPv6Mask, minIPv6Bits, maxIPv6Bits}} {
		switch {
		case f.in == "" && f.bits != 0:
			c.addf(f.field+"Mask", "needs %s", f.field)
		case f.in == "":
		default:
			if in, ok := c.parsePrefix(f.field, f.in, f.min, f.max); ok {
				c.between(f.field+"Mask", f.bits, in.Bits(), f.max)
			}
		}
	}
}

// parsePrefix parses and checks s, the value of a range field. The name of the field must end with
// "ipv4" or "ipv6". This ending determines the address family of the range.
func (c *checks) parsePrefix(field, s string, least, most int) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	six := strings.HasSuffix(field, "ipv6")
	switch {
	case err != nil || p.Addr().Is6() != six || p.Addr().Is4In6():
		family, example := "IPv4", "10.10.0.0/16"
		if six {
			family, example = "IPv6", "fd10::/48"
		}
		c.addf(field, "must be a range of %s addresses such as %s, got %q", family, example, Clip(s))
	case p.Masked() != p:
		c.addf(field, "must not have host bits: want %s, got %s", p.Masked(), p)
	case p.Bits() < least || p.Bits() > most:
		c.addf(field, "must have a prefix length from /%d to /%d, got /%d", least, most, p.Bits())
	case c.outsideReserved(field, p):
		return p, true
	}
	return netip.Prefix{}, false
}

type namedRange struct {
	field string
	netip.Prefix
}

// namedRanges returns the arguments that are valid ranges. Each element of the
// result also contains the name of the API field for its range.
func namedRanges(ipv4, ipv6 string, pods PodRanges) []namedRange {
	var all []namedRange
	for _, r := range [][2]string{{"ipv4", ipv4}, {"ipv6", ipv6}, {"podRanges.ipv4", pods.IPv4}, {"podRanges.ipv6", pods.IPv6}} {
		if p, err := netip.ParsePrefix(r[1]); err == nil {
			all = append(all, namedRange{r[0], p})
		}
	}
	return all
}

func (c *checks) noOverlaps(all []namedRange) {
	for i, r := range all {
		for _, before := range all[:i] {
			if r.Overlaps(before.Prefix) {
				c.addf(r.field, "%s overlaps %s, which is %s", r, before.field, before.Prefix)
			}
		}
	}
}

// parseRanges parses each word as a range. It leaves out words that
// are not valid ranges.
func parseRanges(words ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range words {
		if p, err := netip.ParsePrefix(s); err == nil {
			all = append(all, p)
		}
	}
	return all
}
