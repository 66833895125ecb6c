package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

var networks = store.Table[cloudsim.Network]{
	Kind: cloudsim.KindNetwork, Prefix: "net",
	ID:   func(n *cloudsim.Network) string { return string(n.ID) },
	Meta: func(n *cloudsim.Network) *cloudsim.Meta { return &n.Meta },
	Uses: store.One[cloudsim.Network](cloudsim.QuotaNetworks),
}

const byNetwork = "network"

// CreateNetwork begins to create a network. If a network with the same name exists and matches the
// request, CreateNetwork returns the existing network. It returns an error in these cases:
//   - Exists: a network with the same name exists and differs from the request.
//   - Conflict: a network with the same name is in state deleting.
//   - Conflict: a range of the new network overlaps a range of another network or of load
//     balancers, or the destination of a route in another network.
//   - Conflict: a range of the new network overlaps a range to which the cloud's machine has a
//     route.
//   - Invalid: a range of the new network is outside Config.NetworkRanges and Config.Pods.
func (e *Engine) CreateNetwork(ctx context.Context, req cloudsim.CreateNetwork) (n cloudsim.Network, err error) {
	if err := req.Validate(); err != nil {
		return n, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		n, err = idempotent(tx, call, networks, req, func() (cloudsim.Network, error) { return e.networkByName(tx, call, req) })
		return err
	})
	return n, err
}

// networkByName returns the existing network with the requested name, or an error if that network
// does not match the request. If no network has this name, networkByName creates one.
func (e *Engine) networkByName(tx *store.Tx, call Call, req cloudsim.CreateNetwork) (n cloudsim.Network, err error) {
	project, err := e.projectOf(tx, call)
	if err != nil {
		return n, err
	}
	spec := wholeNetworkSpec(req.NetworkSpec)
	have, err := networks.Named(tx, project, req.Name)
	switch {
	case errors.Is(err, cloudsim.NotFound):
	case err != nil:
		return n, err
	case have.State == cloudsim.NetworkDeleting:
		return n, cloudsim.Errorf(cloudsim.Conflict, "the earlier network %q (%s) is still being deleted: try again when it is deleted", req.Name, have.ID)
	case have.IPv4 != req.IPv4 || have.IPv6 != req.IPv6:
		return n, errNameTaken(cloudsim.KindNetwork, req.Name, string(have.ID), "other ranges")
	case have.NetworkSpec != spec:
		return n, errNameTaken(cloudsim.KindNetwork, req.Name, string(have.ID), "other pod ranges or another maximum number of routes")
	case !sameLabels(have.Labels, req.Labels):
		return n, errNameTaken(cloudsim.KindNetwork, req.Name, string(have.ID), "other labels")
	default:
		return have, nil
	}
	n = cloudsim.Network{
		Meta: cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels}, NetworkSpec: spec,
		IPv4: req.IPv4, IPv6: req.IPv6, State: cloudsim.NetworkCreating,
	}
	if err := e.checkOverlap(tx, n); err != nil {
		return n, err
	}
	if err := checkNoRoute(tx, n, cloudsim.Network{}); err != nil {
		return n, err
	}
	if err := e.checkRanges(newRanges(n, cloudsim.Network{})); err != nil {
		return n, err
	}
	if err := e.checkAddressQuota(tx, n, cloudsim.Network{}); err != nil {
		return n, err
	}
	if err := e.checkQuota(tx, project, store.Use{Name: cloudsim.QuotaNetworks, N: 1}); err != nil {
		return n, err
	}
	id, err := networks.NextID(tx)
	if err != nil {
		return n, err
	}
	n.ID = cloudsim.NetworkID(id)
	return n, e.workOnNetwork(tx, call, &n, cloudsim.Create)
}

// wholeNetworkSpec returns s with default values for all empty fields.
func wholeNetworkSpec(s cloudsim.NetworkSpec) cloudsim.NetworkSpec {
	s.PodRanges = s.PodRanges.WithDefaults()
	if s.MaxRoutes == 0 {
		s.MaxRoutes = cloudsim.DefaultMaxRoutes
	}
	return s
}

