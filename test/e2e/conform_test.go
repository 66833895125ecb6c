package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/internal/freeport"
)

// podRange is the value of the CCM's flag --cluster-cidr in the conformance tests.
const podRange = "10.244.0.0/16"

// conformanceCloud is a cloud for conformance checks. The checks start the CCM.
type conformanceCloud struct {
	*labRun
	url, hcloud, aws string // URLs of the cloud's API and of the APIs of Hetzner Cloud and AWS
	admin, token     string // files with the tokens of the driver and of the CCM
}

// newConformed starts a cloud with the given profile, and creates the service account ccm with the
// given role.
func newConformed(t *testing.T, profile, role string) *conformanceCloud {
	t.Helper()
	c := &conformanceCloud{labRun: newLab(t)}
	ports, err := freeport.Choose(3)
	if err != nil {
		t.Fatal(err)
	}
	address, hcloud, aws := fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1]), fmt.Sprintf("127.0.0.1:%d", ports[2])
	data := filepath.Join(c.dir, "cloud")
	c.url, c.hcloud, c.aws, c.admin, c.token = "http://"+address, "http://"+hcloud+"/v1", "http://"+aws, filepath.Join(data, "admin.token"), filepath.Join(c.dir, "ccm.token")
	cloud := exec.Command(c.allinone, "cloudsim", "--data-dir", data, "--listen", address, "--dialect", "hcloud="+hcloud, "--dialect", "aws="+aws, "--profile", profile)
	if err := cloud.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cloud.Process.Signal(os.Interrupt); _ = cloud.Wait() })
	c.awaitEmpty("the cloud answers", func() string {
		_, err := c.runProgram(c.allinone, "cloud", "--cloud-url", c.url, "--token-file", c.admin, "whoami")
		if err != nil {
			return err.Error()
		}
		return ""
	})
	for _, args := range [][]string{
		{"service-accounts", "create", "ccm"},
		{"role-bindings", "create", "ccm", "--role", role, "--service-account", "ccm"},
		{"tokens", "create", "--service-account", "ccm", "--ttl", "1h", "--secret-file", c.token},
	} {
		c.must(c.allinone, append([]string{"cloud", "--cloud-url", c.url, "--token-file", c.admin}, args...)...)
	}
	return c
}

// runChecks runs the checks with the given environment variables, and returns the results and
// the error of the command.
func (c *conformanceCloud) runChecks(t *testing.T, env []string, args ...string) ([]conform.Result, error) {
	t.Helper()
	report := filepath.Join(c.dir, "report")
	ctx, cancel := context.WithTimeout(t.Context(), scaled(20*time.Minute)) // a failed check takes 30 s
	defer cancel()
	cmd := c.command(ctx, c.allinone, append([]string{"conform", "run", "--observe", "4s", "--report", report, "--routes-cidr", podRange}, args...)...)
	cmd.Env = append(cmd.Environ(), env...)
	out, failed := cmd.CombinedOutput()
	t.Logf("\n%s", out)
	raw, err := os.ReadFile(filepath.Join(report, "report.json"))
	if err != nil {
		t.Fatal(err, failed)
	}
	var r conform.Report
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	if r.Incomplete != "" {
		t.Errorf("the run is not complete: %s", r.Incomplete)
	}
	c.assertNoToken(t, report)
	return r.Results, failed
}

func (c *conformanceCloud) assertNoToken(t *testing.T, report string) {
	t.Helper()
	secret, err := os.ReadFile(c.token)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"report.json", "report.html", "report.md", "junit.xml"} {
		text, err := os.ReadFile(filepath.Join(report, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), strings.TrimSpace(string(secret))) {
			t.Errorf("%s contains the token of the CCM", name)
		}
	}
}

