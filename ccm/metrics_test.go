package ccm_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// nonzeroCounters returns the values of the metrics about calls to the cloud. It omits metrics with
// the value 0. For a histogram, it returns the number of observations. It reads the metrics from
// the registry that the command `ccm` serves.
func nonzeroCounters(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "cloudsim_cloud_api_") {
			continue
		}
		for _, m := range f.GetMetric() {
			key := strings.TrimPrefix(f.GetName(), "cloudsim_cloud_api_")
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			v := m.GetCounter().GetValue()
			if h := m.GetHistogram(); h != nil {
				v = float64(h.GetSampleCount())
			}
			if v != 0 {
				got[key] = v
			}
		}
	}
	return got
}

// The metrics count calls to the cloud by route and status. A separate metric
// counts the calls without an answer.
func TestCallsAreCounted(t *testing.T) {
	c := cloudtest.Start(t)
	c.HTTP.Transport = ccm.Measure(c.HTTP.Transport)
	before := nonzeroCounters(t)
	ctx := t.Context()
	for _, id := range []cloudsim.InstanceID{"i-000001", "i-000002"} {
		_, _ = c.GetInstance(ctx, id)
	}
	_, _ = c.ListLoadBalancers(ctx, cloudsim.ListOptions{Name: "x"})
	gaveUp, cancel := context.WithCancel(ctx)
	cancel()
	_, _ = c.GetInstance(gaveUp, "i-000001")

	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	c.URL = dead.URL
	_, _ = c.SetLoadBalancerTargets(ctx, "lb-000001", cloudsim.SetTargets{})

	got := nonzeroCounters(t)
	for k, v := range before {
		if got[k] -= v; got[k] == 0 {
			delete(got, k)
		}
	}
	want := map[string]float64{
		"requests_total 404 GET /v1/instances/{id}":                    2,
		"requests_total 200 GET /v1/load-balancers":                    1,
		"requests_total canceled GET /v1/instances/{id}":               1,
		"requests_total none PUT /v1/load-balancers/{id}/targets":      1,
		"connection_failures_total":                                    1,
		"request_duration_seconds GET /v1/instances/{id}":              3,
		"request_duration_seconds GET /v1/load-balancers":              1,
		"request_duration_seconds PUT /v1/load-balancers/{id}/targets": 1,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// The label "operation" has only a small number of values, because it never contains an id.
func TestOperationIsARoute(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/instances/i-000001":       "GET /v1/instances/{id}",
		"/v1/instances/a%2Fb":          "GET /v1/instances/{id}/{id}",
		"/v1/instances":                "GET /v1/instances",
		"/base/v1/load-balancers/x":    "GET /{id}/v1/load-balancers/{id}",
		"/v1/load-balancers/x/targets": "GET /v1/load-balancers/{id}/targets",
	} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if got := ccm.Operation(r); got != want {
			t.Errorf("operation of the path %s: got %q, want %q", path, got, want)
		}
	}
}
