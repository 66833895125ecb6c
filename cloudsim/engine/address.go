package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const byIP = "ip"

var addresses = store.Table[cloudsim.Address]{
	Kind: cloudsim.KindAddress, Prefix: "addr",
	ID:    func(a *cloudsim.Address) string { return string(a.ID) },
	Meta:  func(a *cloudsim.Address) *cloudsim.Meta { return &a.Meta },
	Uses:  store.One[cloudsim.Address](cloudsim.QuotaAddresses),
	Index: map[string]func(*cloudsim.Address) []string{byIP: func(a *cloudsim.Address) []string { return []string{a.IP} }},
}

// addressRanges stores the configured range of each kind of load balancer address: external or
// internal, IPv4 or IPv6. At each start, keepRanges compares these ranges with the configuration.
// The store records the used addresses of each range separately. If a new range overlapped an old
// range that is in use, the store could assign an address twice.
var addressRanges = store.Notes[netip.Prefix]{Name: "range"}

// keepRanges stores the configured ranges of load balancers. It returns an error if a configured
// range differs from the stored range and addresses of the stored range are in use. It does not
// check the ranges of instances (see keepDefaultNetworks).
func (e *Engine) keepRanges(tx *store.Tx) error {
	for _, r := range []struct {
		key  string
		want netip.Prefix
	}{
		{"load balancers", e.cfg.LoadBalancers},
		{"load balancers, IPv6", e.cfg.LoadBalancers6},
		{"internal load balancers", e.cfg.InternalLoadBalancers},
		{"internal load balancers, IPv6", e.cfg.InternalLoadBalancers6},
	} {
		have, ok, err := addressRanges.Get(tx, r.key)
		switch {
		case err != nil:
			return err
		case ok && have == r.want:
			continue
		case ok && have.IsValid():
			used, err := addressesIn(tx, have)
			if err != nil {
				return err
			}
			if used {
				return rangeInUse(r.key, have.String(), r.want.String())
			}
		}
		if err := addressRanges.Put(tx, r.key, r.want); err != nil {
			return err
		}
	}
	return nil
}

// addressesIn reports whether an address in the store is in range p. It reads all addresses.
func addressesIn(tx *store.Tx, p netip.Prefix) (bool, error) {
	for a, err := range addresses.Scan(tx, "", "") {
		if err != nil {
			return false, err
		}
		if ip, err := netip.ParseAddr(a.IP); err == nil && p.Contains(ip) {
			return true, nil
		}
	}
	return false, nil
}

func rangeInUse(of, have, want string) error {
	return fmt.Errorf("cannot change the address range of %s from %s to %s, because addresses of the old range are in use: delete the resources that use them first, or use another data directory", of, have, want)
}

// takeIP marks the lowest free address of range p as used, and returns this address. It never
// returns the first address (the network address) or the last address (the broadcast address).
func takeIP(tx *store.Tx, p netip.Prefix) (netip.Addr, error) {
	n, err := tx.Take(p.String(), hostsIn(p))
	if err != nil {
		return netip.Addr{}, err
	}
	return nth(p, n+1), nil
}

// hostsIn returns how many addresses takeIP can take from a range of at least two addresses. For a
// range of 2^62 or more addresses it returns 2^62-2.
func hostsIn(p netip.Prefix) uint64 { return uint64(1)<<min(p.Addr().BitLen()-p.Bits(), 62) - 2 }

// countablePart returns the part of range p in which the store can record used addresses. The store
// records an address as a 64-bit number (see the function offset). Therefore, if p is larger than a
// /64, this part is the first /64 of p. Otherwise it is the whole range.
func countablePart(p netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(p.Masked().Addr(), max(p.Bits(), p.Addr().BitLen()-64))
}

