package ccm

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// These metrics count the calls to the cloud, measure their duration, and count the calls without
// an answer. KEP-2395 requires these metrics, but upstream does not provide them. The label
// "operation" contains a method and a route, for example "GET /v1/instances/{id}".
var (
	requestsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "cloudsim_cloud_api_requests_total",
		Help:           "Calls to the cloud's API by operation and HTTP status; code is \"none\" if the call got no answer, and \"canceled\" if the caller canceled the call.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"operation", "code"})
	requestDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name:           "cloudsim_cloud_api_request_duration_seconds",
		Help:           "Time until the cloud's API began to answer, by operation.",
		Buckets:        []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		StabilityLevel: metrics.ALPHA,
	}, []string{"operation"})
	connectionFailuresTotal = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "cloudsim_cloud_api_connection_failures_total",
		Help:           "Calls to the cloud's API that got no answer: refused, broken or timed out.",
		StabilityLevel: metrics.ALPHA,
	})
)

var (
	repairsTotal = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "cloudsim_load_balancer_repairs_total",
		Help:           "Repairs of load balancers and of their status in a Service.",
		StabilityLevel: metrics.ALPHA,
	})
	orphanedBalancers = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "cloudsim_orphaned_load_balancers",
		Help:           "Load balancers of this cluster without a Service. A shared load balancer counts once for each Service that does not exist or does not use it any more.",
		StabilityLevel: metrics.ALPHA,
	})
	reloadFailed = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "cloudsim_config_reload_failed",
		Help:           "1 while the configuration file is invalid and the last valid configuration is used.",
		StabilityLevel: metrics.ALPHA,
	})
	orphansDeletedTotal = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "cloudsim_orphaned_load_balancers_deleted_total",
		Help:           "Number of deleted load balancers without a Service. The removal of such a Service from a shared load balancer also counts.",
		StabilityLevel: metrics.ALPHA,
	})
)

// registerMetrics registers the metrics only once in a process. It uses legacyregistry, because the
// command ccm serves the metrics of this registry.
var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(requestsTotal, requestDuration, connectionFailuresTotal, repairsTotal, orphanedBalancers, orphansDeletedTotal, reloadFailed)
})

// newTransport returns an HTTP transport that trusts the certificate authority in the file caFile.
// If caFile is empty, the transport trusts the system's authorities. It keeps enough idle
// connections for all workers. newTransport ignores the error of client.Trust, because
// Config.Validate has already refused an invalid file.
func newTransport(caFile string) http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
	t.MaxIdleConnsPerHost = 32
	_ = client.Trust(t, caFile)
	return t
}

func measuredTransport(base http.RoundTripper) http.RoundTripper {
	registerMetrics()
	return measured{base}
}

type measured struct{ next http.RoundTripper }

func (m measured) RoundTrip(r *http.Request) (*http.Response, error) {
	op := operationOf(r)
	start := time.Now()
	resp, err := m.next.RoundTrip(r)
	requestDuration.WithLabelValues(op).Observe(time.Since(start).Seconds())
	switch {
	case err == nil:
		requestsTotal.WithLabelValues(op, strconv.Itoa(resp.StatusCode)).Inc()
	case errors.Is(r.Context().Err(), context.Canceled):
		requestsTotal.WithLabelValues(op, "canceled").Inc()
	default:
		requestsTotal.WithLabelValues(op, "none").Inc()
		connectionFailuresTotal.Inc()
	}
	return resp, err
}

// routeSegments contains the fixed path segments of the calls that the CCM makes. operationOf
// treats all other path segments as ids.
var routeSegments = []string{"v1", "instances", "load-balancers", "targets", "regions", "routes", "watch", "whoami", "readyz"}

// operationOf returns the method and the route of a request. It replaces each id
// by {id}, because otherwise the metrics would have separate time series for
// each instance.
func operationOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i, p := range parts {
		if !slices.Contains(routeSegments, p) {
			parts[i] = "{id}"
		}
	}
	return r.Method + " /" + strings.Join(parts, "/")
}
