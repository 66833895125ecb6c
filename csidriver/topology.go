package csidriver

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// zoneKey returns the driver's own topology key. The kubelet refuses a driver
// if the driver's value of a topology key differs from the node's label. The
// cloud controller manager sets the node's standard zone label, and this value
// can differ from the driver's value. The driver therefore does not use the
// standard key.
func zoneKey(driver string) string { return "topology." + driver + "/zone" }

func topologyOf(driver string, zones ...string) (all []*csi.Topology) {
	for _, z := range zones {
		all = append(all, &csi.Topology{Segments: map[string]string{zoneKey(driver): z}})
	}
	return all
}

func zonesIn(driver string, all ...*csi.Topology) (zones []string) {
	for _, t := range all {
		if z := t.GetSegments()[zoneKey(driver)]; z != "" && !slices.Contains(zones, z) {
			zones = append(zones, z)
		}
	}
	return zones
}

// place is a possible location of a disk: one zone, or two for a regional disk.
type place []string

// permittedZones lists the zones that a requirement allows, best first.
// Without a requirement it lists all zones.
func (c *controller) permittedZones(ctx context.Context, r *csi.TopologyRequirement) ([]string, error) {
	if len(r.GetRequisite()) == 0 && len(r.GetPreferred()) == 0 {
		known, _, err := cloudsim.All(ctx, c.cloud.ListZones, cloudsim.ListOptions{})
		var all []string
		for _, z := range known {
			all = append(all, z.Name)
		}
		return all, err
	}
	zones := zonesIn(c.cfg.Name, append(slices.Clone(r.GetPreferred()), r.GetRequisite()...)...)
	if requisite := zonesIn(c.cfg.Name, r.GetRequisite()...); len(requisite) > 0 {
		zones = slices.DeleteFunc(zones, func(z string) bool { return !slices.Contains(requisite, z) })
	}
	if len(zones) == 0 {
		return nil, status.Errorf(codes.ResourceExhausted, "accessibility_requirements: no topology has the key %s", zoneKey(c.cfg.Name))
	}
	return zones, nil
}

// possiblePlaces lists the possible places of a disk, best first.
func possiblePlaces(zones []string, regional bool) (all []place) {
	if !regional {
		for _, z := range zones {
			all = append(all, place{z})
		}
		return all
	}
	for i, a := range zones {
		for _, b := range zones[i+1:] {
			all = append(all, place{a, b})
		}
	}
	return all
}

func (p place) isIn(zones []string) bool {
	return !slices.ContainsFunc(p, func(z string) bool { return !slices.Contains(zones, z) })
}