// giveIP marks an address of range p as free. It does nothing if the address is not in the part of
// p that countablePart returns. This is the case if the address is after the first /64 of p, or if
// the configured range has changed since the cloud assigned the address.
func giveIP(tx *store.Tx, p netip.Prefix, ip netip.Addr) error {
	if !countablePart(p).Contains(ip) {
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

// offset returns the number n for which nth(p, n) is ip. The address ip must be in the part of p
// that countablePart returns.
func offset(p netip.Prefix, ip netip.Addr) uint64 {
	a, b := p.Masked().Addr().As16(), ip.As16()
	return binary.BigEndian.Uint64(b[8:]) - binary.BigEndian.Uint64(a[8:])
}

// LoadBalancerRanges lists the ranges from which load balancers get addresses.
func (c Config) LoadBalancerRanges() []netip.Prefix {
	all := []netip.Prefix{c.LoadBalancers, c.LoadBalancers6, c.InternalLoadBalancers, c.InternalLoadBalancers6}
	return slices.DeleteFunc(all, func(p netip.Prefix) bool { return !p.IsValid() })
}

// CreateAddress reserves an address. If an address with the same name and the requested properties
// exists, CreateAddress returns the existing address. If the existing address has other properties,
// CreateAddress returns Exists.
func (e *Engine) CreateAddress(ctx context.Context, req cloudsim.CreateAddress) (a cloudsim.Address, err error) {
	if err := req.Validate(); err != nil {
		return a, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		a, err = idempotent(tx, call, addresses, req, func() (cloudsim.Address, error) {
			project, err := e.projectOf(tx, call)
			if err != nil {
				return a, err
			}
			have, err := addresses.Named(tx, project, req.Name)
			family, scheme := cmp.Or(req.Family, cloudsim.IPv4), cmp.Or(req.Scheme, cloudsim.SchemeExternal)
			switch {
			case errors.Is(err, cloudsim.NotFound):
				return e.newAddress(tx, cloudsim.Address{
					Meta:   cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels},
					Family: family, Scheme: scheme, Static: true,
				})
			case err != nil:
				return have, err
			case have.Family != family, have.Scheme != scheme:
				return have, errNameTaken(cloudsim.KindAddress, req.Name, string(have.ID), fmt.Sprintf("family %s and scheme %s", have.Family, have.Scheme))
			case !sameLabels(have.Labels, req.Labels):
				return have, errNameTaken(cloudsim.KindAddress, req.Name, string(have.ID), "other labels")
			}
			return have, nil
		})
		return err
	})
	return a, err
}

func (e *Engine) newAddress(tx *store.Tx, a cloudsim.Address) (cloudsim.Address, error) {
	from := e.cfg.rangeOf(a.Family, a.Scheme)
	if !from.IsValid() {
		return a, cloudsim.Errorf(cloudsim.Invalid, "this cloud has no %s addresses for load balancers: start the cloud with a range of such addresses, for example with --load-balancer-range6", a.Family)
	}
	if err := e.checkQuota(tx, a.Project, store.Use{Name: cloudsim.QuotaAddresses, N: 1}); err != nil {
		return a, err
	}
	ip, err := takeIP(tx, from)
	if err != nil {
		return a, err
	}
	id, err := addresses.NextID(tx)
	if err != nil {
		return a, err
	}
	a.ID, a.IP = cloudsim.AddressID(id), ip.String()
	return a, addresses.Put(tx, &a)
}

// rangeOf returns the range for load balancers of a family and a scheme.
// Internal load balancers use the external range if the configuration has no
// internal range.
func (c Config) rangeOf(f cloudsim.IPFamily, s cloudsim.Scheme) netip.Prefix {
	external, internal := c.LoadBalancers, c.InternalLoadBalancers
	if f == cloudsim.IPv6 {
		external, internal = c.LoadBalancers6, c.InternalLoadBalancers6
	}
	if s == cloudsim.SchemeInternal && internal.IsValid() {
		return internal
	}
	return external
}

// GetAddress returns an address.
func (e *Engine) GetAddress(ctx context.Context, id cloudsim.AddressID) (cloudsim.Address, error) {
	return read(ctx, e.core, addresses, string(id))
}

// ListAddresses returns one page of addresses.
func (e *Engine) ListAddresses(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Address], error) {
	return listPage(ctx, e.core, addresses, o, nil)
}

// DeleteAddress deletes an address, so that its IP address is free again. It returns Conflict while
// a load balancer uses the address.
func (e *Engine) DeleteAddress(ctx context.Context, id cloudsim.AddressID) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		a, err := get(tx, call, addresses, string(id))
		if err != nil {
			return err
		}
		if a.UsedBy != "" {
			return cloudsim.Errorf(cloudsim.Conflict, "address %s (%s) is used by load balancer %s: delete the load balancer first", id, a.IP, a.UsedBy)
		}
		return e.dropAddress(tx, &a)
	})
}

func (e *Engine) dropAddress(tx *store.Tx, a *cloudsim.Address) error {
	ip, err := netip.ParseAddr(a.IP)
	if err != nil {
		return err
	}
	from := e.cfg.rangeOf(a.Family, a.Scheme)
	if !from.Contains(ip) { // the cloud took the address before internal load balancers had their own range
		from = e.cfg.rangeOf(a.Family, cloudsim.SchemeExternal)
	}
	if err := giveIP(tx, from, ip); err != nil {
		return err
	}
	return addresses.Delete(tx, a)
}

