package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// ccmFigures lists metrics of the cloud controller manager. If a KEP sets a service level objective
// (SLO) for a metric, the description contains the SLO. Most of the metrics come from the upstream
// framework. The metrics of calls to the cloud come from this project.
var ccmFigures = []struct{ description, metric, labels string }{
	{"node: creation to initialization (SLO 60 s)", "node_controller_initial_node_sync_delay_seconds", ""},
	{"node: creation to taint removal (SLO 60 s)", "node_controller_cloud_provider_taint_removal_delay_seconds", ""},
	{"service: one sync, including the load balancer", "workqueue_work_duration_seconds", `name="service"`},
	{"service: target update after a node change", "service_controller_update_loadbalancer_host_latency_seconds", ""},
	{"service: call that deletes the load balancer", "cloudsim_cloud_api_request_duration_seconds", `operation="DELETE /v1/load-balancers/{id}"`},
	{"node: call that gets the instance", "cloudsim_cloud_api_request_duration_seconds", `operation="GET /v1/instances/{id}"`},
	{"routes: one reconciliation of all routes", "workqueue_work_duration_seconds", `name="Routes"`},
}

// testFigures prints the mean of each metric in ccmFigures, and checks the metrics that have an
// SLO. Earlier steps have created and deleted a Node and a Service. Most metrics have samples from
// these steps.
func (l *labRun) testFigures(t *testing.T) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", l.processIDs()["ccm"]))
	if err != nil {
		t.Fatal(err)
	}
	port := regexp.MustCompile(`--secure-port=(\d+)`).FindStringSubmatch(string(raw))
	if port == nil {
		t.Fatalf("the command line of the CCM has no --secure-port: %q", raw)
	}
	page := l.kubectl("--server=https://127.0.0.1:"+port[1], "get", "--raw", "/metrics")
	var report strings.Builder
	for _, f := range ccmFigures {
		sum, n := sample(page, f.metric+"_sum", f.labels), sample(page, f.metric+"_count", f.labels)
		if n == 0 {
			fmt.Fprintf(&report, "%-48s no samples\n", f.description)
			continue
		}
		fmt.Fprintf(&report, "%-48s %8.3f s (mean of %.0f samples)\n", f.description, sum/n, n)
		if strings.Contains(f.description, "SLO") && sum/n > 60 {
			t.Errorf("mean of %q: got %.0f s, want at most 60 s", f.description, sum/n)
		}
	}
	t.Log("\n" + report.String())
	dir := filepath.Join(filepath.Dir(l.allinone), "figures") // make e2e prints these files
	lab, _, _ := strings.Cut(t.Name(), "/")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, lab), []byte(report.String()), 0o600)); err != nil {
		t.Error(err)
	}
	if sample(page, "node_controller_initial_node_sync_delay_seconds_count", "") == 0 {
		t.Error("the CCM initialized no Node")
	}
}

// sample returns the value of a metric with the given labels, or 0 if the metric is missing.
func sample(page, metric, labels string) float64 {
	for line := range strings.Lines(page) {
		at := max(strings.LastIndex(line, " "), 0) // labels may contain spaces
		series, _, _ := strings.Cut(line[:at], "{")
		if series != metric || !strings.Contains(line[:at], labels) {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err == nil {
			return v
		}
	}
	return 0
}
