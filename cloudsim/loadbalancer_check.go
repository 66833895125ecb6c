package cloudsim

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Limits of a load balancer.
const (
	MaxListeners    = 50
	MaxTargets      = 5000
	MaxSourceRanges = 200
)

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateLoadBalancer) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.name("region", r.Region)
	c.labels(r.Labels)
	c.scheme("scheme", r.Scheme)
	c.staticAddresses(r.Families, r.Addresses)
	c.spec(r.LoadBalancerSpec)
	return c.err()
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r UpdateLoadBalancer) Validate() error {
	var c checks
	c.labels(r.Labels)
	c.scheme("scheme", r.Scheme)
	c.staticAddresses(r.Families, r.Addresses)
	c.spec(r.LoadBalancerSpec)
	return c.err()
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r SetTargets) Validate() error {
	var c checks
	c.targets("targets", r.Targets)
	return c.err()
}

func (c *checks) scheme(field string, s Scheme) {
	if s != "" && s != SchemeExternal && s != SchemeInternal {
		c.addf(field, "must be external or internal, got %q", Clip(string(s)))
	}
}

// ip checks that s is an IP address. It refuses an address with a zone, and an
// IPv4-mapped IPv6 address.
func (c *checks) ip(field, s string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(s)
	ok := err == nil && ip.Zone() == "" && !ip.Is4In6()
	if !ok {
		c.addf(field, "must be an IP address, got %q", Clip(s))
	}
	return ip, ok
}

// staticAddresses checks the families and the static addresses of a load
// balancer. Each address must belong to one of the families.
func (c *checks) staticAddresses(families []IPFamily, addresses []string) {
	switch {
	case len(families) > 2:
		c.addf("families", "has %d entries, at most 2 are allowed: ipv4 and ipv6", len(families))
		return
	case len(addresses) > 2:
		c.addf("addresses", "has %d entries, at most 2 are allowed: one IPv4 and one IPv6 address", len(addresses))
		return
	}
	for i, f := range families {
		at := fmt.Sprintf("families[%d]", i)
		c.family(at, f)
		if f != "" && slices.Index(families, f) < i {
			c.addf(at, "is a duplicate (%q)", Clip(string(f)))
		}
	}
	seen := map[IPFamily]int{}
	for i, a := range addresses {
		at := fmt.Sprintf("addresses[%d]", i)
		ip, ok := c.ip(at, a)
		if !ok {
			continue
		}
		f := FamilyOf(ip)
		if first, dup := seen[f]; dup {
			c.addf(at, "has the family %s, which addresses[%d] also has: at most one address for each family is allowed", f, first)
		}
		seen[f] = i
		if len(families) > 0 && !slices.Contains(families, f) {
			c.addf(at, "has the family %s, which is not in families", f)
		}
	}
}

func (c *checks) spec(s LoadBalancerSpec) {
	if len(s.Listeners) > MaxListeners {
		c.addf("listeners", "has %d entries, at most %d are allowed", len(s.Listeners), MaxListeners)
		return
	}
	c.listeners(s.Listeners)
	c.targets("targets", s.Targets)
	c.healthCheck("healthCheck", s.HealthCheck)
	for i, l := range s.Listeners {
		c.targets(fmt.Sprintf("listeners[%d].targets", i), l.Targets)
		if l.HealthCheck != nil {
			c.healthCheck(fmt.Sprintf("listeners[%d].healthCheck", i), *l.HealthCheck)
		}
	}
	c.total(s)
	c.probePorts(s)
	c.sourceRanges(s.SourceRanges)
	switch s.Affinity {
	case AffinityClientIP:
	case "", AffinityNone:
		if s.AffinityTimeoutSeconds != 0 {
			c.addf("affinityTimeoutSeconds", "needs affinity clientIP")
		}
	default:
		c.addf("affinity", "must be none or clientIP, got %q", Clip(string(s.Affinity)))
	}
	c.between("affinityTimeoutSeconds", s.AffinityTimeoutSeconds, 0, 86400)
	c.between("drainTimeoutSeconds", s.DrainTimeoutSeconds, -1, 3600)
}