// checkOverlap returns Conflict if a range of n overlaps a range of another network or of load
// balancers. All networks and load balancers have their addresses on the same machine, so their
// ranges must not overlap. There is one exception: default networks may have identical ranges.
func (e *Engine) checkOverlap(tx *store.Tx, n cloudsim.Network) error {
	if err := e.checkReserved(n); err != nil {
		return err
	}
	mine := allRanges(n)
	for other, err := range networks.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		a, b, ok := clash(mine, allRanges(other), n.Default && other.Default)
		switch {
		case !ok || other.ID == n.ID:
		case other.Project != n.Project:
			return cloudsim.Errorf(cloudsim.Conflict, "%s overlaps %s of a network of another project: choose another range, because all networks of a cloud share one machine", a, b)
		default:
			return cloudsim.Errorf(cloudsim.Conflict, "%s overlaps %s of network %s (%s): choose another range, because all networks of a cloud share one machine", a, b, other.ID, other.Name)
		}
	}
	return nil
}

// checkReserved returns Conflict if n overlaps a range that the cloud reserves for
// load balancers or default networks.
func (e *Engine) checkReserved(n cloudsim.Network) error {
	if a, b, ok := clash(allRanges(n), wholeRanges(e.cfg.LoadBalancers, e.cfg.LoadBalancers6, e.cfg.InternalLoadBalancers, e.cfg.InternalLoadBalancers6), false); ok {
		return cloudsim.Errorf(cloudsim.Conflict, "%s overlaps %s, the address range of load balancers: choose another range", a, b)
	}
	if n.Default {
		return nil
	}
	if a, b, ok := clash(allRanges(n), append(wholeRanges(e.cfg.Instances, e.cfg.Instances6), e.cfg.Pods.Families()...), false); ok {
		return cloudsim.Errorf(cloudsim.Conflict, "%s overlaps %s, the range of the projects' default networks: choose another range", a, b)
	}
	return nil
}

// allRanges returns the address ranges and the pod ranges of network n. An instance gets a part of
// a range. The field Bits is the prefix length of this part.
func allRanges(n cloudsim.Network) []cloudsim.PodRange {
	return append(wholeRanges(n.Ranges()...), n.PodRanges.Families()...)
}

// wholeRanges converts address ranges to PodRange values. An instance gets one address from an
// address range, so Bits is the full length of an address.
func wholeRanges(all ...netip.Prefix) []cloudsim.PodRange {
	var out []cloudsim.PodRange
	for _, p := range all {
		if p.IsValid() {
			out = append(out, cloudsim.PodRange{In: p.Masked(), Bits: p.Addr().BitLen()})
		}
	}
	return out
}

// clash finds a range in the first list that overlaps a range in the second list. It returns the
// two ranges and true, or false if no ranges overlap. If allowEqual is true, two identical ranges
// do not count as an overlap.
func clash(mine, others []cloudsim.PodRange, allowEqual bool) (a, b netip.Prefix, ok bool) {
	for _, m := range mine {
		for _, t := range others {
			if m.In.Overlaps(t.In) && (!allowEqual || m != t) {
				return m.In, t.In, true
			}
		}
	}
	return a, b, false
}

func (e *Engine) workOnNetwork(tx *store.Tx, call Call, n *cloudsim.Network, verb cloudsim.Verb) error {
	return beginWork(e, tx, call, networks, n, verb, e.cfg.Profile.Network, e.settledNetwork)
}

func (e *Engine) settledNetwork(tx *store.Tx, n *cloudsim.Network) error {
	if err := n.Move(cloudsim.Settle); err != nil {
		return err
	}
	if err := e.endOperation(tx, n.Operation, cloudsim.Settle, nil); err != nil {
		return err
	}
	if n.State == cloudsim.NetworkDeleted {
		return networks.Delete(tx, n)
	}
	return networks.Put(tx, n)
}

// GetNetwork returns a network, or NotFound after the network is deleted.
func (e *Engine) GetNetwork(ctx context.Context, id cloudsim.NetworkID) (cloudsim.Network, error) {
	return read(ctx, e.core, networks, string(id))
}

// ListNetworks returns one page of networks.
func (e *Engine) ListNetworks(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Network], error) {
	return listPage(ctx, e.core, networks, o, nil)
}

