package dialect

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests, unsupported *prometheus.CounterVec

	seen *resourceSet
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cloudsim_dialect_requests_total", Help: "Requests of a dialect's clients, by call and HTTP status. The call is empty for unsupported calls.",
		}, []string{"dialect", "call", "code"}),
		unsupported: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cloudsim_dialect_unsupported_total", Help: "Unsupported calls, by the resource in their path, or by the name of the call.",
		}, []string{"dialect", "resource"}),
		seen: &resourceSet{names: map[string]bool{}},
	}
	if reg != nil {
		m.requests = registerShared(reg, m.requests)
		m.unsupported = registerShared(reg, m.unsupported)
	}
	return m
}

// registerShared registers the counter c and returns it. If another dialect has registered the same
// metric, registerShared returns the counter of that dialect.
func registerShared(reg prometheus.Registerer, c *prometheus.CounterVec) *prometheus.CounterVec {
	err := reg.Register(c)
	if have, ok := err.(prometheus.AlreadyRegisteredError); ok { //nolint:errorlint // the package returns it unwrapped
		if same, ok := have.ExistingCollector.(*prometheus.CounterVec); ok {
			return same
		}
	}
	return c
}

// maxResources limits the number of different resources in the metric of unsupported calls.
// The metric needs a limit because callers choose the paths of their calls.
const maxResources = 64

type resourceSet struct {
	mu    sync.Mutex
	names map[string]bool
}

// admit reports whether the metric of unsupported calls contains the name of the given resource.
// The metric contains the names of the first maxResources resources. It counts the calls for all
// other resources as "other".
func (m metrics) admit(resource string) bool {
	m.seen.mu.Lock()
	defer m.seen.mu.Unlock()
	if !m.seen.names[resource] && len(m.seen.names) < maxResources {
		m.seen.names[resource] = true
	}
	return m.seen.names[resource]
}