// probePorts reports each health check that needs a port but has none. If s has a TCP listener,
// probePorts reports nothing, because the default port of a health check is then the target port of
// a TCP listener.
func (c *checks) probePorts(s LoadBalancerSpec) {
	if slices.ContainsFunc(s.Listeners, func(l Listener) bool { return l.Protocol != UDP }) {
		return
	}
	check := func(field string, h HealthCheck) {
		if h.Port == 0 && h.Protocol != HealthNone {
			c.addf(field, "is required if no listener has protocol tcp: a probe needs a TCP port of the target")
		}
	}
	if slices.ContainsFunc(s.Listeners, func(l Listener) bool { return l.HealthCheck == nil }) {
		check("healthCheck.port", s.HealthCheck)
	}
	for i, l := range s.Listeners {
		if l.HealthCheck != nil {
			check(fmt.Sprintf("listeners[%d].healthCheck.port", i), *l.HealthCheck)
		}
	}
}

func (c *checks) listeners(ls []Listener) {
	seen := map[string]int{}
	for i, l := range ls {
		at := fmt.Sprintf("listeners[%d].", i)
		if l.Protocol != TCP && l.Protocol != UDP {
			c.addf(at+"protocol", "must be tcp or udp, got %q", Clip(string(l.Protocol)))
		}
		c.between(at+"port", l.Port, 1, 65535)
		c.between(at+"targetPort", l.TargetPort, 1, 65535)
		c.between(at+"idleTimeoutSeconds", l.IdleTimeoutSeconds, 0, 86400)
		c.between(at+"maxConnections", l.MaxConnections, 0, 1_000_000)
		switch l.Mode {
		case "", ModeVIP, ModeProxy:
		default:
			c.addf(at+"mode", "must be vip or proxy, got %q", Clip(string(l.Mode)))
		}
		switch l.ProxyProtocol {
		case "":
		case ProxyV1, ProxyV2:
			if l.Protocol == UDP {
				c.addf(at+"proxyProtocol", "is for tcp only")
			}
			if l.Mode == ModeVIP {
				c.addf(at+"mode", "must be proxy if proxyProtocol is set: direct connections to a target have no PROXY protocol header")
			}
		default:
			c.addf(at+"proxyProtocol", "must be v1 or v2, got %q", Clip(string(l.ProxyProtocol)))
		}
		if first, dup := seen[l.Key()]; dup {
			c.addf(at+"port", "is a duplicate: listeners[%d] also has %s/%d", first, Clip(string(l.Protocol)), l.Port)
		} else {
			seen[l.Key()] = i
		}
	}
}

func (c *checks) targets(field string, ts []Target) {
	if len(ts) > MaxTargets {
		c.addf(field, "has %d entries, at most %d are allowed", len(ts), MaxTargets)
		return
	}
	seen := make(map[TargetKey]int, len(ts))
	for i, t := range ts {
		first, dup := seen[t.Key()]
		if !dup && t.Instance != "" && 0 <= t.Weight && t.Weight <= 256 && t.IP == "" {
			seen[t.Key()] = i
			continue // fast path for a valid target, because a request may have thousands of targets
		}
		at := fmt.Sprintf("%s[%d].", field, i)
		if dup {
			c.addf(at+"instance", "is a duplicate: %s[%d] is also %q", field, first, Clip(t.Key().String()))
		} else {
			seen[t.Key()] = i
		}
		c.targetIP(at+"ip", t.IP)
		if t.Instance == "" {
			c.addf(at+"instance", "is required")
		}
		c.between(at+"weight", t.Weight, 0, 256)
	}
}

// targetIP checks that an address has its canonical text form, because other code compares
// addresses as text.
func (c *checks) targetIP(field, s string) {
	if s == "" {
		return
	}
	if ip, ok := c.ip(field, s); ok && ip.String() != s {
		c.addf(field, "must be written %s, got %q", ip, Clip(s))
	}
}