// UpdateNetwork replaces the labels and the spec of a network. It returns Stale if rev is neither 0
// nor the network's revision. It returns Conflict if the request changes pod ranges that instances
// use. If the configuration sets the pod ranges of default networks, UpdateNetwork returns Invalid
// for a request that changes the pod ranges of a default network. UpdateNetwork checks new
// pod ranges in the same way as CreateNetwork. A request that changes nothing begins no work.
func (e *Engine) UpdateNetwork(ctx context.Context, id cloudsim.NetworkID, req cloudsim.UpdateNetwork, rev uint64) (n cloudsim.Network, err error) {
	if err := req.Validate(); err != nil {
		return n, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if n, err = get(tx, call, networks, string(id)); err != nil {
			return err
		}
		if rev != 0 && rev != n.Revision {
			return cloudsim.Errorf(cloudsim.Stale, "network %s is at revision %d, not %d: read it again and repeat the change", id, n.Revision, rev)
		}
		if err := req.CheckNetwork(n); err != nil {
			return err
		}
		spec := wholeNetworkSpec(req.NetworkSpec)
		if sameLabels(n.Labels, req.Labels) && n.NetworkSpec == spec && n.State != cloudsim.NetworkDeleting {
			return nil
		}
		if n.PodRanges != spec.PodRanges {
			if n.Default && e.cfg.Pods != (cloudsim.PodRanges{}) {
				return cloudsim.InvalidField("podRanges", fmt.Sprintf("cannot change for the default network %s, because --pod-range of 'allinone cloudsim' sets them: change this flag, or create another network", id))
			}
			if err := podRangesFree(tx, n); err != nil {
				return err
			}
		}
		before := n
		n.Labels, n.NetworkSpec = req.Labels, spec
		if err := e.checkOverlap(tx, n); err != nil {
			return err
		}
		if err := checkNoRoute(tx, n, before); err != nil {
			return err
		}
		if err := e.checkRanges(newRanges(n, before)); err != nil {
			return err
		}
		if err := e.checkAddressQuota(tx, n, before); err != nil {
			return err
		}
		if err := n.Move(cloudsim.Update); err != nil {
			return err
		}
		return e.workOnNetwork(tx, call, &n, cloudsim.Update)
	})
	return n, err
}

// podRangesFree returns Conflict if an instance has a pod range of n.
func podRangesFree(tx *store.Tx, n cloudsim.Network) error {
	in, err := subnets.Lookup(tx, byNetwork, string(n.ID))
	if err != nil {
		return err
	}
	for _, s := range in {
		members, err := instances.Lookup(tx, bySubnet, string(s.ID))
		if err != nil {
			return err
		}
		for _, i := range members {
			if i.Network == n.ID && len(i.PodRanges) > 0 {
				return cloudsim.Errorf(cloudsim.Conflict, "cannot change the pod ranges of network %s: instance %s (%s) has the pod range %s: delete such instances first", n.ID, i.ID, i.Name, i.PodRanges[0])
			}
		}
	}
	return nil
}

// DeleteNetwork begins to delete a network and returns the network. It does not
// change a network that is already in state deleting. DeleteNetwork returns
// Conflict if the network is a default network, or if it has subnets or routes.
func (e *Engine) DeleteNetwork(ctx context.Context, id cloudsim.NetworkID) (n cloudsim.Network, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if n, err = get(tx, call, networks, string(id)); err != nil || n.State == cloudsim.NetworkDeleting {
			return err
		}
		if n.Default {
			return cloudsim.Errorf(cloudsim.Conflict, "network %s (%s) is the default network of its project: delete the project instead", n.ID, n.Name)
		}
		if err := checkUnused(tx, cloudsim.KindNetwork, string(id), subnets, byNetwork); err != nil {
			return err
		}
		if err := checkUnused(tx, cloudsim.KindNetwork, string(id), routes, byNetwork); err != nil {
			return err
		}
		if err := n.Move(cloudsim.Delete); err != nil {
			return err
		}
		return e.workOnNetwork(tx, call, &n, cloudsim.Delete)
	})
	return n, err
}

// checkUnused returns Conflict if a resource in the given table refers to the resource with the
// given kind and id. checkUnused looks up the references in the given index of this table. The
// error names the first resource that contains a reference.
func checkUnused[T any](tx *store.Tx, kind cloudsim.ResourceKind, id string, users store.Table[T], index string) error {
	for first, err := range users.Find(tx, index, id, "") {
		if err != nil {
			return err
		}
		rest := ": delete the " + string(users.Kind) + " first"
		if i, ok := any(first).(cloudsim.Instance); ok && string(i.Subnet) != id { // the subnet is in an additional network of the instance
			rest = ": detach the instance from the network of the subnet first"
		}
		if n := users.Count(tx, index, id, 1000); n > 1 {
			rest = fmt.Sprintf(" and %d more%s; do the same for the others", n-1, rest)
		}
		return cloudsim.Errorf(cloudsim.Conflict, "%s %s is used by %s %s (%s)%s",
			kind, id, users.Kind, users.ID(&first), users.Meta(&first).Name, rest)
	}
	return nil
}
