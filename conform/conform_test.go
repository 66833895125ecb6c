package conform_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/conform/fake"
)

func startAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	admin, _ := startCluster(t)
	return admin
}

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

func runChecks(t *testing.T, admin *rest.Config, bug fake.Bug, focus string, timeLimit time.Duration) conform.Report {
	t.Helper()
	cloud := fake.NewCloud()
	r, err := conform.Run(t.Context(), conform.Config{
		Kube: admin, Driver: cloud, Subject: &fake.Manager{Kube: admin, Cloud: cloud, Bug: bug},
		Focus: regexp.MustCompile("^(" + focus + ")$"), Timeout: timeLimit, Observe: 1500 * time.Millisecond, AllowExisting: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFakeCCMPassesAllChecks(t *testing.T) {
	t.Parallel()
	r := runChecks(t, startAPIServer(t), "", ".*", conform.DefaultTimeout)
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

// failingChecks maps each bug of the package fake to the IDs of the checks that must fail if the
// fake CCM has this bug.
var failingChecks = map[fake.Bug][]string{
	fake.NoZone:              {"node.init", "node.labels"},
	fake.OtherProviderID:     {"node.providerid"},
	fake.NoExternalIP:        {"node.addresses"},
	fake.EveryAddress:        {"node.nodeip"},
	fake.UnknownInitialized:  {"node.unknown"},
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
	fake.NewIsDeleted:        {"node.create-race"},
	fake.NoBetaLabels:        {"node.labelrepair"},
	fake.SlowCreation:        {"lb.abort"},
	fake.OtherFinalizers:     {"lb.conflict"},
	fake.DrainedNodes:        {"lb.drain"},
	fake.SilentSCTP:          {"lb.unsupported"},
	fake.OneProtocol:         {"lb.mixed"},
	fake.NoAffinity:          {"lb.affinity"},
	fake.SingleStack:         {"lb.dualstack"},
	fake.NoInternal:          {"lb.internal"},
	fake.NoStaticIP:          {"lb.ip"},
	fake.NoLocalCheck:        {"lb.etp-local"},
	fake.NoIPMode:            {"lb.ipmode"},
	fake.SharedDeleted:       {"lb.sharing"},
	fake.NoElection:          {"ops.leader"},
	fake.NoMigration:         {"ops.migrate"},
	fake.NoNodeDeletion:      {"ops.rbac", "node.deleted", "node.replaced"},
	fake.Storm:               {"ops.throttle"},
	fake.IdleWrites:          {"ops.budget"},
	fake.SlowMetadata:        {"ops.slo"},
	fake.MemoryOnly:          {"ops.restart", "ops.crash", "lb.orphan"},
}

// TestEachBugIsFound proves for each bug that the checks in failingChecks fail. It also proves that
// a check that does not concern the bug passes.
func TestEachBugIsFound(t *testing.T) {
	t.Parallel()
	todo := make(chan fake.Bug, len(failingChecks))
	for bug := range failingChecks {
		todo <- bug
	}
	close(todo)
	var running sync.WaitGroup
	for range 3 { // only three API servers, because each of them needs 300 MiB of memory
		admin := startAPIServer(t)
		running.Go(func() {
			for bug := range todo {
				t.Run(string(bug), func(t *testing.T) { findBug(t, admin, bug, failingChecks[bug]) })
			}
		})
	}
	running.Wait()
}

// findBug runs the checks in failingIDs, which must fail. It also runs one check that does not
// concern the bug. This check must pass.
func findBug(t *testing.T, admin *rest.Config, bug fake.Bug, failingIDs []string) {
	green := "node.unknown"
	if slices.Contains(failingIDs, green) {
		green = "lb.class"
	}
	timeout := 4 * time.Second
	if bug == fake.Duplicate || bug == fake.NoMigration {
		timeout = 12 * time.Second // upstream's controller repeats a failed call after 5 s, and a Lease expires after 4 s
	}
	r := runChecks(t, admin, bug, strings.Join(append(slices.Clone(failingIDs), green), "|"), timeout)
	for _, x := range r.Results {
		want := conform.Fail
		if x.ID == green {
			want = conform.Pass
		}
		if x.Verdict != want {
			t.Errorf("%s: got %s, want %s: %s", x.ID, x.Verdict, want, x.Reason)
		}
		if x.Verdict == conform.Fail && len(x.Timeline) == 0 && x.ID != "ops.rbac" { // the check ops.rbac creates no objects
			t.Errorf("%s: the failure has no timeline", x.ID)
		}
	}
	if len(r.Results) != len(failingIDs)+1 {
		t.Errorf("got %d results, want %d", len(r.Results), len(failingIDs)+1)
	}
}

// TestEveryCheckCanFail proves that TestEachBugIsFound covers all bugs and all checks.
func TestEveryCheckCanFail(t *testing.T) {
	covered := map[string]bool{}
	for _, bug := range fake.Bugs() {
		if len(failingChecks[bug]) == 0 {
			t.Errorf("TestEachBugIsFound omits the bug %s", bug)
		}
		for _, id := range failingChecks[bug] {
			covered[id] = true
		}
	}
	for _, c := range conform.Checks() {
		if !covered[c.ID] {
			t.Errorf("no bug makes the check %s fail", c.ID)
		}
	}
}

type badDriver struct {
	*fake.Cloud
	create func(context.Context, conform.Machine) (conform.Machine, error)
	remove func(context.Context, string) error
}

func (d badDriver) CreateMachine(ctx context.Context, m conform.Machine) (conform.Machine, error) {
	if d.create == nil {
		return d.Cloud.CreateMachine(ctx, m)
	}
	return d.create(ctx, m)
}

func (d badDriver) DeleteMachine(ctx context.Context, name string) error {
	if d.remove == nil {
		return d.Cloud.DeleteMachine(ctx, name)
	}
	return d.remove(ctx, name)
}

// TestBadDriver proves that checks fail if a call of the driver gives a wrong answer, hangs or
// panics. It also proves that the results contain the cause, and that the run ends.
func TestBadDriver(t *testing.T) {
	admin := startAPIServer(t)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	for name, test := range map[string]struct {
		driver badDriver
		want   string // expected text in the reason of the check node.deleted
	}{
		"creates nothing": {badDriver{create: func(_ context.Context, m conform.Machine) (conform.Machine, error) { return m, nil }}, "CreateMachine returned the machine"},
		"deletes nothing": {badDriver{remove: func(context.Context, string) error { return nil }}, "but GetMachine still finds it"},
		"hangs": {badDriver{create: func(_ context.Context, m conform.Machine) (conform.Machine, error) {
			<-stop // this call ignores its context
			return m, nil
		}}, "CreateMachine: the call of the driver does not return within 4s"},
		"panics": {badDriver{create: func(context.Context, conform.Machine) (conform.Machine, error) { panic("it died") }}, "the call CreateMachine of the driver panicked: it died"},
		"fails":  {badDriver{create: func(_ context.Context, m conform.Machine) (conform.Machine, error) { return m, io.ErrUnexpectedEOF }}, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			test.driver.Cloud = fake.NewCloud()
			limit := 20 * time.Second
			if name == "hangs" {
				limit = 4 * time.Second
			}
			r, err := conform.Run(t.Context(), conform.Config{
				Kube: admin, Driver: test.driver, Subject: &fake.Manager{Kube: admin, Cloud: test.driver.Cloud}, Limit: limit, Parallel: 1,
				Focus: regexp.MustCompile(`^node\.(init|labels|unknown|deleted)$|^lb.ensure$`), Observe: time.Second, AllowExisting: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			verdicts := map[string]conform.Verdict{}
			for _, x := range r.Results {
				verdicts[x.ID] = x.Verdict
				if x.ID == "node.deleted" && !strings.Contains(x.Reason, test.want) {
					t.Errorf("got the reason %q, want %q", x.Reason, test.want)
				}
			}
			want := map[string]conform.Verdict{"node.init": conform.Fail, "node.labels": conform.Fail, "node.unknown": conform.Pass, "node.deleted": conform.Fail, "lb.ensure": conform.Fail}
			switch name {
			case "deletes nothing": // the other checks delete machines only in their cleanup, which does not call GetMachine
				want["node.init"], want["node.labels"], want["lb.ensure"] = conform.Pass, conform.Pass, conform.Pass
			case "hangs": // the run skips this check after three calls that do not return
				want["lb.ensure"] = conform.Skip
			}
			if !maps.Equal(verdicts, want) {
				t.Errorf("got the verdicts %v, want %v", verdicts, want)
			}
		})
	}
}

func ExampleChecks() {
	for _, c := range conform.Checks() {
		if c.Level == conform.Should {
			fmt.Fprintln(os.Stdout, c.ID)
		}
	}
	// Output:
	// node.labelrepair
	// node.replaced
	// lb.drift
	// lb.unsupported
	// lb.ipmode
	// ops.restart
	// ops.migrate
	// ops.throttle
	// ops.budget
	// ops.slo
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
