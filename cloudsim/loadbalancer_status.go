package cloudsim

// LoadBalancerStatus is the data plane's report about a load balancer.
type LoadBalancerStatus struct {
	Condition LoadBalancerCondition `json:"condition,omitempty" enum:"working,degraded,failed" doc:"working: all listeners accept connections at their address and port. degraded: some listeners accept no connections, or accept connections at other ports. failed: no listener accepts connections. Absent until the data plane reports it"`
	Reason    string                `json:"reason,omitempty" doc:"Reason why the load balancer does not work, and the next step for the user"`
	Listeners []ListenerStatus      `json:"listeners,omitempty" doc:"One entry for each listener and address, and one for each published port, in the order of the listeners"`
	Targets   []TargetStatus        `json:"targets,omitempty" doc:"One entry for each target of the listeners that use the load balancer's targets and health check, in the order of the targets. After them, one entry for each target of each other listener. After them, removed targets that still have connections"`
}

// LoadBalancerCondition sums up the status of a load balancer's listeners.
type LoadBalancerCondition string

const (
	LoadBalancerWorking  LoadBalancerCondition = "working"
	LoadBalancerDegraded LoadBalancerCondition = "degraded"
	LoadBalancerFailed   LoadBalancerCondition = "failed"
)

// ListenerStatus describes where clients can reach a listener.
type ListenerStatus struct {
	Protocol Protocol `json:"protocol" enum:"tcp,udp"`
	Port     int      `json:"port"`
	IP       string   `json:"ip" doc:"Address of the load balancer, or host of the published port"`
	// If Port is below 1024 and the cloud has no privileges for this port, Endpoint has a higher
	// port.
	Endpoint string `json:"endpoint,omitempty" doc:"host:port that accepts connections; absent if there is none" example:"127.65.0.1:80"`
	Error    string `json:"error,omitempty" doc:"Reason why there is no endpoint, or why the endpoint has another port"`
}

// TargetHealth is the result of the probes of a target.
type TargetHealth string

const (
	TargetInitial   TargetHealth = "initial" // too few probes so far; the target receives no connections
	TargetHealthy   TargetHealth = "healthy"
	TargetUnhealthy TargetHealth = "unhealthy"
	TargetDraining  TargetHealth = "draining" // removed: existing connections may continue until the drain timeout
)

// TargetStatus is the health of one target.
type TargetStatus struct {
	Instance InstanceID   `json:"instance"`
	IP       string       `json:"ip,omitempty" doc:"Address of the target, if the target has its own address"`
	Listener string       `json:"listener,omitempty" doc:"Protocol and port of the listener, if the entry is for only this listener, because the listener has its own targets or health check" example:"tcp/80"`
	Health   TargetHealth `json:"health" enum:"initial,healthy,unhealthy,draining"`
	Reason   string       `json:"reason,omitempty" doc:"Reason why the target is not healthy"`
}

// LoadBalancerStats counts the traffic of a load balancer since the data plane
// started this load balancer. The cloud reads the counters from the data plane
// on request. It does not store the counters, and writes no events about them.
type LoadBalancerStats struct {
	Listeners []ListenerStats `json:"listeners" doc:"One entry for each listener, in the order of the load balancer's listeners"`
	Targets   []TargetStats   `json:"targets" doc:"One entry for each target, in the order of status.targets. After them, targets that drain"`
}

// LoadBalancerTraffic contains the traffic counters of one load balancer, with its id, name and
// project.
type LoadBalancerTraffic struct {
	ID      LoadBalancerID `json:"id" example:"lb-000001"`
	Name    string         `json:"name" example:"shop"`
	Project ProjectID      `json:"project" example:"proj-000001"`
	LoadBalancerStats
}

// ListenerStats counts the connections, or UDP flows, of one listener.
type ListenerStats struct {
	Protocol Protocol `json:"protocol" enum:"tcp,udp"`
	Port     int      `json:"port"`
	Accepted uint64   `json:"accepted" doc:"Number of connections or flows that clients began"`
	Active   int      `json:"active" doc:"Number of open connections or flows"`
	Refused  Refusals `json:"refused"`
}

// Refusals counts the connections or datagrams that a listener did not forward.
// Each reason has its own counter.
type Refusals struct {
	SourceRange        uint64 `json:"sourceRange" doc:"Number of refused connections from clients outside the source ranges"`
	NoHealthyTarget    uint64 `json:"noHealthyTarget"`
	DialFailed         uint64 `json:"dialFailed" doc:"Number of connections for which no target answered"`
	TooManyConnections uint64 `json:"tooManyConnections"`
}

// TargetStats counts the traffic of one target in both directions.
type TargetStats struct {
	Instance    InstanceID `json:"instance"`
	IP          string     `json:"ip,omitempty" doc:"Address of the target, if the target has its own address"`
	Listener    string     `json:"listener,omitempty" doc:"Protocol and port of the listener, if the entry is for only this listener, because the listener has its own targets or health check" example:"tcp/80"`
	Connections uint64     `json:"connections" doc:"Number of connections or flows to the target"`
	Active      int        `json:"active" doc:"Number of open connections or flows"`
	FailedDials uint64     `json:"failedDials" doc:"Number of failed connection attempts to the target"`
	BytesIn     uint64     `json:"bytesIn" doc:"Bytes from clients to the target"`
	BytesOut    uint64     `json:"bytesOut" doc:"Bytes from the target to clients"`
}

// StatusFor returns the part of s that describes the current listeners and targets of l, in
// the order in which l lists them. Removed targets that still have connections follow at
// the end. If s describes none of the listeners, the condition and the reason are empty.
func (l LoadBalancer) StatusFor(s LoadBalancerStatus) LoadBalancerStatus {
	out := LoadBalancerStatus{Condition: s.Condition, Reason: s.Reason}
	for _, li := range l.Listeners {
		for _, ip := range l.listenerAddresses(li) {
			for _, have := range s.Listeners {
				if have.Protocol == li.Protocol && have.Port == li.Port && have.IP == ip {
					out.Listeners = append(out.Listeners, have)
				}
			}
		}
	}
	if len(out.Listeners) == 0 {
		out.Condition, out.Reason = "", ""
	}
	known := make(map[TargetKey]TargetStatus, len(s.Targets))
	for _, t := range s.Targets {
		known[t.Key()] = t
	}
	for _, p := range l.Pools() {
		for _, k := range p.Keys() {
			if have, ok := known[k]; ok {
				out.Targets = append(out.Targets, have)
				delete(known, k)
			}
		}
	}
	for _, t := range s.Targets {
		if _, left := known[t.Key()]; left && t.Health == TargetDraining {
			out.Targets = append(out.Targets, t)
		}
	}
	return out
}

// listenerAddresses returns the addresses on which a listener has a socket: the addresses
// of the load balancer, and the host of the listener's published port.
func (l LoadBalancer) listenerAddresses(li Listener) []string {
	var ips []string
	for _, a := range l.Addresses {
		ips = append(ips, a.IP)
	}
	for _, p := range l.Published {
		if p.Protocol == li.Protocol && p.Port == li.Port {
			ips = append(ips, p.Host)
		}
	}
	return ips
}

// Key returns the key of the target that t describes.
func (t TargetStatus) Key() TargetKey { return TargetKey{t.Instance, t.IP, t.Listener} }

// Key returns the key of the target that t describes.
func (t TargetStats) Key() TargetKey { return TargetKey{t.Instance, t.IP, t.Listener} }
