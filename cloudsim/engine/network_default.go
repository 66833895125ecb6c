package engine

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Every project is made with a network, and every network of that sort has the
// range of the cloud's configuration, with one subnet that is all of it and
// serves all zones. Instances are real addresses of one machine, so these
// networks share a pool: no two instances have the same address.

// validRanges checks what the configuration says of addresses.
func (c Config) validRanges() error {
	r := cloudsim.CreateNetwork{Name: cloudsim.DefaultNetwork, IPv4: text(c.Instances), IPv6: text(c.Instances6), NetworkSpec: cloudsim.NetworkSpec{PodRanges: c.Pods}}
	if err := r.Validate(); err != nil {
		return fmt.Errorf("ranges of the default networks: %w", err)
	}
	return nil
}

// text is a range as resources say it; "" for none.
func text(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.Masked().String()
}

// makeDefaultNetwork gives a new project its network and the subnet in it.
func (e *Engine) makeDefaultNetwork(tx *store.Tx, project cloudsim.ProjectID) error {
	id, err := networks.NextID(tx)
	if err != nil {
		return err
	}
	n := cloudsim.Network{
		ID: cloudsim.NetworkID(id), Meta: cloudsim.Meta{Name: cloudsim.DefaultNetwork, Project: project},
		NetworkSpec: wholeNetworkSpec(cloudsim.NetworkSpec{PodRanges: e.cfg.Pods}),
		IPv4:        text(e.cfg.Instances), IPv6: text(e.cfg.Instances6), Default: true, State: cloudsim.NetworkAvailable,
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

// putRanges makes s all of n.
func putRanges(tx *store.Tx, s *cloudsim.Subnet, n cloudsim.Network) error {
	s.IPv4, s.IPv6 = n.IPv4, n.IPv6
	setGateways(s)
	return subnets.Put(tx, s)
}

// keepDefaultNetworks brings the default network of every project to the
// configured ranges. It refuses to move a range whose addresses are in use.
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

// stillApart checks what calls have made against what the configuration has
// now.
func (e *Engine) stillApart(tx *store.Tx) error {
	for n, err := range networks.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		err = cloudsim.UpdateNetwork{NetworkSpec: n.NetworkSpec}.Of(n)
		if err == nil {
			err = e.keepsClear(n)
		}
		if err != nil {
			return fmt.Errorf("network %s (%s) and the configured ranges: %w", n.ID, n.Name, err)
		}
		if n.Default {
			continue
		}
		if err := e.permitted(newRanges(n, cloudsim.Network{})); err != nil {
			e.log.Warn("a network stays that could not be created now", "network", n.ID, "name", n.Name, "project", n.Project, "err", err)
		}
	}
	return nil
}

// moveDefaultNetwork brings n to where the configuration has it. Pod ranges
// that were set by a call stay unless the configuration has some.
func (e *Engine) moveDefaultNetwork(tx *store.Tx, n cloudsim.Network) error {
	before := n
	n.IPv4, n.IPv6 = text(e.cfg.Instances), text(e.cfg.Instances6)
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

// dropDefaultNetwork removes what a project was made with, and ends what is done
// to it; Conflict while it has a network or a subnet of its own besides.
func (e *Engine) dropDefaultNetwork(tx *store.Tx, project cloudsim.ProjectID) error {
	var own []cloudsim.Network
	for n, err := range networks.Scan(tx, project, "") {
		if err != nil {
			return err
		}
		if !n.Default {
			return cloudsim.Errorf(cloudsim.Conflict, "the project still owns network %s (%s): delete it first", n.ID, n.Name)
		}
		own = append(own, n)
	}
	for _, n := range own {
		if err := unused(tx, cloudsim.KindNetwork, string(n.ID), routes, byNetwork); err != nil {
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
