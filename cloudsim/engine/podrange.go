package engine

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// podPool names the pool of a range. Default networks share it, as they share
// their addresses.
func podPool(r cloudsim.PodRange) string { return fmt.Sprintf("pods %s in /%d", r.In, r.Bits) }

// takePodRanges gives a new instance the lowest free range of each family that
// its network has; Exhausted when one has no more.
func takePodRanges(tx *store.Tx, n cloudsim.Network) ([]string, error) {
	var all []string
	for _, r := range n.PodRanges.Families() {
		number, err := tx.Take(podPool(r), uint64(1)<<min(r.Bits-r.In.Bits(), 62))
		if errors.Is(err, cloudsim.Exhausted) {
			return nil, cloudsim.Errorf(cloudsim.Exhausted, "all pod ranges of network %s (/%d of %s) are taken: delete instances, or use a network with more", n.ID, r.Bits, r.In)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, nthRange(r, number).String())
	}
	return all, nil
}

// givePodRanges returns what an instance had. What its network does not give
// any more belongs to no pool.
func givePodRanges(tx *store.Tx, n cloudsim.Network, had []string) error {
	for _, s := range had {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("pod range %s: %w", s, err)
		}
		for _, r := range n.PodRanges.Families() {
			if r.Bits != p.Bits() || !r.In.Contains(p.Addr()) {
				continue
			}
			if err := tx.Give(podPool(r), rangeNumber(r, p)); err != nil {
				return err
			}
		}
	}
	return nil
}

// nthRange is number n, from 0, of the ranges that r is cut into.
func nthRange(r cloudsim.PodRange, n uint64) netip.Prefix {
	base := r.In.Addr().AsSlice()
	sum := new(big.Int).SetUint64(n)
	sum.Lsh(sum, uint(r.In.Addr().BitLen()-r.Bits))
	sum.Add(sum, new(big.Int).SetBytes(base))
	ip, _ := netip.AddrFromSlice(sum.FillBytes(base))
	return netip.PrefixFrom(ip, r.Bits)
}

// rangeNumber is the n of nthRange.
func rangeNumber(r cloudsim.PodRange, p netip.Prefix) uint64 {
	d := new(big.Int).SetBytes(p.Addr().AsSlice())
	d.Sub(d, new(big.Int).SetBytes(r.In.Addr().AsSlice()))
	return d.Rsh(d, uint(r.In.Addr().BitLen()-r.Bits)).Uint64()
}
