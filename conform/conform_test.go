package conform_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/conform/fake"
)

// startAPIServer runs an API server until the test ends.
func startAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	admin, _ := startCluster(t)
	return admin
}

// startCluster is like startAPIServer. It also returns the path of a kubeconfig file.
func startCluster(t *testing.T) (admin *rest.Config, kubeconfig string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts an API server: run make e2e")
	}
	server, err := conform.StartAPIServer(t.Context(), "../bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, server.Kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return server.Admin, kubeconfig
}

// run runs the checks with the IDs that match focus, for a fake CCM with this bug. The CCM has the
// time timeout for each reaction.
func run(t *testing.T, admin *rest.Config, bug fake.Bug, focus string, timeout time.Duration) conform.Report {
	t.Helper()
	cloud := fake.NewCloud()
	r, err := conform.Run(t.Context(), conform.Config{
		Kube: admin, Driver: cloud, Subject: &fake.Manager{Kube: admin, Cloud: cloud, Bug: bug},
		Focus: regexp.MustCompile("^(" + focus + ")$"), Timeout: timeout, Observe: 1500 * time.Millisecond, AllowExisting: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFake runs all checks for a CCM without bugs.
func TestFake(t *testing.T) {
	r := run(t, startAPIServer(t), "", ".*", 15*time.Second)
	if len(r.Results) != len(conform.Checks()) {
		t.Errorf("got %d results, want %d", len(r.Results), len(conform.Checks()))
	}
	for _, x := range r.Results {
		if x.Verdict != conform.Pass {
			t.Errorf("%s: %s: %s\n%s", x.ID, x.Verdict, x.Reason, strings.Join(x.Timeline, "\n"))
		}
		t.Logf("%-16s %s", x.ID, x.Took.Round(time.Millisecond))
	}
}

// bugs contains the checks that each bug must turn red.
var bugs = map[fake.Bug][]string{
	fake.NoZone:              {"node.init", "node.labels"},
	fake.OtherProviderID:     {"node.providerid"},
	fake.NoExternalIP:        {"node.addresses"},
	fake.EveryAddress:        {"node.nodeip"},
	fake.UnknownInitialised:  {"node.unknown"},
	fake.ForeignDeleted:      {"node.foreign"},
	fake.NeverShutdown:       {"node.shutdown"},
	fake.StoppedIsDeleted:    {"node.shutdown"},
	fake.NotFoundError:       {"node.deleted", "node.replaced"},
	fake.ErrorIsDeleted:      {"node.outage"},
	fake.EmptyListIsDeleted:  {"node.outage"},
	fake.LookupByName:        {"node.replaced"},
	fake.WrongNodePort:       {"lb.ensure", "lb.ports", "lb.udp"},
	fake.PortsNotUpdated:     {"lb.ports"},
	fake.Recreate:            {"lb.ports"},
	fake.NodesNotUpdated:     {"lb.nodes"},
	fake.Leak:                {"lb.delete", "lb.type"},
	fake.EveryClass:          {"lb.class"},
	fake.NameOnly:            {"lb.collision"},
	fake.NoSourceRanges:      {"lb.sourceranges"},
	fake.UDPAsTCP:            {"lb.udp"},
	fake.CachedLoadBalancers: {"lb.drift"},
	fake.Duplicate:           {"lb.lostreply", "ops.crash"},
	fake.NoRoutes:            {"route.create"},
	fake.RoutesNotRepaired:   {"route.repair"},
	fake.RoutesNotDeleted:    {"route.delete"},
	fake.EveryRoute:          {"route.foreign"},
	fake.WriteAtStart:        {"ops.restart"},
}

// TestEachBugIsFound proves that each check fails for a CCM with the bug that the check looks for. It
// also runs one check that the bug does not concern.
func TestEachBugIsFound(t *testing.T) {
	admin := startAPIServer(t)
	for bug, red := range bugs {
		t.Run(string(bug), func(t *testing.T) {
			green := "node.unknown"
			if slices.Contains(red, green) {
				green = "lb.class"
			}
			timeout := 4 * time.Second
			if bug == fake.Duplicate {
				timeout = 12 * time.Second // upstream's controller repeats a failed call after 5 s
			}
			r := run(t, admin, bug, strings.Join(append(red, green), "|"), timeout)
			for _, x := range r.Results {
				want := conform.Fail
				if x.ID == green {
					want = conform.Pass
				}
				if x.Verdict != want {
					t.Errorf("%s: got %s, want %s: %s", x.ID, x.Verdict, want, x.Reason)
				}
				if x.Verdict == conform.Fail && len(x.Timeline) == 0 {
					t.Errorf("%s: the failure has no timeline", x.ID)
				}
			}
			if len(r.Results) != len(red)+1 {
				t.Errorf("got %d results, want %d", len(r.Results), len(red)+1)
			}
		})
	}
}

// TestEveryCheckCanFail proves that TestEachBugIsFound covers all bugs and all checks.
func TestEveryCheckCanFail(t *testing.T) {
	covered := map[string]bool{}
	for _, bug := range fake.Bugs() {
		if len(bugs[bug]) == 0 {
			t.Errorf("TestEachBugIsFound omits the bug %s", bug)
		}
		for _, id := range bugs[bug] {
			covered[id] = true
		}
	}
	for _, c := range conform.Checks() {
		if !covered[c.ID] {
			t.Errorf("no bug turns the check %s red", c.ID)
		}
	}
}

func ExampleChecks() {
	for _, c := range conform.Checks() {
		if c.Level == conform.Should {
			fmt.Fprintln(os.Stdout, c.ID)
		}
	}
	// Output:
	// node.replaced
	// lb.drift
	// ops.restart
}

// TestDocumentation proves that docs/conformance.md describes each check with its level.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conform.Checks() {
		if row := fmt.Sprintf("| `%s` | %s |", c.ID, c.Level); !strings.Contains(string(page), row) {
			t.Errorf("docs/conformance.md has no row that begins with %s", row)
		}
	}
	if got, want := strings.Count(string(page), "\n| `"), len(conform.Checks()); got != want {
		t.Errorf("docs/conformance.md has %d rows for %d checks", got, want)
	}
}
