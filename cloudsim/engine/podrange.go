package engine

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// podPool returns the name of the pool in which the store records the free parts of r. The cloud
// divides r into parts and assigns each part to an instance. Default networks with the same pod
// ranges share their pools.
func podPool(r cloudsim.PodRange) string { return fmt.Sprintf("pods %s in /%d", r.In, r.Bits) }

// takePodRanges assigns to a new instance the lowest free pod range for each IP family of network
// n. It returns Exhausted if no range is free.
func takePodRanges(tx *store.Tx, n cloudsim.Network) ([]string, error) {
	var all []string
	for _, r := range n.PodRanges.Families() {
		number, err := tx.Take(podPool(r), uint64(1)<<min(r.Bits-r.In.Bits(), 62))
		if errors.Is(err, cloudsim.Exhausted) {
			return nil, cloudsim.Errorf(cloudsim.Exhausted, "all pod ranges of network %s (/%d of %s) are in use: delete instances, or use a network with more pod ranges", n.ID, r.Bits, r.In)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, nthRange(r, number).String())
	}
	return all, nil
}

// givePodRanges releases the pod ranges of an instance, so that other instances
// can get these ranges. It ignores ranges that the network no longer has.
func givePodRanges(tx *store.Tx, n cloudsim.Network, ranges []string) error {
	for _, s := range ranges {
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

// nthRange returns the pod range with number n, counted from 0.
func nthRange(r cloudsim.PodRange, n uint64) netip.Prefix {
	base := r.In.Addr().AsSlice()
	sum := new(big.Int).SetUint64(n)
	sum.Lsh(sum, uint(r.In.Addr().BitLen()-r.Bits))
	sum.Add(sum, new(big.Int).SetBytes(base))
	ip, _ := netip.AddrFromSlice(sum.FillBytes(base))
	return netip.PrefixFrom(ip, r.Bits)
}

// rangeNumber returns the number n for which nthRange(r, n) is p.
func rangeNumber(r cloudsim.PodRange, p netip.Prefix) uint64 {
	d := new(big.Int).SetBytes(p.Addr().AsSlice())
	d.Sub(d, new(big.Int).SetBytes(r.In.Addr().AsSlice()))
	return d.Rsh(d, uint(r.In.Addr().BitLen()-r.Bits)).Uint64()
}
