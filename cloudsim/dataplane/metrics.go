package dataplane

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// refusal is why a connection was reset instead of forwarded.
type refusal string

const (
	refusedNoTarget refusal = "no_healthy_target"
	refusedDial     refusal = "dial_failed"
	refusedLimit    refusal = "too_many_connections"
)

// metrics counts, by load balancer and mostly by target, what passes. The
// series of a target go with its last connection, those of a load balancer
// with it.
type metrics struct {
	connections, dialFailures, bytes, refused *prometheus.CounterVec
	active                                    *prometheus.GaugeVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	const lb, instance = "load_balancer", "instance"
	return &metrics{
		connections:  counter("cloudsim_lb_connections_total", "Connections forwarded to a target.", lb, instance),
		dialFailures: counter("cloudsim_lb_dial_failures_total", "Attempts to connect to a target that failed.", lb, instance),
		bytes: counter("cloudsim_lb_bytes_total",
			"Bytes forwarded; direction is in (from client to target) or out.", lb, instance, "direction"),
		refused: counter("cloudsim_lb_refused_connections_total",
			"Connections reset without being forwarded; reason is no_healthy_target, dial_failed or too_many_connections.", lb, "reason"),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cloudsim_lb_active_connections", Help: "Connections open to a target now.",
		}, []string{lb, instance}),
	}
}

type collector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

func (m *metrics) all() []collector {
	return []collector{m.connections, m.dialFailures, m.bytes, m.refused, m.active}
}

// Describe makes metrics one prometheus.Collector, so that it is registered
// and taken back in one step.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect is the other half of a prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

// targetStats are one target's own series, looked up once.
type targetStats struct {
	connections, dialFailures prometheus.Counter
	active                    prometheus.Gauge
	bytes                     [2]prometheus.Counter // by direction
}

func (m *metrics) target(lb cloudsim.LoadBalancerID, id cloudsim.InstanceID) targetStats {
	l, i := string(lb), string(id)
	return targetStats{
		connections:  m.connections.WithLabelValues(l, i),
		dialFailures: m.dialFailures.WithLabelValues(l, i),
		active:       m.active.WithLabelValues(l, i),
		bytes: [2]prometheus.Counter{
			in:  m.bytes.WithLabelValues(l, i, in.String()),
			out: m.bytes.WithLabelValues(l, i, out.String()),
		},
	}
}

func (m *metrics) forgetTarget(lb cloudsim.LoadBalancerID, id cloudsim.InstanceID) {
	l, i := string(lb), string(id)
	m.connections.DeleteLabelValues(l, i)
	m.dialFailures.DeleteLabelValues(l, i)
	m.active.DeleteLabelValues(l, i)
	m.bytes.DeleteLabelValues(l, i, in.String())
	m.bytes.DeleteLabelValues(l, i, out.String())
}

func (m *metrics) forget(lb cloudsim.LoadBalancerID) {
	for _, c := range m.all() {
		c.DeletePartialMatch(prometheus.Labels{"load_balancer": string(lb)})
	}
}
