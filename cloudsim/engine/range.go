package engine

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// wantedRange is an address range in a request, and the name of the field that contains the range.
type wantedRange struct {
	field string
	netip.Prefix
}

// newRanges returns the ranges that a change adds to a network. The change replaces oldNetwork with
// newNetwork. For a new network, oldNetwork is the zero value.
func newRanges(newNetwork, oldNetwork cloudsim.Network) []wantedRange {
	var all []wantedRange
	for _, r := range []struct{ field, is, was string }{
		{"ipv4", newNetwork.IPv4, oldNetwork.IPv4}, {"ipv6", newNetwork.IPv6, oldNetwork.IPv6},
		{"podRanges.ipv4", newNetwork.PodRanges.IPv4, oldNetwork.PodRanges.IPv4}, {"podRanges.ipv6", newNetwork.PodRanges.IPv6, oldNetwork.PodRanges.IPv6},
	} {
		if p, err := netip.ParsePrefix(r.is); err == nil && r.is != r.was {
			all = append(all, wantedRange{r.field, p})
		}
	}
	return all
}

// checkRanges checks that projects may use all wanted ranges. A range inside the configured pod
// ranges is always valid. For another range, checkRanges returns Invalid if the range is not inside
// e.cfg.NetworkRanges, and Conflict if the range overlaps a route of the cloud's machine.
func (e *Engine) checkRanges(wanted []wantedRange) error {
	if len(wanted) == 0 {
		return nil
	}
	var host []netip.Prefix
	if e.cfg.HostRoutes != nil {
		var err error
		if host, err = e.cfg.HostRoutes(); err != nil {
			return fmt.Errorf("cannot check the ranges of the request, because the cloud cannot read the routes of its machine: %w", err)
		}
	}
	for _, w := range wanted {
		within := func(p netip.Prefix) bool { return cloudsim.Inside(w.Prefix, p) }
		switch {
		case slices.ContainsFunc(e.cfg.Pods.Families(), func(r cloudsim.PodRange) bool { return within(r.In) }):
			continue
		case !slices.ContainsFunc(e.cfg.NetworkRanges, within):
			return cloudsim.InvalidField(w.field, fmt.Sprintf("must be inside one of the ranges that projects may use, %v; got %s. The operator can allow other ranges: 'allinone cloudsim --network-ranges'", e.cfg.NetworkRanges, w.Prefix))
		}
		if i := slices.IndexFunc(host, w.Overlaps); i >= 0 {
			return cloudsim.Errorf(cloudsim.Conflict, "%s %s overlaps %s, to which the cloud's machine has a route: choose another range inside %v. The operator can allow this range: 'allinone cloudsim --network-ranges'", w.field, w.Prefix, host[i], e.cfg.NetworkRanges)
		}
	}
	return nil
}

// addressesOf returns the number of IPv4 addresses of network n that count
// against the quota of the network's project. The configured ranges of default
// networks do not count.
func (e *Engine) addressesOf(n cloudsim.Network) (sum int64) {
	count := func(s string) {
		if p, err := netip.ParsePrefix(s); err == nil {
			sum += int64(1) << (p.Addr().BitLen() - p.Bits())
		}
	}
	if !n.Default {
		count(n.IPv4)
	}
	if !n.Default || n.PodRanges != e.cfg.Pods.WithDefaults() {
		count(n.PodRanges.IPv4)
	}
	return sum
}

// networkAddresses returns the project's use of QuotaNetworkAddresses. It reads
// all networks of the project.
func (e *Engine) networkAddresses(tx *store.Tx, project cloudsim.ProjectID) (sum int64, err error) {
	for n, err := range networks.Scan(tx, project, "") {
		if err != nil {
			return 0, err
		}
		sum += e.addressesOf(n)
	}
	return sum, nil
}

// checkAddressQuota returns Exhausted if a change would give the networks of a project more
// addresses than the quota of the project permits. The change replaces oldNetwork with newNetwork.
// For a new network, oldNetwork is the zero value.
func (e *Engine) checkAddressQuota(tx *store.Tx, newNetwork, oldNetwork cloudsim.Network) error {
	more := e.addressesOf(newNetwork) - e.addressesOf(oldNetwork)
	if more <= 0 {
		return nil
	}
	used, err := e.networkAddresses(tx, newNetwork.Project)
	if err != nil {
		return err
	}
	limit, err := e.quotaLimit(tx, newNetwork.Project, cloudsim.QuotaNetworkAddresses)
	if err == nil && used+more > limit {
		return overQuota(newNetwork.Project, cloudsim.QuotaNetworkAddresses, used, more, limit)
	}
	return err
}

