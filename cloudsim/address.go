package cloudsim

import "regexp"

// AddressID names a reserved address, e.g. "addr-000001".
type AddressID string

// Address is an IP address that a project holds: reserved by a person and kept
// until released, or taken by the cloud for one load balancer and released
// with it.
type Address struct {
	ID AddressID `json:"id" example:"addr-000001"`
	Meta
	IP     string `json:"ip" example:"127.65.0.1"`
	Static bool   `json:"static" doc:"Reserved on its own; kept when the load balancer that uses it goes"`
	// UsedBy is the load balancer that stands on it, or "".
	UsedBy LoadBalancerID `json:"usedBy,omitempty" doc:"The load balancer that uses it"`
}

// loadBalancerNameRE is what the cloud names the address that it takes for a
// load balancer: the load balancer's id.
var loadBalancerNameRE = regexp.MustCompile(`^lb-[0-9a-f]{6,}$`)

// CreateAddress reserves an address. Asking again with the same name returns
// the first one. Names that are load balancers' ids are the cloud's own.
type CreateAddress struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"shop"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Validate checks what needs no other state.
func (r CreateAddress) Validate() error {
	var c checks
	c.name("name", r.Name)
	if loadBalancerNameRE.MatchString(r.Name) {
		c.addf("name", "must not be a load balancer's id, which names the address that the cloud takes for it; got %q", r.Name)
	}
	c.labels(r.Labels)
	return c.err()
}
