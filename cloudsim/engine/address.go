package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"net/netip"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const byIP = "ip"

var addresses = store.Table[cloudsim.Address]{
	Kind: cloudsim.KindAddress, Prefix: "addr",
	ID:    func(a *cloudsim.Address) string { return string(a.ID) },
	Meta:  func(a *cloudsim.Address) *cloudsim.Meta { return &a.Meta },
	Index: map[string]func(*cloudsim.Address) []string{byIP: func(a *cloudsim.Address) []string { return []string{a.IP} }},
}

// ranges remembers where addresses were taken from. A range counts its own
// free addresses, so one that overlaps another would give some out twice.
var ranges = store.Notes[netip.Prefix]{Name: "range"}

// keepRanges refuses a range that differs from the one whose addresses are in
// use.
func (e *Engine) keepRanges(tx *store.Tx) error {
	for _, r := range []struct {
		key   string
		want  netip.Prefix
		inUse bool
	}{
		{"instances", e.cfg.Instances, instances.Any(tx)},
		{"load balancers", e.cfg.LoadBalancers, addresses.Any(tx)},
	} {
		have, ok, err := ranges.Get(tx, r.key)
		switch {
		case err != nil:
			return err
		case ok && have == r.want:
			continue
		case ok && r.inUse:
			return fmt.Errorf("addresses of %s are in use from %s, so their range cannot become %s: delete them first, or begin with another data directory", r.key, have, r.want)
		}
		if err := ranges.Put(tx, r.key, r.want); err != nil {
			return err
		}
	}
	return nil
}

// takeIP returns the lowest free address of a range, without its first and its
// last, which are the network and the broadcast address.
func takeIP(tx *store.Tx, p netip.Prefix) (netip.Addr, error) {
	hosts := uint64(1)<<min(p.Addr().BitLen()-p.Bits(), 62) - 2
	n, err := tx.Take(p.String(), hosts)
	if err != nil {
		return netip.Addr{}, err
	}
	return nth(p, n+1), nil
}

// giveIP returns an address to its range. One that is not in it was taken
// under another configuration, and belongs to no range any more.
func giveIP(tx *store.Tx, p netip.Prefix, ip netip.Addr) error {
	if !p.Contains(ip) {
		return nil
	}
	return tx.Give(p.String(), offset(p, ip)-1)
}

func nth(p netip.Prefix, n uint64) netip.Addr {
	base := p.Masked().Addr()
	if base.Is4() {
		b := base.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
		return netip.AddrFrom4(b)
	}
	b := base.AsSlice()
	sum := new(big.Int).Add(new(big.Int).SetBytes(b), new(big.Int).SetUint64(n))
	ip, _ := netip.AddrFromSlice(sum.FillBytes(b))
	return ip
}

func offset(p netip.Prefix, ip netip.Addr) uint64 {
	a, b := p.Masked().Addr().As16(), ip.As16()
	return binary.BigEndian.Uint64(b[8:]) - binary.BigEndian.Uint64(a[8:])
}

// CreateAddress reserves an address.
func (e *Engine) CreateAddress(ctx context.Context, req cloudsim.CreateAddress) (a cloudsim.Address, err error) {
	if err := req.Validate(); err != nil {
		return a, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		a, err = once(tx, call, addresses, req, func() (cloudsim.Address, error) {
			project, err := e.home(tx, call)
			if err != nil {
				return a, err
			}
			have, err := addresses.Named(tx, project, req.Name)
			switch {
			case errors.Is(err, cloudsim.NotFound):
				return e.newAddress(tx, cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels}, true, "")
			case err != nil:
				return have, err
			case !sameLabels(have.Labels, req.Labels):
				return have, taken(cloudsim.KindAddress, req.Name, string(have.ID), "other labels")
			}
			return have, nil
		})
		return err
	})
	return a, err
}

func (e *Engine) newAddress(tx *store.Tx, m cloudsim.Meta, static bool, by cloudsim.LoadBalancerID) (a cloudsim.Address, err error) {
	ip, err := takeIP(tx, e.cfg.LoadBalancers)
	if err != nil {
		return a, err
	}
	id, err := addresses.NextID(tx)
	if err != nil {
		return a, err
	}
	a = cloudsim.Address{ID: cloudsim.AddressID(id), Meta: m, IP: ip.String(), Static: static, UsedBy: by}
	return a, addresses.Put(tx, &a)
}

// GetAddress returns an address.
func (e *Engine) GetAddress(ctx context.Context, id cloudsim.AddressID) (cloudsim.Address, error) {
	return read(ctx, e, addresses, string(id))
}

// ListAddresses returns one page of addresses.
func (e *Engine) ListAddresses(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Address], error) {
	return page(ctx, e, addresses, o, nil)
}

// DeleteAddress releases an address.
func (e *Engine) DeleteAddress(ctx context.Context, id cloudsim.AddressID) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		a, err := get(tx, call, addresses, string(id))
		if err != nil {
			return err
		}
		if a.UsedBy != "" {
			return cloudsim.Errorf(cloudsim.Conflict, "address %s (%s) is used by load balancer %s: delete that first", id, a.IP, a.UsedBy)
		}
		return e.dropAddress(tx, &a)
	})
}

func (e *Engine) dropAddress(tx *store.Tx, a *cloudsim.Address) error {
	if ip, err := netip.ParseAddr(a.IP); err == nil {
		if err := giveIP(tx, e.cfg.LoadBalancers, ip); err != nil {
			return err
		}
	}
	return addresses.Delete(tx, a)
}

// standOn gives a new load balancer its address: the static one that it asked
// for, or one of its own.
func (e *Engine) standOn(tx *store.Tx, lb *cloudsim.LoadBalancer, ip string) error {
	if ip == "" {
		m := cloudsim.Meta{Name: string(lb.ID), Project: lb.Project}
		a, err := e.newAddress(tx, m, false, lb.ID)
		lb.IP, lb.AddressID = a.IP, a.ID
		return err
	}
	found, err := addresses.Lookup(tx, byIP, ip)
	if err != nil {
		return err
	}
	for _, a := range found {
		switch {
		case a.Project != lb.Project || !a.Static:
		case a.UsedBy != "":
			return cloudsim.Errorf(cloudsim.Conflict, "address %s (%s) is used by load balancer %s", a.ID, ip, a.UsedBy)
		default:
			a.UsedBy = lb.ID
			lb.IP, lb.AddressID = a.IP, a.ID
			return addresses.Put(tx, &a)
		}
	}
	return unknown("ip", ip, "reserve it first: POST /v1/addresses")
}

// stepOff releases the address of a load balancer that is gone.
func (e *Engine) stepOff(tx *store.Tx, lb *cloudsim.LoadBalancer) error {
	a, err := addresses.Get(tx, string(lb.AddressID))
	if err != nil {
		return err
	}
	if !a.Static {
		return e.dropAddress(tx, &a)
	}
	a.UsedBy = ""
	return addresses.Put(tx, &a)
}
