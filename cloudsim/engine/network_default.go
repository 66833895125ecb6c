package engine

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// The cloud creates each project with a default network. All default networks have the configured
// ranges. Each default network has one subnet, which has the same ranges and serves all zones. The
// addresses of all instances belong to the machine on which the cloud runs. Two instances must not
// have the same address, so all default networks share one pool of addresses.

// validRanges returns an error if the configured ranges of default networks are
// invalid.
func (c Config) validRanges() error {
	r := cloudsim.CreateNetwork{Name: cloudsim.DefaultNetwork, IPv4: rangeText(c.Instances), IPv6: rangeText(c.Instances6), NetworkSpec: cloudsim.NetworkSpec{PodRanges: c.Pods}}
	if err := r.Validate(); err != nil {
		return fmt.Errorf("ranges of the default networks: %w", err)
	}
	return nil
}

// rangeText returns the text of range p without host bits, or "" if p is not valid.
func rangeText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.Masked().String()
}

func (e *Engine) makeDefaultNetwork(tx *store.Tx, project cloudsim.ProjectID) error {
	id, err := networks.NextID(tx)
	if err != nil {
		return err
	}
	n := cloudsim.Network{
		ID: cloudsim.NetworkID(id), Meta: cloudsim.Meta{Name: cloudsim.DefaultNetwork, Project: project},
		NetworkSpec: wholeNetworkSpec(cloudsim.NetworkSpec{PodRanges: e.cfg.Pods}),
		IPv4:        rangeText(e.cfg.Instances), IPv6: rangeText(e.cfg.Instances6), Default: true, State: cloudsim.NetworkAvailable,
	}
	if err := networks.Put(tx, &n); err != nil {
		return err
	}
	if id, err = subnets.NextID(tx); err != nil {
		return err
	}
	s := cloudsim.Subnet{ID: cloudsim.SubnetID(id), Meta: cloudsim.Meta{Name: cloudsim.DefaultNetwork, Project: project}, Network: n.ID, State: cloudsim.SubnetAvailable}
	return putRanges(tx, &s, n)
}

func putRanges(tx *store.Tx, s *cloudsim.Subnet, n cloudsim.Network) error {
	s.IPv4, s.IPv6 = n.IPv4, n.IPv6
	setGateways(s)
	return subnets.Put(tx, s)
}

// keepDefaultNetworks sets the ranges of each project's default network to the configured ranges.
// It returns an error if instances use addresses of a range that changes.
func (e *Engine) keepDefaultNetworks(tx *store.Tx) error {
	for p, err := range projects.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		n, err := networks.Named(tx, p.ID, cloudsim.DefaultNetwork)
		switch {
		case errors.Is(err, cloudsim.NotFound): // a reset deletes the network and keeps the project
			err = e.makeDefaultNetwork(tx, p.ID)
		case err == nil:
			err = e.moveDefaultNetwork(tx, n)
		}
		if err != nil {
			return fmt.Errorf("the default network of project %s: %w", p.Name, err)
		}
	}
	return e.stillApart(tx)
}

// stillApart returns an error if the ranges of a network overlap each other, or overlap a range
// that the configuration reserves for load balancers or default networks. If checkRanges refuses
// the ranges of a network that is not a default network, stillApart only logs a warning.
func (e *Engine) stillApart(tx *store.Tx) error {
	for n, err := range networks.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		err = cloudsim.UpdateNetwork{NetworkSpec: n.NetworkSpec}.CheckNetwork(n)
		if err == nil {
			err = e.checkReserved(n)
		}
		if err != nil {
			return fmt.Errorf("network %s (%s) does not fit the configured ranges: %w", n.ID, n.Name, err)
		}
		if n.Default {
			continue
		}
		if err := e.checkRanges(newRanges(n, cloudsim.Network{})); err != nil {
			e.log.Warn("existing network has ranges that a new network cannot have", "network", n.ID, "name", n.Name, "project", n.Project, "err", err)
		}
	}
	return nil
}

// moveDefaultNetwork sets the ranges of default network n to the configured ranges. If the
// configuration has no pod ranges, n keeps the pod ranges that UpdateNetwork has set.
// moveDefaultNetwork returns an error if instances use a range that changes.
func (e *Engine) moveDefaultNetwork(tx *store.Tx, n cloudsim.Network) error {
	before := n
	n.IPv4, n.IPv6 = rangeText(e.cfg.Instances), rangeText(e.cfg.Instances6)
	if e.cfg.Pods != (cloudsim.PodRanges{}) {
		n.PodRanges = e.cfg.Pods.WithDefaults()
	}
	s, err := subnets.Named(tx, n.Project, cloudsim.DefaultNetwork)
	if err != nil {
		return err
	}
	stands := instances.Count(tx, bySubnet, string(s.ID), 1) > 0
	switch {
	case stands && n.IPv4 != before.IPv4:
		return rangeInUse("instances", before.IPv4, n.IPv4)
	case stands && before.IPv6 != "" && n.IPv6 != before.IPv6:
		return rangeInUse("instances", before.IPv6, n.IPv6)
	}
	if n.PodRanges != before.PodRanges {
		if err := podRangesFree(tx, n); err != nil {
			return err
		}
	}
	if n.IPv4 == before.IPv4 && n.IPv6 == before.IPv6 && n.PodRanges == before.PodRanges {
		return nil
	}
	if err := networks.Put(tx, &n); err != nil {
		return err
	}
	return putRanges(tx, &s, n)
}

// dropDefaultNetwork removes the default network of a project and the subnets
// of this network. It also ends the operations of the network and of the
// subnets. It returns Conflict if the project has another network, or if a
// route uses the default network.
func (e *Engine) dropDefaultNetwork(tx *store.Tx, project cloudsim.ProjectID) error {
	var own []cloudsim.Network
	for n, err := range networks.Scan(tx, project, "") {
		if err != nil {
			return err
		}
		if !n.Default {
			return cloudsim.Errorf(cloudsim.Conflict, "the project still owns network %s (%s): delete the network first", n.ID, n.Name)
		}
		own = append(own, n)
	}
	for _, n := range own {
		if err := checkUnused(tx, cloudsim.KindNetwork, string(n.ID), routes, byNetwork); err != nil {
			return err
		}
		in, err := subnets.Lookup(tx, byNetwork, string(n.ID))
		if err != nil {
			return err
		}
		for _, s := range in {
			if err := errors.Join(e.supersede(tx, s.Operation, cloudsim.Delete), subnets.Delete(tx, &s)); err != nil {
				return err
			}
		}
		if err := errors.Join(e.supersede(tx, n.Operation, cloudsim.Delete), networks.Delete(tx, &n)); err != nil {
			return err
		}
	}
	return nil
}
