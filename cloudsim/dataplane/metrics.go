package dataplane

import "github.com/prometheus/client_golang/prometheus"

// refusal is the reason why the data plane did not forward a connection or a datagram.
type refusal string

const (
	refusedNoTarget refusal = "no_healthy_target"
	refusedDial     refusal = "dial_failed"
	refusedLimit    refusal = "too_many_connections"
	refusedSource   refusal = "source_range"
)

// metrics is a Prometheus collector of Counters. It reads the counters at each scrape. The metrics
// of a removed target disappear when the last connection to the target ends. The metrics of a
// deleted load balancer disappear when its last connection ends. Two labels identify a target
// together with its instance:
//   - If the target is an address behind the instance, the label ip is this address. If the target
//     is the instance itself, the label ip is empty.
//   - If the target belongs to a listener's own pool, the label listener is the key of this
//     listener. If the target belongs to the load balancer's pool, the label listener is empty.
type metrics struct{ counters *Counters }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("cloudsim_lb_"+name, help, labels, nil)
}

var (
	descConnections = desc("connections_total", "Connections and UDP flows forwarded to a target.", "load_balancer", "instance", "ip", "listener")
	descFailedDials = desc("dial_failures_total", "Failed attempts to connect to a target.", "load_balancer", "instance", "ip", "listener")
	descBytes       = desc("bytes_total", "Bytes forwarded; direction is in (from client to target) or out.", "load_balancer", "instance", "ip", "listener", "direction")
	descActive      = desc("active_connections", "Open connections and UDP flows to a target.", "load_balancer", "instance", "ip", "listener")
	descRefused     = desc("refused_connections_total",
		"Connections and datagrams that were not forwarded; reason is no_healthy_target, dial_failed, too_many_connections or source_range.", "load_balancer", "reason")
)

// Describe implements prometheus.Collector.
func (metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descConnections, descFailedDials, descBytes, descActive, descRefused} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. The time of a call is proportional
// to the number of targets of all load balancers.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	for _, b := range m.counters.all() {
		lb := string(b.id)
		count := func(d *prometheus.Desc, n uint64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{lb}, labels...)...)
		}
		for _, t := range b.stats().Targets {
			i := string(t.Instance)
			count(descConnections, t.Connections, i, t.IP, t.Listener)
			count(descFailedDials, t.FailedDials, i, t.IP, t.Listener)
			count(descBytes, t.BytesIn, i, t.IP, t.Listener, in.String())
			count(descBytes, t.BytesOut, i, t.IP, t.Listener, out.String())
			ch <- prometheus.MustNewConstMetric(descActive, prometheus.GaugeValue, float64(t.Active), lb, i, t.IP, t.Listener)
		}
		for why, n := range b.sumRefusals() {
			count(descRefused, n, string(why))
		}
	}
}
