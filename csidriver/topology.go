package csidriver

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// zoneKey is the driver's own topology key: the kubelet refuses a driver that
// says of a key what the node's label, the cloud controller manager's, does not.
func zoneKey(driver string) string { return "topology." + driver + "/zone" }

func topologyOf(driver string, zones ...string) (all []*csi.Topology) {
	for _, z := range zones {
		all = append(all, &csi.Topology{Segments: map[string]string{zoneKey(driver): z}})
	}
	return all
}

// zonesIn are the zones that topologies name, each once, in their order.
func zonesIn(driver string, all ...*csi.Topology) (zones []string) {
	for _, t := range all {
		if z := t.GetSegments()[zoneKey(driver)]; z != "" && !slices.Contains(zones, z) {
			zones = append(zones, z)
		}
	}
	return zones
}

// place is where a disk may stand: a zone, or two.
type place []string

// permitted are the zones that a requirement allows, best first. Without one
// it is all of them.
func (c *controller) permitted(ctx context.Context, r *csi.TopologyRequirement) ([]string, error) {
	if len(r.GetRequisite()) == 0 && len(r.GetPreferred()) == 0 {
		known, _, err := cloudsim.All(ctx, c.cloud.ListZones, cloudsim.ListOptions{})
		var all []string
		for _, z := range known {
			all = append(all, z.Name)
		}
		return all, err
	}
	asked := zonesIn(c.cfg.Name, append(slices.Clone(r.GetPreferred()), r.GetRequisite()...)...)
	if requisite := zonesIn(c.cfg.Name, r.GetRequisite()...); len(requisite) > 0 {
		asked = slices.DeleteFunc(asked, func(z string) bool { return !slices.Contains(requisite, z) })
	}
	if len(asked) == 0 {
		return nil, status.Errorf(codes.ResourceExhausted, "accessibility_requirements: none has %s", zoneKey(c.cfg.Name))
	}
	return asked, nil
}

// places are the places to try for a disk, best first.
func places(zones []string, regional bool) (all []place) {
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

func (p place) in(zones []string) bool {
	return !slices.ContainsFunc(p, func(z string) bool { return !slices.Contains(zones, z) })
}
