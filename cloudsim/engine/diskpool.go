package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

var diskPools = store.Table[cloudsim.DiskPool]{
	Kind: cloudsim.KindDiskPool,
	ID:   func(p *cloudsim.DiskPool) string { return p.Name },
	Meta: func(p *cloudsim.DiskPool) *cloudsim.Meta { return &p.Meta },
}

// diskPoolUsed stores the used GiB of each disk pool, by the name of the pool.
// If the usage were a field of the pool, each new disk would write an event of
// the pool.
var diskPoolUsed = store.Notes[int]{Name: "diskPoolUsed"}

// keepDiskPools creates the missing pools. Each zone has one pool for each disk type. keepDiskPools
// also stores the usage of each pool that has disks. The usage is the sum of the disk sizes.
func (e *Engine) keepDiskPools(tx *store.Tx) error {
	used, err := countDiskPools(tx)
	if err != nil {
		return err
	}
	for z, err := range zones.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		for ty, err := range diskTypes.Scan(tx, "", "") {
			if err != nil {
				return err
			}
			name := cloudsim.DiskPoolName(z.Name, ty.Name)
			if diskPools.Has(tx, name) {
				continue
			}
			p := cloudsim.DiskPool{Meta: cloudsim.Meta{Name: name}, Zone: z.Name, Type: ty.Name, SizeGiB: ty.PoolGiB}
			if err := diskPools.Put(tx, &p); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if err := diskPoolUsed.Put(tx, name, used[name]); err != nil {
			return err
		}
	}
	return nil
}

func countDiskPools(tx *store.Tx) (map[string]int, error) {
	used := map[string]int{}
	for d, err := range disks.Scan(tx, "", "") {
		if err != nil {
			return nil, err
		}
		for _, z := range d.Zones() {
			used[cloudsim.DiskPoolName(z, d.Type)] += d.SizeGiB
		}
	}
	return used, nil
}

// checkDiskPools returns an error if the stored usage of the pools differs from
// the sizes of the disks in the pools.
func checkDiskPools(tx *store.Tx) error {
	want, err := countDiskPools(tx)
	if err != nil {
		return err
	}
	have := map[string]int{}
	for p, err := range diskPools.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		n, _, err := diskPoolUsed.Get(tx, p.Name)
		if err != nil {
			return err
		}
		if n != 0 {
			have[p.Name] = n
		}
	}
	if !maps.Equal(have, want) {
		return fmt.Errorf("the disk pools have the used sizes %v, but the sums of the sizes of their disks are %v", have, want)
	}
	return nil
}

// takePools reserves gib GiB in the pool of diskType in each of the given zones. It returns
// Exhausted if a pool has too little free space. The caller must then return the error, so that the
// store discards the transaction.
func takePools(tx *store.Tx, zones []string, diskType string, gib int) error {
	for _, zone := range zones {
		p, err := diskPools.Get(tx, cloudsim.DiskPoolName(zone, diskType))
		if err != nil {
			return err
		}
		if p, err = withUsed(tx, p); err != nil {
			return err
		}
		if gib > p.FreeGiB {
			return cloudsim.Errorf(cloudsim.Exhausted, "disk pool %s has %d of %d GiB left, and the request needs %d: use a smaller size, another zone or type, or ask an administrator for a larger pool", p.Name, p.FreeGiB, p.SizeGiB, gib)
		}
		if err := diskPoolUsed.Put(tx, p.Name, p.UsedGiB+gib); err != nil {
			return err
		}
	}
	return nil
}

func givePools(tx *store.Tx, zones []string, diskType string, gib int) error {
	for _, zone := range zones {
		name := cloudsim.DiskPoolName(zone, diskType)
		used, _, err := diskPoolUsed.Get(tx, name)
		if err != nil {
			return err
		}
		if err := diskPoolUsed.Put(tx, name, used-gib); err != nil {
			return err
		}
	}
	return nil
}

func withUsed(tx *store.Tx, p cloudsim.DiskPool) (cloudsim.DiskPool, error) {
	used, _, err := diskPoolUsed.Get(tx, p.Name)
	p.UsedGiB, p.FreeGiB = used, max(0, p.SizeGiB-used)
	return p, err
}

// GetDiskPool returns a pool with its used and free GiB.
func (e *Engine) GetDiskPool(ctx context.Context, name string) (p cloudsim.DiskPool, err error) {
	call, err := callOf(ctx)
	if err != nil {
		return p, err
	}
	err = e.store.View(func(tx *store.Tx) error {
		if p, err = get(tx, call, diskPools, name); err != nil {
			return err
		}
		p, err = withUsed(tx, p)
		return err
	})
	return p, err
}

// ListDiskPools returns one page of pools with their used and free GiB.
func (e *Engine) ListDiskPools(ctx context.Context, o cloudsim.ListOptions) (l cloudsim.List[cloudsim.DiskPool], err error) {
	if l, err = listPage(ctx, e.core, diskPools, o, func(p *cloudsim.DiskPool) string { return p.Zone }); err != nil {
		return l, err
	}
	err = e.store.View(func(tx *store.Tx) error {
		for i := range l.Items {
			if l.Items[i], err = withUsed(tx, l.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return l, err
}

// SetDiskPool changes the size of a pool. SetDiskPool does not delete existing disks, even if they
// use more space than the new size.
func (e *Engine) SetDiskPool(ctx context.Context, name string, req cloudsim.SetDiskPool) (p cloudsim.DiskPool, err error) {
	if err := req.Validate(); err != nil {
		return p, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if p, err = get(tx, call, diskPools, name); err != nil {
			return err
		}
		if p.SizeGiB != req.SizeGiB {
			p.SizeGiB = req.SizeGiB
			if err := diskPools.Put(tx, &p); err != nil {
				return err
			}
		}
		p, err = withUsed(tx, p)
		return err
	})
	return p, err
}
