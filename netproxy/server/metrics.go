package server

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// These constants are indexes of segmentNames, the values of the metric label "segment".
// Upstream's server uses the same values.
const (
	fromClient = iota
	toClient
	fromAgent
	toAgent
)

var segmentNames = [...]string{fromClient: "from_client", toClient: "to_client", fromAgent: "from_agent", toAgent: "to_agent"}

// packetTypes is the number of upstream's packet types.
const packetTypes = 7

const prefix = "konnectivity_network_proxy_server_"

// metrics holds the metrics of a server. A metric that also exists in upstream's
// server has the same name in both servers.
type metrics struct {
	dialSeconds     prometheus.Histogram
	lifetime        prometheus.Histogram
	connections     *prometheus.GaugeVec
	httpConnections prometheus.Gauge
	pending         prometheus.Gauge
	dialFailed      *prometheus.CounterVec
	retries         prometheus.Counter
	cut             prometheus.Counter
	refusedAgents   prometheus.Counter
	toTarget        prometheus.Counter
	fromTarget      prometheus.Counter
	packets         [len(segmentNames)][packetTypes]prometheus.Counter
}

func opts(name, help string) prometheus.Opts { return prometheus.Opts{Name: prefix + name, Help: help} }

func histogram(name, help string, buckets ...float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
}

func newMetrics(reg prometheus.Registerer, s *Server) (*metrics, error) {
	packets := prometheus.NewCounterVec(prometheus.CounterOpts(opts("stream_packets_total", "Packets by segment and type.")), []string{"segment", "packet_type"})
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts(opts("bytes_total", "Bytes of connections by direction.")), []string{"direction"})
	m := &metrics{
		dialSeconds:     histogram("dial_duration_seconds", "Seconds from a client's request until the connection to the target was open.", 0.005, 0.025, 0.1, 0.5, 2.5, 10, 30),
		lifetime:        histogram("connection_duration_seconds", "Seconds from the start to the end of a connection.", 0.1, 1, 10, 60, 600, 3600, 86400),
		connections:     prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("grpc_connections", "Open gRPC streams by method.")), []string{"service_method"}),
		httpConnections: gauge("http_connections", "Connected HTTP CONNECT clients."),
		pending:         gauge("pending_backend_dials", "Dials in progress."),
		dialFailed:      prometheus.NewCounterVec(prometheus.CounterOpts(opts("dial_failure_count", "Failed dials by reason.")), []string{"reason"}),
		retries:         counter("dial_retries_total", "Retries of failed dials, each with another agent."),
		cut:             counter("slow_clients_cut_total", "Connections through agents of apiserver-network-proxy that the server closed because the client did not read."),
		refusedAgents:   counter("refused_agents_total", "Refused agents."),
		toTarget:        bytes.WithLabelValues("to_target"),
		fromTarget:      bytes.WithLabelValues("from_target"),
	}
	for seg, name := range segmentNames {
		for typ, label := range client.PacketType_name {
			m.packets[seg][typ] = packets.WithLabelValues(name, label)
		}
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.dialSeconds, m.lifetime, m.connections, m.httpConnections, m.pending, m.dialFailed, m.retries, m.cut, m.refusedAgents,
		packets, bytes, &collector{s},
	} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) packet(segment int, typ client.PacketType) {
	if typ >= 0 && int(typ) < len(m.packets[segment]) {
		m.packets[segment][typ].Inc()
	}
}

func (m *metrics) agentRefused() { m.refusedAgents.Inc() }

// collector computes its metrics from the server's current state at each scrape.
type collector struct{ server *Server }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

var (
	descEstablished = desc("established_connections", "Open connections.")
	descReady       = desc("ready_backends", "Connected agents that a strategy can select, by strategy.", "proxy_strategy")
	descAgentOpen   = desc("agent_connections", "Open connections and dials in progress of an agent.", "agent")
	descAgentBytes  = desc("agent_bytes_total", "Bytes of an agent's connections since the agent connected, by direction.", "agent", "direction")
	descPlaceOpen   = desc("destination_connections", "Open connections to a host; hosts beyond the first 500 are counted as other.", "destination")
	descPlaceOpened = desc("destination_connections_total", "Connections to a host since the start.", "destination")
	descPlaceBytes  = desc("destination_bytes_total", "Bytes of connections to a host since the start, by direction.", "destination", "direction")
)

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descEstablished, descReady, descAgentOpen, descAgentBytes, descPlaceOpen, descPlaceOpened, descPlaceBytes} {
		out <- d
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.server
	now := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	ever := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	now(descEstablished, int64(s.conns.count()))
	sessions := s.agents.list()
	for _, by := range s.cfg.Strategies {
		n := int64(0)
		for _, ses := range sessions {
			if ses.canReachAny(by, s.cfg.Zone) {
				n++
			}
		}
		now(descReady, n, string(by))
	}
	type sum struct{ open, toward, back int64 }
	agents := map[string]sum{} // an agent may have several sessions
	for _, ses := range sessions {
		a := agents[ses.agentID]
		agents[ses.agentID] = sum{a.open + ses.load.Load(), a.toward + ses.toward.Load(), a.back + ses.back.Load()}
	}
	for id, a := range agents {
		now(descAgentOpen, a.open, id)
		ever(descAgentBytes, a.toward, id, "to_target")
		ever(descAgentBytes, a.back, id, "from_target")
	}
	_, places := s.conns.list()
	for _, p := range places {
		now(descPlaceOpen, p.open.Load(), p.host)
		ever(descPlaceOpened, p.opened.Load(), p.host)
		ever(descPlaceBytes, p.toward.Load(), p.host, "to_target")
		ever(descPlaceBytes, p.back.Load(), p.host, "from_target")
	}
}
