package wire

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
)

// Identifiers are the destinations for which servers prefer an agent. The text
// form of Identifiers is a URL query, as in upstream. An example is
// host=node-1&ipv4=10.0.0.1&cidr=10.0.0.0/24&default-route=true.
type Identifiers struct {
	Host         []string       `json:"host,omitempty"`
	IPv4         []netip.Addr   `json:"ipv4,omitempty"`
	IPv6         []netip.Addr   `json:"ipv6,omitempty"`
	CIDR         []netip.Prefix `json:"cidr,omitempty"`
	DefaultRoute bool           `json:"defaultRoute,omitempty"`
}

// ParseIdentifiers parses the text form. If some parts are not valid, the error describes each of
// these parts.
func ParseIdentifiers(text string) (Identifiers, error) {
	var id Identifiers
	values, err := url.ParseQuery(text)
	if err != nil {
		return id, fmt.Errorf("agent identifiers must be a URL query such as host=node-1&ipv4=10.0.0.1: %w", err)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		for _, v := range values[key] {
			if err := id.add(key, v); err != nil {
				errs = append(errs, fmt.Errorf("agent identifier %s: %w", key, err))
			}
		}
	}
	return id, errors.Join(errs...)
}

func (id *Identifiers) add(key, value string) (err error) {
	switch key {
	case "host":
		id.Host = append(id.Host, value)
	case "ipv4", "ipv6":
		a, err := netip.ParseAddr(value)
		if err != nil || a.Is4() != (key == "ipv4") {
			return fmt.Errorf("%q is not an address of this family", value)
		}
		if a.Is4In6() { // the address of a dial never has this form
			return fmt.Errorf("%q is an IPv4 address in the form of IPv6: use ipv4=%s", value, a.Unmap())
		}
		if a.Is4() {
			id.IPv4 = append(id.IPv4, a)
		} else {
			id.IPv6 = append(id.IPv6, a)
		}
	case "cidr":
		p, err := netip.ParsePrefix(value)
		if err != nil {
			return fmt.Errorf("%q is not a CIDR such as 10.0.0.0/24", value)
		}
		if p.Addr().Is4In6() { // the address of a dial never has this form
			return fmt.Errorf("%q is a range of IPv4 addresses in the form of IPv6: use the form 10.0.0.0/24", value)
		}
		id.CIDR = append(id.CIDR, p.Masked())
	case "default-route":
		if id.DefaultRoute, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%q is not true or false", value)
		}
	default:
		return errors.New("unknown: use host, ipv4, ipv6, cidr or default-route")
	}
	return nil
}

// String returns the text form, with its keys in alphabetical order.
func (id Identifiers) String() string {
	v := url.Values{"host": slices.Clone(id.Host)}
	for _, a := range id.IPv4 {
		v.Add("ipv4", a.String())
	}
	for _, a := range id.IPv6 {
		v.Add("ipv6", a.String())
	}
	for _, p := range id.CIDR {
		v.Add("cidr", p.String())
	}
	if id.DefaultRoute {
		v.Set("default-route", "true")
	}
	return v.Encode()
}