func (c *conformanceCloud) ccm(url string) string {
	return "exec " + c.allinone + " ccm --kubeconfig $KUBECONFIG --cloud-url " + url + " --cloud-token-file " + c.token +
		" --secure-port=0 --leader-elect=${CONFORM_LEADER_ELECT:-false} --enable-leader-migration" +
		" --leader-elect-lease-duration=8s --leader-elect-renew-deadline=6s --leader-elect-retry-period=1s" +
		" --node-monitor-period=1s --node-status-update-frequency=2s --node-deletion-grace=7s --configure-cloud-routes --cluster-cidr=" + podRange
}

// TestConformance runs all conformance checks for the CCM of this project, with the commands of
// docs/conformance.md.
func TestConformance(t *testing.T) {
	t.Parallel() // this test mostly waits
	c := newConformed(t, "realistic", "ccm")
	out := c.must(c.allinone, "cloud", "--cloud-url", c.url, "--token-file", c.admin, "addresses", "create", "conform", "-o", "json")
	var reserved struct{ IP string }
	if err := json.Unmarshal([]byte(out), &reserved); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	results, err := c.runChecks(t, nil, "--cloud-url", c.url, "--token-file", c.admin, "--ccm-command", c.ccm(c.url), "--ccm-rbac", "../../deploy/ccm/rbac.yaml",
		"--claim", "leaderElection: true", "--claim", "leaderMigration: true", "--claim", "staticIP: "+reserved.IP)
	if err != nil {
		t.Error(err)
	}
	if len(results) != len(conform.Checks()) {
		t.Errorf("got %d results, want %d", len(results), len(conform.Checks()))
	}
	for _, x := range results {
		if x.Verdict != conform.Pass {
			t.Errorf("%s: %s: %s", x.ID, x.Verdict, x.Reason)
		}
	}
}

// TestConformanceThroughProxy runs three checks with faults for the CCM of this project. The CCM
// calls the cloud through the recording proxy of `allinone conform run`. This proxy injects the
// faults.
func TestConformanceThroughProxy(t *testing.T) {
	t.Parallel() // this test mostly waits
	c := newConformed(t, "realistic", "ccm")
	results, err := c.runChecks(t, nil, "--cloud-url", c.url, "--token-file", c.admin, "--focus", `^(node\.outage|lb\.lostreply|ops\.restart)$`,
		"--upstream", c.url, "--ccm-command", c.ccm("$CONFORM_API_URL"))
	if err != nil || len(results) != 3 {
		t.Errorf("got %d results, %v, want 3", len(results), err)
	}
	for _, x := range results {
		if x.Verdict != conform.Pass {
			t.Errorf("%s: %s: %s", x.ID, x.Verdict, x.Reason)
		}
	}
}

// TestConformanceOfHetzner runs the checks for Hetzner's unmodified CCM, with the driver hcloud and
// the recording proxy. docs/conformance.md has the table of the results.
func TestConformanceOfHetzner(t *testing.T) {
	onlyNightly(t)
	program := foreignProgram(t, "hcloud-cloud-controller-manager")
	t.Parallel()                              // this test mostly waits
	c := newConformed(t, "instant", "writer") // Hetzner deletes load balancers at once
	secret, err := os.ReadFile(c.token)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{
		"HCLOUD_TOKEN=" + strings.TrimSpace(string(secret)), "HCLOUD_ENDPOINT=" + c.hcloud, "HCLOUD_NETWORK=default", "HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK=true",
		"HCLOUD_METRICS_ENABLED=false", "HCLOUD_LOAD_BALANCERS_LOCATION=sim-1a", "HCLOUD_LOAD_BALANCERS_TYPE=lb11",
		"HCLOUD_LOAD_BALANCERS_DISABLE_IPV6=true", "HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS=true",
	}
	c.expectFailures(t, env, len(conform.Checks()), failuresOfHetzner, "--driver", "hcloud", "--upstream", c.hcloud, "--ccm-command", "HCLOUD_ENDPOINT=$CONFORM_API_URL exec "+program+
		" --cloud-provider=hcloud --leader-elect=false --allow-untagged-cloud --secure-port=0 --node-monitor-period=1s --node-status-update-frequency=2s"+
		" --route-reconciliation-period=2s --kubeconfig=$KUBECONFIG --authentication-kubeconfig=$KUBECONFIG --authorization-kubeconfig=$KUBECONFIG"+
		" --allocate-node-cidrs --cluster-cidr="+podRange)
}

