package e2e

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cloudsim-dev/allinone/conform"
)

// TestConformance runs all conformance checks for the CCM of this project. The test types the
// commands of docs/conformance.md.
func TestConformance(t *testing.T) {
	t.Parallel() // this test mostly waits
	l := newLab(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	url, data := "http://"+address, filepath.Join(l.dir, "cloud")
	cloud := exec.Command(l.allinone, "cloudsim", "--data-dir", data, "--listen", address)
	if err := cloud.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cloud.Process.Signal(os.Interrupt); _ = cloud.Wait() })
	admin, token := filepath.Join(data, "admin.token"), filepath.Join(l.dir, "ccm.token")
	call := func(args ...string) {
		t.Helper()
		l.must(l.allinone, append([]string{"cloud", "--cloud-url", url, "--token-file", admin}, args...)...)
	}
	l.until("the cloud answers", func() string {
		_, err := l.try(l.allinone, "cloud", "--cloud-url", url, "--token-file", admin, "whoami")
		if err != nil {
			return err.Error()
		}
		return ""
	})
	call("service-accounts", "create", "ccm")
	call("role-bindings", "create", "ccm", "--role", "ccm", "--service-account", "ccm")
	call("tokens", "create", "--service-account", "ccm", "--ttl", "1h", "--secret-file", token)
	report := filepath.Join(l.dir, "report")
	const pods = "10.244.0.0/16"
	out, failed := l.try(l.allinone, "conform", "run", "--cloud-url", url, "--token-file", admin, "--observe", "4s", "--report", report, "--routes-cidr", pods,
		"--ccm-command", "exec "+l.allinone+" ccm --kubeconfig $KUBECONFIG --cloud-url "+url+" --cloud-token-file "+token+
			" --leader-elect=false --node-monitor-period=1s --node-status-update-frequency=2s --configure-cloud-routes --cluster-cidr="+pods)
	t.Log("\n" + out)
	if failed != nil {
		t.Error(failed)
	}
	raw, err := os.ReadFile(filepath.Join(report, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r conform.Report
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != len(conform.Checks()) {
		t.Errorf("got %d results, want %d", len(r.Results), len(conform.Checks()))
	}
	for _, x := range r.Results {
		if x.Verdict != conform.Pass {
			t.Errorf("%s: %s: %s", x.ID, x.Verdict, x.Reason)
		}
	}
}
