package cloudsim

import (
	"net/netip"
	"regexp"
)

// IPFamily is a version of the Internet protocol.
type IPFamily string

const (
	IPv4 IPFamily = "ipv4"
	IPv6 IPFamily = "ipv6"
)

// FamilyOf is the family of an address.
func FamilyOf(ip netip.Addr) IPFamily {
	if ip.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

func (c *checks) family(field string, f IPFamily) {
	if f != IPv4 && f != IPv6 {
		c.addf(field, "must be ipv4 or ipv6, got %q", clip(string(f)))
	}
}

// AddressID names a reserved address, e.g. "addr-000001".
type AddressID string

// Address is an IP address that a project holds: reserved by a person and kept
// until released, or taken by the cloud for one load balancer and released
// with it.
type Address struct {
	ID AddressID `json:"id" example:"addr-000001"`
	Meta
	Family IPFamily `json:"family" enum:"ipv4,ipv6"`
	Scheme Scheme   `json:"scheme" enum:"external,internal" doc:"Which load balancers can stand on it"`
	IP     string   `json:"ip" example:"127.65.0.1"`
	Static bool     `json:"static" doc:"Reserved on its own; kept when the load balancer that uses it goes"`
	// UsedBy is the load balancer that stands on it, or "".
	UsedBy LoadBalancerID `json:"usedBy,omitempty" doc:"The load balancer that uses it"`
}

// loadBalancerNameRE is what the cloud names the address that it takes for a
// load balancer: the load balancer's id, with "-ipv6" behind it for its second
// family.
var loadBalancerNameRE = regexp.MustCompile(`^lb-[0-9a-f]{6,}(-ipv6)?$`)

// CreateAddress reserves an address. Asking again with the same name returns
// the first one. Names that are load balancers' ids are the cloud's own.
type CreateAddress struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"shop"`
	Labels map[string]string `json:"labels,omitempty"`
	Family IPFamily          `json:"family,omitempty" enum:"ipv4,ipv6" doc:"Default ipv4"`
	Scheme Scheme            `json:"scheme,omitempty" enum:"external,internal" doc:"Default external"`
}

// Validate checks what needs no other state.
func (r CreateAddress) Validate() error {
	var c checks
	c.name("name", r.Name)
	if loadBalancerNameRE.MatchString(r.Name) {
		c.addf("name", "must not be a load balancer's id, which names the address that the cloud takes for it; got %q", r.Name)
	}
	c.labels(r.Labels)
	if r.Family != "" {
		c.family("family", r.Family)
	}
	c.scheme("scheme", r.Scheme)
	return c.err()
}
