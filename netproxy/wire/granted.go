package wire

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// grantScheme is the scheme of a URI in a certificate. The URI grants identifiers that DNS names
// and addresses cannot express. An example is netproxy:?cidr=10.0.0.0%2F24&default-route=true.
const grantScheme = "netproxy"

// Grant adds the identifiers to the subject alternative names of a certificate template. The
// server then accepts these identifiers from an agent with the certificate.
func (id Identifiers) Grant(template *x509.Certificate) {
	template.DNSNames = append(template.DNSNames, id.Host...)
	for _, a := range slices.Concat(id.IPv4, id.IPv6) {
		template.IPAddresses = append(template.IPAddresses, a.AsSlice())
	}
	rest := Identifiers{CIDR: id.CIDR, DefaultRoute: id.DefaultRoute}
	if text := rest.String(); text != "" {
		template.URIs = append(template.URIs, &url.URL{Scheme: grantScheme, RawQuery: text})
	}
}

// GrantedBy returns the identifiers that a certificate grants. DNS names grant host
// identifiers, and addresses grant ipv4 and ipv6 identifiers. A netproxy URI grants the
// identifiers in its query.
func GrantedBy(c *x509.Certificate) (Identifiers, error) {
	var id Identifiers
	for _, u := range c.URIs {
		if u.Scheme != grantScheme {
			continue
		}
		granted, err := ParseIdentifiers(u.RawQuery)
		if err != nil {
			return Identifiers{}, fmt.Errorf("the certificate's URI %s: %w", u, err)
		}
		id = id.Union(granted)
	}
	id.Host = append(id.Host, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		a, _ := netip.AddrFromSlice(ip) // x509 has checked the length
		if a = a.Unmap(); a.Is4() {
			id.IPv4 = append(id.IPv4, a)
		} else {
			id.IPv6 = append(id.IPv6, a)
		}
	}
	return id, nil
}

// Union returns the union of id and added.
func (id Identifiers) Union(added Identifiers) Identifiers {
	return Identifiers{
		Host: slices.Concat(id.Host, added.Host),
		IPv4: slices.Concat(id.IPv4, added.IPv4), IPv6: slices.Concat(id.IPv6, added.IPv6),
		CIDR:         slices.Concat(id.CIDR, added.CIDR),
		DefaultRoute: id.DefaultRoute || added.DefaultRoute,
	}
}

// Beyond returns the identifiers in id that grantedIDs does not cover. A CIDR in grantedIDs also
// covers the smaller ranges in this CIDR.
func (id Identifiers) Beyond(grantedIDs Identifiers) Identifiers {
	return Identifiers{
		Host: slices.DeleteFunc(slices.Clone(id.Host), func(h string) bool {
			return slices.ContainsFunc(grantedIDs.Host, func(g string) bool { return strings.EqualFold(g, h) })
		}),
		IPv4: slices.DeleteFunc(slices.Clone(id.IPv4), func(a netip.Addr) bool { return slices.Contains(grantedIDs.IPv4, a) }),
		IPv6: slices.DeleteFunc(slices.Clone(id.IPv6), func(a netip.Addr) bool { return slices.Contains(grantedIDs.IPv6, a) }),
		CIDR: slices.DeleteFunc(slices.Clone(id.CIDR), func(p netip.Prefix) bool {
			return slices.ContainsFunc(grantedIDs.CIDR, func(g netip.Prefix) bool { return g.Bits() <= p.Bits() && g.Contains(p.Addr()) })
		}),
		DefaultRoute: id.DefaultRoute && !grantedIDs.DefaultRoute,
	}
}
