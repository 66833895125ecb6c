package aws

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

type listenerDescription struct {
	Listener listener `xml:"Listener"`
}

type listener struct {
	Protocol         string `xml:"Protocol"`
	Port             int    `xml:"LoadBalancerPort"`
	InstanceProtocol string `xml:"InstanceProtocol"`
	InstancePort     int    `xml:"InstancePort"`
}

func (q *query) decodeListeners() (all []cloudsim.Listener) {
	q.forEach("Listeners.member", func(prefix string) {
		if q.left[prefix+"InstanceProtocol"] == "" {
			q.left[prefix+"InstanceProtocol"] = q.left[prefix+"Protocol"]
		}
		for _, name := range []string{prefix + "Protocol", prefix + "InstanceProtocol"} {
			switch v := strings.ToUpper(q.requiredText(name)); v {
			case "", "TCP":
			case "HTTP", "HTTPS", "SSL":
				q.fail(dialect.Unsupported{What: "a listener with the protocol " + v, Why: "load balancers forward TCP: use TCP"})
			default:
				q.fail(errInvalid(name, v, "TCP, HTTP, HTTPS or SSL"))
			}
		}
		all = append(all, cloudsim.Listener{
			Protocol: cloudsim.TCP, Port: q.requiredInteger(prefix+"LoadBalancerPort", 1, 65535), TargetPort: q.requiredInteger(prefix+"InstancePort", 1, 65535),
		})
	})
	q.checkPresent(len(all) > 0, "Listeners")
	return all
}

// addListeners adds listeners to a load balancer. If the load balancer already has a listener with
// the same port and the same instance port, addListeners skips the given listener without an error,
// as AWS does. If only the port is the same, addListeners returns an error.
func addListeners(l *cloudsim.LoadBalancer, given []cloudsim.Listener) error {
	for _, li := range given {
		at := slices.IndexFunc(l.Listeners, func(have cloudsim.Listener) bool { return have.Port == li.Port })
		if at < 0 {
			li.IdleTimeoutSeconds = idleTimeout(l.Labels)
			l.Listeners = append(l.Listeners, li)
		} else if l.Listeners[at].TargetPort != li.TargetPort {
			return coded(http.StatusBadRequest, "DuplicateListener", fmt.Sprintf("a listener with the LoadBalancerPort %d and another InstancePort exists already", li.Port))
		}
	}
	return nil
}

func createListeners(q *query) (any, error) {
	name, given := q.requiredText("LoadBalancerName"), q.decodeListeners()
	if err := q.finish(); err != nil {
		return nil, err
	}
	_, err := changeLoadBalancer(q, name, func(l *cloudsim.LoadBalancer) error { return addListeners(l, given) })
	return emptyAnswer(q), err
}

// deleteListeners deletes the listeners at the given ports. It ignores ports that have no listener,
// as AWS does.
func deleteListeners(q *query) (any, error) {
	name, ports := q.requiredText("LoadBalancerName"), q.textList("LoadBalancerPorts.member")
	q.checkPresent(len(ports) > 0, "LoadBalancerPorts")
	for n, p := range ports {
		if _, err := strconv.ParseUint(p, 10, 16); err != nil {
			q.fail(errInvalid(fmt.Sprintf("LoadBalancerPorts.member.%d", n+1), p, "1 to 65535"))
		}
	}
	if err := q.finish(); err != nil {
		return nil, err
	}
	_, err := changeLoadBalancer(q, name, func(l *cloudsim.LoadBalancer) error {
		l.Listeners = slices.DeleteFunc(l.Listeners, func(li cloudsim.Listener) bool { return slices.Contains(ports, strconv.Itoa(li.Port)) })
		return nil
	})
	return emptyAnswer(q), err
}

// permit sets the source ranges and the targets of a load balancer. A client can then connect only
// if the rules of the load balancer's security groups permit the client. In AWS, each rule has a
// range of ports. But in this cloud, a load balancer has one list of source ranges for all its
// listeners. So permit changes the load balancer as follows:
//
//   - If no rule permits connections to the port of a listener, the listener gets an empty list of
//     targets. A listener with an empty list refuses all connections.
//   - The other listeners keep their targets. The source ranges contain an address only if the
//     rules permit connections from this address to all these listeners. If no address meets this
//     condition, all listeners refuse connections.
//
// So a client can connect only if AWS would also permit the connection. A rule with a security
// group as its source permits no connection to a load balancer.
func permit(l *cloudsim.LoadBalancerSpec, rules []rule) {
	var open [][]netip.Prefix // permitted ranges of each listener that has permitted ranges
	for n := range l.Listeners {
		if ranges := permittedRanges(rules, string(l.Listeners[n].Protocol), l.Listeners[n].Port); len(ranges) > 0 {
			open = append(open, ranges)
		} else {
			l.Listeners[n].Targets = []cloudsim.Target{}
		}
	}
	setSourceRanges(l, open)
}

// setSourceRanges sets the source ranges of a load balancer to the intersection of the given lists
// of ranges. If the intersection is empty, all listeners refuse connections.
func setSourceRanges(l *cloudsim.LoadBalancerSpec, lists [][]netip.Prefix) {
	l.SourceRanges = nil
	for _, r := range slices.Concat(lists...) {
		permitted := !slices.ContainsFunc(lists, func(ranges []netip.Prefix) bool {
			return !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Bits() <= r.Bits() && p.Contains(r.Addr()) })
		})
		if permitted && !slices.Contains(l.SourceRanges, r.String()) {
			l.SourceRanges = append(l.SourceRanges, r.String())
		}
	}
	slices.Sort(l.SourceRanges)
	if len(l.SourceRanges) == 0 {
		for n := range l.Listeners {
			l.Listeners[n].Targets = []cloudsim.Target{}
		}
	}
}

// permittedRanges returns the ranges of addresses from which the rules permit connections to the
// given protocol and port.
func permittedRanges(rules []rule, protocol string, port int) (all []netip.Prefix) {
	for _, r := range rules {
		if r.Protocol != "-1" && (r.Protocol != protocol || port < r.From || port > r.To) {
			continue
		}
		if p, err := netip.ParsePrefix(r.CIDR); err == nil { // a rule whose source is a group has no CIDR
			all = append(all, p)
		}
	}
	return all
}