func (c *checks) healthCheck(field string, h HealthCheck) {
	switch h.Protocol {
	case HealthTCP, HealthNone:
		if h.ExpectedCodes != "" {
			c.addf(field+".expectedCodes", "needs protocol http or https")
		}
	case HealthHTTP, HealthHTTPS:
	default:
		c.addf(field+".protocol", "must be tcp, http, https or none, got %q", Clip(string(h.Protocol)))
	}
	c.between(field+".port", h.Port, 0, 65535)
	c.between(field+".intervalMillis", h.IntervalMillis, 0, 300_000)
	c.between(field+".timeoutMillis", h.TimeoutMillis, 0, 60_000)
	c.between(field+".healthyThreshold", h.HealthyThreshold, 0, 10)
	c.between(field+".unhealthyThreshold", h.UnhealthyThreshold, 0, 10)
	if _, err := url.ParseRequestURI(h.Path); h.Path != "" && (err != nil || len(h.Path) > 1024 || !strings.HasPrefix(h.Path, "/")) {
		c.addf(field+".path", "must be the path of a URL, begin with / and be at most 1024 bytes, got %q", Clip(h.Path))
	}
	if _, ok := parseCodes(h.ExpectedCodes); h.ExpectedCodes != "" && !ok {
		c.addf(field+".expectedCodes", "must be HTTP statuses from 100 to 599 or ranges of statuses, separated by commas, e.g. 200-299,401; got %q", Clip(h.ExpectedCodes))
	}
}

// parseCodes parses a list such as "200-299,401" into ranges. It returns false
// if s has another format.
func parseCodes(s string) (codes [][2]int, ok bool) {
	if len(s) > 128 {
		return nil, false
	}
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		a, err1 := strconv.Atoi(low)
		b, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || a < 100 || b > 599 || a > b {
			return nil, false
		}
		codes = append(codes, [2]int{a, b})
	}
	return codes, true
}

// total checks the number of targets in all pools of a load balancer. If several pools use
// s.Targets, total counts these targets once for each of these pools, because the data plane probes
// the targets of each pool. If no pool uses s.Targets, total still counts these targets once.
func (c *checks) total(s LoadBalancerSpec) {
	n := len(s.Targets)
	isUsed := slices.ContainsFunc(s.Listeners, func(l Listener) bool { return l.Pool() == "" })
	for i, l := range s.Listeners {
		switch {
		case l.Pool() == "":
			continue
		case l.Targets != nil:
			n += len(l.Targets)
		case isUsed:
			n += len(s.Targets)
		}
		isUsed = isUsed || l.Targets == nil
		if n > MaxTargets && max(len(l.Targets), len(s.Targets)) <= MaxTargets { // otherwise c.targets reports that a single list is too long
			c.addf(fmt.Sprintf("listeners[%d].targets", i), "brings the load balancer to %d targets, but at most %d are allowed; the targets of each listener with its own targets or health check count separately", n, MaxTargets)
			return
		}
	}
}

// CheckTotal counts the targets in all pools of a load balancer. If the number exceeds MaxTargets,
// it returns an error of kind Invalid.
func (s LoadBalancerSpec) CheckTotal() error {
	var c checks
	c.total(s)
	return c.err()
}

func (c *checks) sourceRanges(ranges []string) {
	if len(ranges) > MaxSourceRanges {
		c.addf("sourceRanges", "has %d entries, at most %d are allowed", len(ranges), MaxSourceRanges)
		return
	}
	for i, r := range ranges {
		if p, err := netip.ParsePrefix(r); err != nil || p.Addr().Is4In6() {
			c.addf(fmt.Sprintf("sourceRanges[%d]", i), "must be a range such as 10.0.0.0/8 or 2001:db8::/32, got %q", Clip(r))
		}
	}
}

func (c *checks) between(field string, n, low, high int) {
	if n < low || n > high {
		c.addf(field, "must be between %d and %d, got %d", low, high, n)
	}
}
