package engine

import (
	"context"
	"errors"
	"reflect"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// These tables contain the catalogue: regions, zones and types. The name of each resource is its
// id.
var (
	regions = store.Table[cloudsim.Region]{
		Kind: cloudsim.KindRegion,
		ID:   func(r *cloudsim.Region) string { return r.Name },
		Meta: func(r *cloudsim.Region) *cloudsim.Meta { return &r.Meta },
	}
	zones = store.Table[cloudsim.Zone]{
		Kind: cloudsim.KindZone,
		ID:   func(z *cloudsim.Zone) string { return z.Name },
		Meta: func(z *cloudsim.Zone) *cloudsim.Meta { return &z.Meta },
	}
	diskTypes = store.Table[cloudsim.DiskType]{
		Kind: cloudsim.KindDiskType,
		ID:   func(t *cloudsim.DiskType) string { return t.Name },
		Meta: func(t *cloudsim.DiskType) *cloudsim.Meta { return &t.Meta },
	}
	instanceTypes = store.Table[cloudsim.InstanceType]{
		Kind: cloudsim.KindInstanceType,
		ID:   func(t *cloudsim.InstanceType) string { return t.Name },
		Meta: func(t *cloudsim.InstanceType) *cloudsim.Meta { return &t.Meta },
	}
)

// applyCatalogue stores the configured catalogue. It adds missing resources, and updates stored
// resources that differ from the configuration. It does not remove resources.
func (e *Engine) applyCatalogue(tx *store.Tx) error {
	c := e.cfg.Catalogue
	if err := offer(tx, regions, c.Regions, func(have, want cloudsim.Region) bool { return true }); err != nil {
		return err
	}
	if err := offer(tx, zones, c.Zones, func(have, want cloudsim.Zone) bool { return have.Region == want.Region }); err != nil {
		return err
	}
	if err := offer(tx, diskTypes, c.DiskTypes, func(have, want cloudsim.DiskType) bool {
		want.Meta = have.Meta
		return reflect.DeepEqual(have, want)
	}); err != nil {
		return err
	}
	return offer(tx, instanceTypes, c.InstanceTypes, func(have, want cloudsim.InstanceType) bool {
		return have.CPUs == want.CPUs && have.MemoryMiB == want.MemoryMiB && have.MaxDisks == want.MaxDisks
	})
}

func offer[T any](tx *store.Tx, t store.Table[T], want []T, same func(have, want T) bool) error {
	for i := range want {
		v := want[i]
		if have, err := t.Get(tx, t.ID(&v)); err == nil {
			if same(have, v) {
				continue
			}
			t.Meta(&v).CreatedAt = t.Meta(&have).CreatedAt
		}
		if err := t.Put(tx, &v); err != nil {
			return err
		}
	}
	return nil
}

// GetRegion returns a region by name.
func (e *Engine) GetRegion(ctx context.Context, name string) (cloudsim.Region, error) {
	return read(ctx, e.core, regions, name)
}

// ListRegions returns one page of regions.
func (e *Engine) ListRegions(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Region], error) {
	return listPage(ctx, e.core, regions, o, nil)
}

// regionOfZone returns the region of a zone. If the zone does not exist, the error is Invalid and
// names the given field of the request.
func regionOfZone(tx *store.Tx, field, zone string) (string, error) {
	z, err := zones.Get(tx, zone)
	if errors.Is(err, cloudsim.NotFound) {
		return "", errUnknownReference(field, zone, "see GET /v1/zones")
	}
	return z.Region, err
}

// GetZone returns a zone by name.
func (e *Engine) GetZone(ctx context.Context, name string) (cloudsim.Zone, error) {
	return read(ctx, e.core, zones, name)
}

// ListZones returns one page of zones.
func (e *Engine) ListZones(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Zone], error) {
	return listPage(ctx, e.core, zones, o, nil)
}

// GetInstanceType returns an instance type by name.
func (e *Engine) GetInstanceType(ctx context.Context, name string) (cloudsim.InstanceType, error) {
	return read(ctx, e.core, instanceTypes, name)
}

// ListInstanceTypes returns one page of instance types.
func (e *Engine) ListInstanceTypes(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.InstanceType], error) {
	return listPage(ctx, e.core, instanceTypes, o, nil)
}

// GetDiskType returns a disk type by name.
func (e *Engine) GetDiskType(ctx context.Context, name string) (cloudsim.DiskType, error) {
	return read(ctx, e.core, diskTypes, name)
}

// ListDiskTypes returns one page of disk types.
func (e *Engine) ListDiskTypes(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.DiskType], error) {
	return listPage(ctx, e.core, diskTypes, o, nil)
}
