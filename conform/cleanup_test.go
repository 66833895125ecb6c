package conform_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/conform/fake"
	"github.com/cloudsim-dev/allinone/conform/httpdriver"
)

// foreignMachine creates a machine that belongs to no run.
func foreignMachine(t *testing.T, c *fake.Cloud) conform.Machine {
	t.Helper()
	m, err := c.CreateMachine(t.Context(), conform.Machine{Name: "foreign"})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCleanupOfCloud proves that Cleanup deletes only the resources of the given run.
func TestCleanupOfCloud(t *testing.T) {
	cloud, ctx := fake.NewCloud(), t.Context()
	foreign := foreignMachine(t, cloud)
	for _, run := range []string{"one", "two"} {
		m, err := cloud.CreateMachine(ctx, conform.Machine{Name: "machine-" + run, Run: run})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cloud.CreateRoute(ctx, conform.Route{CIDR: "10.1.0.0/24", Machine: m.Name}); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := cloud.CreateRoute(ctx, conform.Route{CIDR: "10.2.0.0/24", Machine: foreign.Name})
	if err != nil {
		t.Fatal(err)
	}
	var deleted []string
	c := conform.CleanupConfig{Driver: cloud, Run: "one", Deleted: func(kind, _ string) { deleted = append(deleted, kind) }}
	if err := conform.Cleanup(ctx, c); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(deleted, []string{"route", "machine"}) {
		t.Errorf("Cleanup deleted the kinds %v, want a route and a machine", deleted)
	}
	if _, err := cloud.GetMachine(ctx, "machine-two"); err != nil {
		t.Errorf("cleanup of run one: machine of the other run: got error %v, want it to exist", err)
	}
	if err := conform.Cleanup(ctx, conform.CleanupConfig{Driver: cloud}); err != nil {
		t.Fatal(err)
	}
	machines, err := cloud.ListMachines(ctx)
	if err != nil || len(machines) != 1 || machines[0].Name != foreign.Name {
		t.Errorf("machines after a cleanup of all runs: %+v, %v", machines, err)
	}
	if routes, err := cloud.ListRoutes(ctx); err != nil || !slices.Equal(routes, []conform.Route{kept}) {
		t.Errorf("routes after a cleanup of all runs: %+v, %v", routes, err)
	}
}

// TestCleanupAfterKill runs TestRunOfKilledProcess in another process. These environment variables
// of that process contain the URL of the driver and the path of the kubeconfig.
const (
	envDriver     = "CONFORM_TEST_DRIVER"
	envKubeconfig = "CONFORM_TEST_KUBECONFIG"
)

func TestRunOfKilledProcess(t *testing.T) {
	if os.Getenv(envDriver) == "" {
		t.Skip("only TestCleanupAfterKill runs this test, in another process")
	}
	d, err := httpdriver.New(os.Getenv(envDriver))
	if err != nil {
		t.Fatal(err)
	}
	kube, err := clientcmd.BuildConfigFromFlags("", os.Getenv(envKubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	_, err = conform.Run(t.Context(), conform.Config{Kube: kube, Driver: d, Focus: regexp.MustCompile(`^lb\.(ensure|class|nodes|collision)$`), Observe: time.Hour, Timeout: time.Hour})
	t.Error("the run has ended before the kill", err)
}

// TestCleanupAfterKill kills the process of a run, and cleans up with and without a CCM.
func TestCleanupAfterKill(t *testing.T) {
	admin, kubeconfig := startCluster(t)
	for _, live := range []bool{true, false} {
		t.Run(fmt.Sprintf("CCM runs %t", live), func(t *testing.T) {
			cloud, ctx := fake.NewCloud(), t.Context()
			foreignMachine(t, cloud)
			server := httptest.NewServer(httpdriver.Handler(cloud))
			defer server.Close()
			ccm := &fake.Manager{Kube: admin, Cloud: cloud}
			if err := ccm.Start(ctx); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ccm.Kill() }()
			run := exec.Command(os.Args[0], "-test.run=^TestRunOfKilledProcess$", "-test.timeout=5m") //nolint:noctx // killed below
			run.Env = append(os.Environ(), envDriver+"="+server.URL, envKubeconfig+"="+kubeconfig)
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			awaitTrue(t, "the cloud has load balancers with machines", func() bool {
				lbs, err := cloud.ListLoadBalancers(ctx)
				return err == nil && len(lbs) > 1 && !slices.ContainsFunc(lbs, func(lb conform.LoadBalancer) bool { return len(lb.Machines) == 0 })
			})
			if err := run.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = run.Wait()
			if !live {
				if err := ccm.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if err := conform.Cleanup(ctx, conform.CleanupConfig{Kube: admin, Driver: cloud, Timeout: map[bool]time.Duration{true: time.Minute, false: time.Second}[live]}); err != nil {
				t.Error(err)
			}
			assertClean(t, admin, cloud)
		})
	}
}

// assertClean fails the test if the cluster or the cloud has objects of a run.
func assertClean(t *testing.T, admin *rest.Config, cloud *fake.Cloud) {
	t.Helper()
	ctx := t.Context()
	machines, err := cloud.ListMachines(ctx)
	if err != nil || len(machines) != 1 || machines[0].Name != "foreign" {
		t.Errorf("machines: %+v, %v; want the foreign machine", machines, err)
	}
	if lbs, err := cloud.ListLoadBalancers(ctx); err != nil || len(lbs) > 0 {
		t.Errorf("load balancers: %+v, %v", lbs, err)
	}
	kube, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "the cluster is clean", func() bool { // objects may disappear a moment after Cleanup has returned
		services, err := kube.CoreV1().Services("").List(ctx, metav1.ListOptions{LabelSelector: conform.LabelRun})
		if err != nil {
			return false
		}
		nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil && len(services.Items)+len(nodes.Items) == 0
	})
}

func awaitTrue(t *testing.T, condition string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("condition not true after 90 s: %s", condition)
		}
	}
}
