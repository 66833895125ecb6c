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

// FamilyOf returns the family of ip. For an IPv4-mapped IPv6 address, it returns IPv4.
func FamilyOf(ip netip.Addr) IPFamily {
	if ip.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

func (c *checks) family(field string, f IPFamily) {
	if f != IPv4 && f != IPv6 {
		c.addf(field, "must be ipv4 or ipv6, got %q", Clip(string(f)))
	}
}

// AddressID names a reserved address, e.g. "addr-000001".
type AddressID string

// Address is an IP address that the cloud reserves for a project. An Address that a caller
// requested is called a static address. A static address exists until a caller deletes
// this address. For a load balancer without a static address, the cloud itself reserves an
// address. The cloud deletes this address together with the load balancer.
type Address struct {
	ID AddressID `json:"id" example:"addr-000001"`
	Meta
	Family IPFamily `json:"family" enum:"ipv4,ipv6"`
	Scheme Scheme   `json:"scheme" enum:"external,internal" doc:"Scheme of the load balancers that can use the address"`
	IP     string   `json:"ip" example:"127.65.0.1"`
	Static bool     `json:"static" doc:"Whether a client reserved the address. Such an address stays when its load balancer is deleted. The cloud deletes every other address together with its load balancer"`
	// UsedBy is the load balancer that uses the address, or "".
	UsedBy LoadBalancerID `json:"usedBy,omitempty" doc:"Id of the load balancer that uses the address"`
}

// loadBalancerNameRE matches the names of the addresses that the cloud itself reserves for
// load balancers. The name of an IPv4 address is the load balancer's id. The name of an IPv6
// address is this id with the suffix "-ipv6".
var loadBalancerNameRE = regexp.MustCompile(`^lb-[0-9a-f]{6,}(-ipv6)?$`)

// CreateAddress requests a static address. The call is idempotent: the same request with
// the same name returns the existing address. The name must not have the form of a load
// balancer's id, with or without the suffix "-ipv6". The cloud itself reserves addresses with
// these names.
type CreateAddress struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"shop"`
	Labels map[string]string `json:"labels,omitempty"`
	Family IPFamily          `json:"family,omitempty" enum:"ipv4,ipv6" doc:"IP family of the address; default ipv4"`
	Scheme Scheme            `json:"scheme,omitempty" enum:"external,internal" doc:"Scheme of the address; default external"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateAddress) Validate() error {
	var c checks
	c.name("name", r.Name)
	if loadBalancerNameRE.MatchString(r.Name) {
		c.addf("name", "must not have the form of a load balancer id: the cloud uses such names for the addresses that it reserves; got %q", r.Name)
	}
	c.labels(r.Labels)
	if r.Family != "" {
		c.family("family", r.Family)
	}
	c.scheme("scheme", r.Scheme)
	return c.err()
}