// checkRoute returns Conflict if a new route in network n would redirect traffic of load balancers
// or of other networks. In a default network, it also returns Conflict for a route that would
// redirect traffic of the pods of other instances. The parameter hop is the next hop of the route,
// and dest is the destination of the route.
func (e *Engine) checkRoute(tx *store.Tx, n cloudsim.Network, hop cloudsim.Instance, dest netip.Prefix) error {
	if _, b, ok := clash(wholeRanges(dest), wholeRanges(e.cfg.LoadBalancerRanges()...), false); ok {
		return cloudsim.Errorf(cloudsim.Conflict, "destination %s overlaps %s, the address range of load balancers: use another destination", dest, b)
	}
	if err := e.routableToPods(n, hop, dest); err != nil {
		return err
	}
	own := allRanges(n)
	for other, err := range networks.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		otherRanges := slices.DeleteFunc(allRanges(other), func(r cloudsim.PodRange) bool { return slices.Contains(own, r) })
		if _, b, ok := clash(wholeRanges(dest), otherRanges, false); ok {
			return cloudsim.Errorf(cloudsim.Conflict, "destination %s overlaps %s of another network: use a destination outside all networks, or a pod range of the route's own network", dest, b)
		}
	}
	return nil
}

// checkNoRoute checks the ranges that a change adds to a network. It returns Conflict if a range
// overlaps the destination of another network's route, because the route would redirect traffic of
// this range. The change replaces oldNetwork with newNetwork. For a new network, oldNetwork is the
// zero value. checkRoute makes the same check for a new route.
func checkNoRoute(tx *store.Tx, newNetwork, oldNetwork cloudsim.Network) error {
	wanted := newRanges(newNetwork, oldNetwork)
	if len(wanted) == 0 {
		return nil
	}
	for r, err := range routes.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		dest, err := netip.ParsePrefix(r.Destination)
		if err != nil || r.Network == newNetwork.ID {
			continue
		}
		overlapping := slices.DeleteFunc(slices.Clone(wanted), func(w wantedRange) bool { return !w.Overlaps(dest) })
		if len(overlapping) == 0 {
			continue
		}
		owner, err := networks.Get(tx, string(r.Network))
		if err != nil {
			return err
		}
		i := slices.IndexFunc(overlapping, func(w wantedRange) bool { // default networks can have the same ranges
			return !slices.ContainsFunc(allRanges(owner), func(o cloudsim.PodRange) bool { return o.In == w.Masked() })
		})
		if i < 0 {
			continue
		}
		route := "a route of another project"
		if r.Project == newNetwork.Project {
			route = "route " + string(r.ID) + " (" + r.Name + ")"
		}
		return cloudsim.Errorf(cloudsim.Conflict, "%s %s overlaps %s, the destination of %s: choose another range", overlapping[i].field, overlapping[i].Prefix, dest, route)
	}
	return nil
}

// routableToPods checks dest, the destination of a new route in network n. If dest overlaps a pod
// range of n, dest must be inside a pod range of the next hop. Otherwise routableToPods returns
// Conflict. It checks only routes of default networks with the configured pod ranges, because these
// networks share their pod ranges.
func (e *Engine) routableToPods(n cloudsim.Network, hop cloudsim.Instance, dest netip.Prefix) error {
	if !n.Default || n.PodRanges != e.cfg.Pods.WithDefaults() {
		return nil
	}
	for _, s := range hop.PodRanges {
		if p, err := netip.ParsePrefix(s); err == nil && cloudsim.Inside(dest, p) {
			return nil
		}
	}
	if _, b, ok := clash(wholeRanges(dest), n.PodRanges.Families(), false); ok {
		return cloudsim.Errorf(cloudsim.Conflict, "destination %s overlaps %s, from which all default networks get pod ranges: use a destination outside this range, or inside one of the pod ranges %v of the next hop %s", dest, b, hop.PodRanges, hop.ID)
	}
	return nil
}
