package ccm

import (
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// recordPorts emits an event on the Service for each listener that clients
// cannot reach at the Service's address and port.
func (b *loadBalancers) recordPorts(svc *v1.Service, lb cloudsim.LoadBalancer) {
	lb = partOf(lb, svc)
	for _, l := range lb.Status.Listeners {
		shown := net.JoinHostPort(l.IP, strconv.Itoa(l.Port))
		switch {
		case !ofLoadBalancer(lb, l), l.Endpoint == shown:
		case l.Endpoint != "":
			b.events.Eventf(svc, v1.EventTypeNormal, "ListenerElsewhere", "Port %d of %s is reachable at %s%s", l.Port, l.IP, l.Endpoint, because(l.Error))
		case l.Error != "":
			b.events.Eventf(svc, v1.EventTypeWarning, "ListenerUnreachable", "Port %d of %s is not reachable%s", l.Port, l.IP, because(l.Error))
		}
	}
}

// ofLoadBalancer reports whether the listener l has an address of lb. Otherwise l is a published
// port on the cloud's host.
func ofLoadBalancer(lb cloudsim.LoadBalancer, l cloudsim.ListenerStatus) bool {
	return slices.ContainsFunc(lb.Addresses, func(a cloudsim.LoadBalancerAddress) bool { return a.IP == l.IP })
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// listenerUnreachable is the error in v1.PortStatus for a port that clients
// cannot reach.
const listenerUnreachable = "cloudsim.dev/ListenerUnreachable"

// status returns the load balancer status of the Service. If lb is active or updating, the status
// contains every address, in the order of the IP families. Otherwise the status is empty. If a port
// does not work at an address, the entry of this address contains the status of all ports.
//
// The IP mode (KEP-1860) is VIP if all listeners have the mode VIP. Otherwise the IP mode is Proxy.
// With the mode VIP, kube-proxy sends connections from pods directly to the pods of the Service,
// without the load balancer.
func status(svc *v1.Service, lb cloudsim.LoadBalancer) *v1.LoadBalancerStatus {
	lb = partOf(lb, svc)
	st := &v1.LoadBalancerStatus{}
	if lb.State != cloudsim.LoadBalancerActive && lb.State != cloudsim.LoadBalancerUpdating {
		return st
	}
	mode := v1.LoadBalancerIPModeVIP
	if slices.ContainsFunc(lb.Listeners, func(l cloudsim.Listener) bool { return l.EffectiveMode() == cloudsim.ModeProxy }) {
		mode = v1.LoadBalancerIPModeProxy
	}
	for _, a := range lb.Addresses {
		st.Ingress = append(st.Ingress, v1.LoadBalancerIngress{IP: a.IP, IPMode: &mode, Ports: portStatus(lb, a.IP)})
	}
	return st
}

// portStatus returns nil if all listeners at the address ip work. A listener does not work if it
// has an error and no endpoint. In this case, portStatus returns the status of all ports, because
// the Kubernetes API requires either all ports of a Service or no ports.
func portStatus(lb cloudsim.LoadBalancer, ip string) []v1.PortStatus {
	var ports []v1.PortStatus
	broken := false
	for _, l := range lb.Status.Listeners {
		if l.IP != ip {
			continue
		}
		p := v1.PortStatus{Port: int32(l.Port), Protocol: v1.Protocol(strings.ToUpper(string(l.Protocol)))} //nolint:gosec // a port
		if l.Endpoint == "" && l.Error != "" {
			reason := listenerUnreachable
			p.Error, broken = &reason, true
		}
		ports = append(ports, p)
	}
	if !broken {
		return nil
	}
	return ports
}
