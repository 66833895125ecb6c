package real

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeProtocol marks the router's routes that came from the cloud's table.
const routeProtocol = 77 // nobody's: /etc/iproute2/rt_protos names those of routing daemons

// routeEvery is how often the router looks at the cloud's table.
const routeEvery = 500 * time.Millisecond

// route keeps the router's table what the cloud's is until ctx ends.
func (h *hypervisor) route(ctx context.Context) {
	tick := time.NewTicker(routeEvery)
	defer tick.Stop()
	failed := false
	for {
		want, err := h.cfg.Routes(ctx)
		if err == nil {
			err = h.vpc.setRoutes(want)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failed:
			h.log.Warn("the router's table is not the cloud's; trying again", "err", err)
		case err == nil && failed:
			h.log.Info("the router's table is the cloud's again")
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// setRoutes makes the routes of the cloud's table those of the router, and
// takes away those that are no longer in it.
func (v *vpc) setRoutes(want map[netip.Prefix]netip.Addr) error {
	now, err := v.link.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("reading the router's table: %w", err)
	}
	there := map[netip.Prefix]netip.Addr{}
	var errs []error
	for _, r := range now {
		to, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		bits, _ := r.Dst.Mask.Size()
		via, hasVia := netip.AddrFromSlice(r.Gw.To4())
		if !ok || !hasVia {
			continue
		}
		p := netip.PrefixFrom(to, bits)
		if want[p] == via {
			there[p] = via
			continue
		}
		if err := v.link.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("taking away the route to %s: %w", p, err))
		}
	}
	for p, via := range want {
		if there[p] == via {
			continue
		}
		r := netlink.Route{Dst: ipNet(p), Gw: via.AsSlice(), Protocol: routeProtocol}
		if err := v.link.RouteReplace(&r); err != nil {
			errs = append(errs, fmt.Errorf("route to %s via %s: %w", p, via, err))
		}
	}
	return errors.Join(errs...)
}
