package agent

import (
	"errors"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// fromServer and toServer are indexes of segmentNames, the values of the metric label "segment".
// Upstream's agent uses the same values.
const (
	fromServer = iota
	toServer
)

var segmentNames = [...]string{fromServer: "from_server", toServer: "to_server"}

// packetTypes is the number of upstream's packet types.
const packetTypes = 7

// agentMetrics holds the metrics of an agent. A metric that also exists in upstream's
// agent has the same name in both agents.
type agentMetrics struct {
	dialSeconds prometheus.Histogram
	dialFailed  *prometheus.CounterVec
	serverFail  prometheus.Counter
	known       prometheus.Gauge
	cut         prometheus.Counter
	toTarget    prometheus.Counter
	fromTarget  prometheus.Counter
	packets     [len(segmentNames)][packetTypes]prometheus.Counter
}

const prefix = "konnectivity_network_proxy_agent_"

func newMetrics(reg prometheus.Registerer, a *Agent) (*agentMetrics, error) {
	opts := func(name, help string) prometheus.Opts { return prometheus.Opts{Name: prefix + name, Help: help} }
	packets := prometheus.NewCounterVec(prometheus.CounterOpts(opts("stream_packets_total", "Packets on the Connect stream by segment and type.")), []string{"segment", "packet_type"})
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts(opts("bytes_total", "Bytes of connections by direction.")), []string{"direction"})
	m := &agentMetrics{
		dialSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "dial_duration_seconds", Help: "Seconds until a connection to a target was open.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 2.5, 10, 30},
		}),
		dialFailed: prometheus.NewCounterVec(prometheus.CounterOpts(opts("endpoint_dial_failure_total", "Failed dials of targets by reason.")), []string{"reason"}),
		serverFail: prometheus.NewCounter(prometheus.CounterOpts(opts("server_call_failures_total", "Failed calls to servers."))),
		known:      prometheus.NewGauge(prometheus.GaugeOpts(opts("known_server_count", "Number of servers, as far as the agent can count them."))),
		cut:        prometheus.NewCounter(prometheus.CounterOpts(opts("slow_targets_cut_total", "Connections in the protocol of apiserver-network-proxy that the agent closed because the target did not read."))),
		toTarget:   bytes.WithLabelValues("to_target"),
		fromTarget: bytes.WithLabelValues("from_target"),
	}
	for seg, name := range segmentNames {
		for typ, label := range client.PacketType_name {
			m.packets[seg][typ] = packets.WithLabelValues(name, label)
		}
	}
	servers := prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("open_server_connections", "Sessions with servers.")),
		func() float64 { return float64(a.connected()) })
	targets := prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("open_endpoint_connections", "Connections to targets.")),
		func() float64 { return float64(a.open.Load()) })
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.dialSeconds, m.dialFailed, m.serverFail, m.known, m.cut, packets, bytes, servers, targets} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *agentMetrics) packet(segment int, typ client.PacketType) {
	if typ >= 0 && int(typ) < len(m.packets[segment]) {
		m.packets[segment][typ].Inc()
	}
}

func (m *agentMetrics) dialed(took time.Duration, err error) {
	if err == nil {
		m.dialSeconds.Observe(took.Seconds())
		return
	}
	reason := "unknown"
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		reason = "timeout"
	}
	m.dialFailed.WithLabelValues(reason).Inc()
}

func (m *agentMetrics) callFailed()        { m.serverFail.Inc() }
func (m *agentMetrics) knownServers(n int) { m.known.Set(float64(n)) }
func (m *agentMetrics) cutOff()            { m.cut.Inc() }