// familiesOf returns the IP families of a new load balancer: the requested
// families, else the families of the requested addresses, else IPv4.
func familiesOf(families []cloudsim.IPFamily, ips []string) []cloudsim.IPFamily {
	if len(families) > 0 {
		return families
	}
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil {
			families = append(families, cloudsim.FamilyOf(a))
		}
	}
	if len(families) == 0 {
		return []cloudsim.IPFamily{cloudsim.IPv4}
	}
	return families
}

// assignAddresses gives a load balancer one address for each IP family in families. The list ips
// contains the requested addresses, which a client must have reserved. For a family without a
// requested address, the load balancer keeps its current address. If it has no address of this
// family, it gets a new address. assignAddresses releases the addresses that the load balancer no
// longer uses.
func (e *Engine) assignAddresses(tx *store.Tx, lb *cloudsim.LoadBalancer, families []cloudsim.IPFamily, ips []string) error {
	had := map[cloudsim.IPFamily]cloudsim.LoadBalancerAddress{}
	for _, a := range lb.Addresses {
		had[a.Family] = a
	}
	lb.Addresses = nil
	for _, f := range families {
		at := slices.IndexFunc(ips, func(ip string) bool {
			a, err := netip.ParseAddr(ip)
			return err == nil && cloudsim.FamilyOf(a) == f
		})
		have, ok := had[f]
		var a cloudsim.Address
		var err error
		switch {
		case ok && (at < 0 || netip.MustParseAddr(ips[at]) == netip.MustParseAddr(have.IP)):
			delete(had, f)
			lb.Addresses = append(lb.Addresses, have)
			continue
		case at >= 0:
			a, err = e.reserveAddress(tx, lb, fmt.Sprintf("addresses[%d]", at), netip.MustParseAddr(ips[at]).String())
		default:
			a, err = e.newAddress(tx, cloudsim.Address{
				Meta:   cloudsim.Meta{Name: ownAddressName(lb.ID, f), Project: lb.Project},
				Family: f, Scheme: lb.Scheme, UsedBy: lb.ID,
			})
		}
		if err != nil {
			return err
		}
		lb.Addresses = append(lb.Addresses, cloudsim.LoadBalancerAddress{Family: f, IP: a.IP, ID: a.ID})
	}
	lb.IP = lb.Addresses[0].IP
	for _, f := range []cloudsim.IPFamily{cloudsim.IPv4, cloudsim.IPv6} {
		if a, left := had[f]; left {
			if err := e.releaseAddress(tx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownAddressName returns the name of an address that the cloud itself reserves for a load balancer.
// A client cannot create an address with a name of this form (see cloudsim.CreateAddress).
func ownAddressName(id cloudsim.LoadBalancerID, f cloudsim.IPFamily) string {
	if f == cloudsim.IPv6 {
		return string(id) + "-ipv6"
	}
	return string(id)
}

// reserveAddress assigns the address ip to load balancer lb. It returns Invalid if no client has
// reserved the address for the project and the scheme of lb. It returns Conflict if a load balancer
// already uses the address.
func (e *Engine) reserveAddress(tx *store.Tx, lb *cloudsim.LoadBalancer, field, ip string) (cloudsim.Address, error) {
	found, err := addresses.Lookup(tx, byIP, ip)
	if err != nil {
		return cloudsim.Address{}, err
	}
	for _, a := range found {
		switch {
		case a.Project != lb.Project || !a.Static:
		case a.UsedBy != "":
			return a, cloudsim.Errorf(cloudsim.Conflict, "address %s (%s) is used by load balancer %s: use another address, or delete this load balancer first", a.ID, ip, a.UsedBy)
		case a.Scheme != lb.Scheme:
			return a, cloudsim.InvalidField(field, fmt.Sprintf("is %s, which is for %s load balancers, but the load balancer is %s", ip, a.Scheme, lb.Scheme))
		default:
			a.UsedBy = lb.ID
			return a, addresses.Put(tx, &a)
		}
	}
	return cloudsim.Address{}, errUnknownReference(field, ip, "reserve the address first: POST /v1/addresses")
}

// releaseAddress ends the use of an address by a load balancer. An address that a client has
// reserved (Static) stays reserved for its project. releaseAddress deletes an address that the
// cloud itself reserved.
func (e *Engine) releaseAddress(tx *store.Tx, at cloudsim.LoadBalancerAddress) error {
	a, err := addresses.Get(tx, string(at.ID))
	if err != nil {
		return err
	}
	if !a.Static {
		return e.dropAddress(tx, &a)
	}
	a.UsedBy = ""
	return addresses.Put(tx, &a)
}
