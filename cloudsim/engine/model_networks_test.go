package engine_test

import (
	"net/netip"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// networkWork is the duration of work on networks, subnets and routes.
const networkWork = 20 * time.Second

// vnet is the model of a network. The type part is the model of a subnet, and the type way is the
// model of a route.
type vnet struct {
	Name, Range, Pods, State string
	Routes                   int // maximum number of routes
	until                    time.Time
}

func (n *vnet) usable() bool { return n.State == "available" || n.State == "updating" }

type part struct {
	Name, Network, Zone, Range, State string
	until                             time.Time
}

type way struct {
	Name, Network, To, Hop, State string
	until                         time.Time
}

// beginNetworks adds the default network and its subnet to the model.
func (w *world) beginNetworks() {
	networks, _ := w.e.ListNetworks(w.ctx, cloudsim.ListOptions{})
	for _, n := range networks.Items {
		w.networks[w.id("net")] = &vnet{Name: n.Name, Range: n.IPv4, Pods: n.PodRanges.IPv4, Routes: n.MaxRoutes, State: string(n.State)}
	}
	subnets, _ := w.e.ListSubnets(w.ctx, cloudsim.ListOptions{})
	for _, s := range subnets.Items {
		w.subnets[w.id("subnet")] = &part{Name: s.Name, Network: string(s.Network), Range: s.IPv4, State: string(s.State)}
	}
}

func (w *world) settleNetworks(now time.Time) {
	for id, n := range w.networks {
		switch {
		case n.until.IsZero() || n.until.After(now):
		case n.State == "deleting":
			delete(w.networks, id)
		default:
			n.State, n.until = "available", time.Time{}
		}
	}
	for id, s := range w.subnets {
		switch {
		case s.until.IsZero() || s.until.After(now):
		case s.State == "deleting":
			delete(w.subnets, id)
		default:
			s.State, s.until = "available", time.Time{}
		}
	}
	for id, r := range w.routes {
		switch {
		case r.until.IsZero() || r.until.After(now):
		case r.State == "deleting":
			delete(w.routes, id)
		default:
			r.State, r.until = "active", time.Time{}
		}
	}
}

// reroute updates the states of the existing routes in the model. A route is active while its next
// hop runs, and is otherwise a blackhole.
func (w *world) reroute() {
	for _, r := range w.routes {
		if r.State != "active" && r.State != "blackhole" {
			continue
		}
		if r.State = "blackhole"; w.instances[r.Hop] != nil && slices.Contains([]string{"running", "rebooting", "stopping"}, w.instances[r.Hop].State) {
			r.State = "active"
		}
	}
}

func overlap(a, b string) bool { return netip.MustParsePrefix(a).Overlaps(netip.MustParsePrefix(b)) }

func inside(a, b string) bool {
	part, whole := netip.MustParsePrefix(a), netip.MustParsePrefix(b)
	return whole.Bits() <= part.Bits() && whole.Contains(part.Addr())
}

func hasAny[T any](resources map[string]*T, isMatch func(*T) bool) bool {
	for _, v := range resources {
		if isMatch(v) {
			return true
		}
	}
	return false
}

func (w *world) createNetwork(t *rapid.T) {
	req := cloudsim.CreateNetwork{
		Name: rapid.SampledFrom([]string{"m", "n"}).Draw(t, "name"),
		IPv4: rapid.SampledFrom([]string{"10.1.0.0/24", "10.1.0.0/25", "10.2.0.0/24", "127.64.0.0/24"}).Draw(t, "range"),
	}
	have := w.networks[idOfName(w.networks, req.Name, func(n *vnet) string { return n.Name })]
	_, err := w.e.CreateNetwork(w.ctx, req)
	switch {
	case have != nil && have.State == "deleting":
		mustAgree(t, err, cloudsim.Conflict)
	case have != nil && (have.Range != req.IPv4 || have.Pods != "" || have.Routes != cloudsim.DefaultMaxRoutes):
		mustAgree(t, err, cloudsim.Exists)
	case have != nil:
		mustAgree(t, err, nil)
	case hasAny(w.networks, func(n *vnet) bool { return overlap(n.Range, req.IPv4) }):
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		w.networks[w.id("net")] = &vnet{Name: req.Name, Range: req.IPv4, Routes: cloudsim.DefaultMaxRoutes, State: "creating", until: time.Now().Add(networkWork)}
	}
}

func (w *world) updateNetwork(t *rapid.T) {
	id := randomID(t, w.networks)
	n := w.networks[id]
	pods := rapid.SampledFrom([]string{"", "10.9.0.0/16"}).Draw(t, "pods")
	most := rapid.SampledFrom([]int{1, cloudsim.DefaultMaxRoutes}).Draw(t, "routes")
	spec := cloudsim.NetworkSpec{PodRanges: cloudsim.PodRanges{IPv4: pods}, MaxRoutes: most}
	_, err := w.e.UpdateNetwork(w.ctx, cloudsim.NetworkID(id), cloudsim.UpdateNetwork{NetworkSpec: spec}, 0)
	switch {
	case n == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case n.Pods == pods && n.Routes == most && n.State != "deleting":
		mustAgree(t, err, nil)
	case n.Pods != pods && hasAny(w.instances, func(i *vm) bool { return i.Pods && w.subnets[i.Subnet].Network == id }),
		pods != "" && hasAny(w.networks, func(o *vnet) bool { return o != n && o.Pods != "" }),
		!n.usable():
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		n.Pods, n.Routes, n.State, n.until = pods, most, "updating", time.Now().Add(networkWork)
	}
}

// podsIn reports whether new instances in a subnet get pod ranges.
func (w *world) podsIn(subnet string) bool { return w.networks[w.subnets[subnet].Network].Pods != "" }

func (w *world) deleteNetwork(t *rapid.T) {
	id := randomID(t, w.networks)
	n := w.networks[id]
	_, err := w.e.DeleteNetwork(w.ctx, cloudsim.NetworkID(id))
	switch {
	case n == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case n.State == "deleting":
		mustAgree(t, err, nil)
	case n.Name == cloudsim.DefaultNetwork, hasAny(w.subnets, func(s *part) bool { return s.Network == id }), hasAny(w.routes, func(r *way) bool { return r.Network == id }):
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		n.State, n.until = "deleting", time.Now().Add(networkWork)
	}
}

func (w *world) createSubnet(t *rapid.T) {
	req := cloudsim.CreateSubnet{
		Name: rapid.SampledFrom([]string{"u", "v"}).Draw(t, "name"), Network: cloudsim.NetworkID(randomID(t, w.networks)),
		Zone: rapid.SampledFrom([]string{"", "", "sim-1a", "mars"}).Draw(t, "zone"),
		IPv4: rapid.SampledFrom([]string{"10.1.0.0/29", "10.1.0.8/29", "10.1.0.0/28", "10.2.0.0/29"}).Draw(t, "range"),
	}
	have := w.subnets[idOfName(w.subnets, req.Name, func(s *part) string { return s.Name })]
	n := w.networks[string(req.Network)]
	_, err := w.e.CreateSubnet(w.ctx, req)
	switch {
	case req.Zone == "mars":
		mustAgree(t, err, cloudsim.Invalid)
	case have != nil && have.State == "deleting":
		mustAgree(t, err, cloudsim.Conflict)
	case have != nil && (have.Network != string(req.Network) || have.Range != req.IPv4 || have.Zone != req.Zone):
		mustAgree(t, err, cloudsim.Exists)
	case have != nil:
		mustAgree(t, err, nil)
	case n == nil:
		mustAgree(t, err, cloudsim.Invalid)
	case !n.usable():
		mustAgree(t, err, cloudsim.Conflict)
	case !inside(req.IPv4, n.Range):
		mustAgree(t, err, cloudsim.Invalid)
	case hasAny(w.subnets, func(s *part) bool { return s.Network == string(req.Network) && overlap(s.Range, req.IPv4) }):
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		w.subnets[w.id("subnet")] = &part{Name: req.Name, Network: string(req.Network), Zone: req.Zone, Range: req.IPv4, State: "creating", until: time.Now().Add(networkWork)}
	}
}

func (w *world) deleteSubnet(t *rapid.T) {
	id := randomID(t, w.subnets)
	s := w.subnets[id]
	_, err := w.e.DeleteSubnet(w.ctx, cloudsim.SubnetID(id))
	switch {
	case s == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case s.State == "deleting":
		mustAgree(t, err, nil)
	case s.Name == cloudsim.DefaultNetwork, hasAny(w.instances, func(i *vm) bool { return i.Subnet == id || i.More[id] != "" }):
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		s.State, s.until = "deleting", time.Now().Add(networkWork)
	}
}

func (w *world) createInstanceIn(t *rapid.T) {
	req := cloudsim.CreateInstance{
		Name: rapid.SampledFrom([]string{"k", "l"}).Draw(t, "name"), Zone: rapid.SampledFrom([]string{"sim-1a", "sim-1b"}).Draw(t, "zone"),
		Type: "small", Subnet: cloudsim.SubnetID(randomID(t, w.subnets)),
	}
	have := w.instances[idOfName(w.instances, req.Name, func(i *vm) string { return i.Name })]
	s := w.subnets[string(req.Subnet)]
	_, err := w.e.CreateInstance(w.ctx, req)
	switch {
	case have != nil && have.State == "terminating":
		mustAgree(t, err, cloudsim.Conflict)
	case have != nil && (have.Zone != req.Zone || have.Subnet != string(req.Subnet)):
		mustAgree(t, err, cloudsim.Exists)
	case have != nil:
		mustAgree(t, err, nil)
	case s == nil, s.Zone != "" && s.Zone != req.Zone:
		mustAgree(t, err, cloudsim.Invalid)
	case s.State != "available":
		mustAgree(t, err, cloudsim.Conflict)
	default:
		address := w.freeIn(string(req.Subnet))
		if address == "" {
			mustAgree(t, err, cloudsim.Exhausted)
			return
		}
		mustAgree(t, err, nil)
		w.instances[w.id("i")] = &vm{Name: req.Name, Zone: req.Zone, State: "provisioning", IP: address, Subnet: string(req.Subnet), Pods: w.podsIn(string(req.Subnet)), until: time.Now().Add(slow.Provision)}
	}
}

// freeIn returns the lowest free address of a subnet, but never the address of the gateway. It
// returns "" if no address is free.
func (w *world) freeIn(subnet string) string {
	in := netip.MustParsePrefix(w.subnets[subnet].Range)
	held := w.heldAddresses()
	held[cloudsim.GatewayOf(in).String()] = true
	return lowestFree(in, held)
}

func (w *world) createRoute(t *rapid.T) {
	req := cloudsim.CreateRoute{
		Name: rapid.SampledFrom([]string{"r", "s"}).Draw(t, "name"), NextHop: cloudsim.InstanceID(randomID(t, w.instances)),
		Destination: rapid.SampledFrom([]string{"10.50.0.0/24", "10.50.0.0/16", "127.64.0.0/30"}).Draw(t, "destination"),
	}
	have := w.routes[idOfName(w.routes, req.Name, func(r *way) string { return r.Name })]
	hop := w.instances[string(req.NextHop)]
	_, err := w.e.CreateRoute(w.ctx, req)
	switch {
	case have != nil && have.State == "deleting":
		mustAgree(t, err, cloudsim.Conflict)
	case have != nil && (have.To != req.Destination || have.Hop != string(req.NextHop)):
		mustAgree(t, err, cloudsim.Exists)
	case have != nil:
		mustAgree(t, err, nil)
	case hop == nil:
		mustAgree(t, err, cloudsim.Invalid)
	default:
		network := w.subnets[hop.Subnet].Network
		switch {
		case inside(req.Destination, w.networks[network].Range):
			mustAgree(t, err, cloudsim.Invalid)
		case hasAny(w.networks, func(n *vnet) bool {
			return n.Range != w.networks[network].Range && overlap(req.Destination, n.Range)
		}):
			mustAgree(t, err, cloudsim.Conflict)
		case hasAny(w.routes, func(r *way) bool { return r.Network == network && r.To == req.Destination }):
			mustAgree(t, err, cloudsim.Exists)
		case w.routesOf(network) >= w.networks[network].Routes:
			mustAgree(t, err, cloudsim.Exhausted)
		default:
			mustAgree(t, err, nil)
			w.routes[w.id("route")] = &way{Name: req.Name, Network: network, To: req.Destination, Hop: string(req.NextHop), State: "creating", until: time.Now().Add(networkWork)}
		}
	}
}

func (w *world) routesOf(network string) (n int) {
	for _, r := range w.routes {
		if r.Network == network {
			n++
		}
	}
	return n
}

func (w *world) deleteRoute(t *rapid.T) {
	id := randomID(t, w.routes)
	r := w.routes[id]
	_, err := w.e.DeleteRoute(w.ctx, cloudsim.RouteID(id))
	switch {
	case r == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case r.State == "deleting":
		mustAgree(t, err, nil)
	default:
		mustAgree(t, err, nil)
		r.State, r.until = "deleting", time.Now().Add(networkWork)
	}
}

// seenNetworks returns the cloud's networks, subnets and routes in the form of
// the model.
func (w *world) seenNetworks(t *rapid.T, objects map[string]any) (map[string]*vnet, map[string]*part, map[string]*way) {
	ns, err1 := w.e.ListNetworks(w.ctx, cloudsim.ListOptions{})
	ss, err2 := w.e.ListSubnets(w.ctx, cloudsim.ListOptions{})
	rs, err3 := w.e.ListRoutes(w.ctx, cloudsim.ListOptions{})
	mustAgree(t, err1, nil)
	mustAgree(t, err2, nil)
	mustAgree(t, err3, nil)
	networks, subnets, routes := map[string]*vnet{}, map[string]*part{}, map[string]*way{}
	for _, n := range ns.Items {
		objects[string(n.ID)] = n
		networks[string(n.ID)] = &vnet{Name: n.Name, Range: n.IPv4, Pods: n.PodRanges.IPv4, Routes: n.MaxRoutes, State: string(n.State)}
	}
	for _, s := range ss.Items {
		objects[string(s.ID)] = s
		subnets[string(s.ID)] = &part{Name: s.Name, Network: string(s.Network), Zone: s.Zone, Range: s.IPv4, State: string(s.State)}
	}
	for _, r := range rs.Items {
		objects[string(r.ID)] = r
		routes[string(r.ID)] = &way{Name: r.Name, Network: string(r.Network), To: r.Destination, Hop: string(r.NextHop), State: string(r.State)}
	}
	return networks, subnets, routes
}
