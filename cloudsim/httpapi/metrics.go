package httpapi

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

type metrics struct {
	requests  *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	throttled *prometheus.CounterVec
	overQuota *prometheus.CounterVec
}

func newMetrics(reg *prometheus.Registry, figures *figures) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cloudsim_api_requests_total", Help: "Requests answered, by operation and HTTP status.",
		}, []string{"operation", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cloudsim_api_request_duration_seconds", Help: "Time to answer a request, by operation. A watch counts when it ends.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"operation"}),
		throttled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cloudsim_api_throttled_requests_total", Help: "Requests that a rate limit or a fault refused with 429, by operation and reason (rate_limit or fault).",
		}, []string{"operation", "reason"}),
		overQuota: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cloudsim_quota_exceeded_total", Help: "Requests that exceeded a quota of a project, by quota.",
		}, []string{"quota"}),
	}
	reg.MustRegister(m.requests, m.seconds, m.throttled, m.overQuota, figures)
	return m
}

func (m *metrics) observe(x *exchange, code int, took time.Duration) {
	operation := x.operation
	if operation == "" {
		operation = "none" // no route, or a route outside the API
	}
	m.requests.WithLabelValues(operation, strconv.Itoa(code)).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
	switch {
	case x.overQuota != "":
		m.overQuota.WithLabelValues(string(x.overQuota)).Inc()
	case x.throttled && x.fault != "":
		m.throttled.WithLabelValues(operation, "fault").Inc()
	case x.throttled:
		m.throttled.WithLabelValues(operation, "rate_limit").Inc()
	}
}

// figures are the metrics of quotas and faults. Each scrape of the metrics reads these
// values from the store.
type figures struct {
	log    *slog.Logger
	engine *engine.Engine
}

var (
	quotaLimit = prometheus.NewDesc("cloudsim_quota_limit", "Limit of each quota of a project.", []string{"project", "quota"}, nil)
	quotaUsage = prometheus.NewDesc("cloudsim_quota_usage", "Usage of each quota of a project.", []string{"project", "quota"}, nil)
	faultHits  = prometheus.NewDesc("cloudsim_fault_hits_total", "Calls that a fault changed, by fault. The series of a fault ends when the fault is deleted.", []string{"fault", "effect"}, nil)
)

func (f *figures) Describe(ch chan<- *prometheus.Desc) {
	ch <- quotaLimit
	ch <- quotaUsage
	ch <- faultHits
}

func (f *figures) Collect(ch chan<- prometheus.Metric) {
	all, err := f.engine.Figures()
	if err != nil {
		f.log.Error("cannot read quotas and faults for the metrics", "err", err)
		return
	}
	for _, q := range all.Quotas {
		ch <- prometheus.MustNewConstMetric(quotaLimit, prometheus.GaugeValue, float64(q.Limit), string(q.Project), string(q.Name))
		if q.Used != nil {
			ch <- prometheus.MustNewConstMetric(quotaUsage, prometheus.GaugeValue, float64(*q.Used), string(q.Project), string(q.Name))
		}
	}
	for _, fault := range all.Faults {
		ch <- prometheus.MustNewConstMetric(faultHits, prometheus.CounterValue, float64(fault.Hits), fault.Name, string(fault.Effect.Type))
	}
}