// failuresOfHetzner are the checks that Hetzner's CCM fails. docs/conformance.md explains each of
// them.
var failuresOfHetzner = []string{"node.create-race", "node.outage", "lb.unsupported", "ops.restart"}

// nightly enables the conformance checks of other providers' programs. These checks find errors of
// those programs, and not of this project. So these checks run only with this flag. hack/nightly
// sets the flag.
var nightly = flag.Bool("nightly", false, "also run the conformance checks of other providers' programs")

func onlyNightly(t *testing.T) {
	t.Helper()
	if !*nightly {
		t.Skip("make nightly runs this test")
	}
}

// TestConformanceOfAWS runs the checks for AWS's unmodified CCM, which uses the cloud through the
// dialect aws. docs/conformance.md has the results.
func TestConformanceOfAWS(t *testing.T) {
	onlyNightly(t)
	program := awsProgram(t, "aws-cloud-controller-manager")
	t.Parallel()                              // this test mostly waits
	c := newConformed(t, "instant", "writer") // AWS deletes load balancers at once
	credentials, conf := filepath.Join(c.dir, "aws.credentials"), filepath.Join(c.dir, "aws.conf")
	c.must(c.allinone, "cloud", "--cloud-url", c.url, "--token-file", c.admin, "access-keys", "create", "--service-account", "ccm", "--credentials-file", credentials)
	if err := os.WriteFile(conf, []byte(awsConf("conform")), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"AWS_ENDPOINT_URL=" + c.aws, "AWS_REGION=sim-1", "AWS_EC2_METADATA_DISABLED=true", "AWS_SHARED_CREDENTIALS_FILE=" + credentials}
	ccm := "exec " + program + " --cloud-provider=aws --cloud-config=" + conf + " --leader-elect=false --secure-port=0 --node-monitor-period=1s --node-status-update-frequency=2s --concurrent-service-syncs=10" +
		" --kubeconfig=$KUBECONFIG --authentication-kubeconfig=$KUBECONFIG --authorization-kubeconfig=$KUBECONFIG"
	args := []string{"--cloud-url", c.url, "--token-file", c.admin, "--dialect", "aws"}
	// The checks run one at a time, because parallel checks can make each other fail:
	//   - If Nodes change while the CCM deletes a load balancer, the CCM can fail to delete it.
	//   - If the check route.delete has failed, the CCM changes no routes until the cloud has
	//     deleted the instance of this check.
	// docs/conformance.md describes the causes.
	c.expectFailures(t, env, len(conform.Checks()), nil, append(args, "--routes-cidr=", "--parallel", "1", "--ccm-command", ccm+" --configure-cloud-routes=false")...)
	c.expectFailures(t, env, 4, []string{"route.delete"}, append(args, "--focus", "^route", "--parallel", "1", "--ccm-command",
		ccm+" --configure-cloud-routes --allocate-node-cidrs --cluster-cidr="+podRange+" --route-reconciliation-period=2s")...)
}

// expectFailures runs the checks that the flags in args select. It fails the test if the number of
// results is not count, or if the failed checks are not exactly the expected checks.
func (c *conformanceCloud) expectFailures(t *testing.T, env []string, count int, expected []string, args ...string) {
	t.Helper()
	results, _ := c.runChecks(t, env, args...)
	var failed []string
	for _, x := range results {
		if x.Verdict == conform.Fail {
			failed = append(failed, x.ID)
		}
	}
	if len(results) != count || !slices.Equal(failed, expected) {
		t.Errorf("got %d results, and the failures %v, want %d and %v: also change docs/conformance.md", len(results), failed, count, expected)
	}
}
