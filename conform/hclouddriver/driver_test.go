package hclouddriver_test

import (
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/hcloud"
	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/conform/hclouddriver"
	"github.com/cloudsim-dev/allinone/conform/httpdriver"
)

// world is a driver for a cloud with the API of Hetzner Cloud.
type world struct {
	*hclouddriver.Driver
	endpoint, token string
}

func start(t *testing.T) *world {
	t.Helper()
	cloud := cloudtest.Start(t)
	srv := httptest.NewServer(dialect.New(slog.New(slog.DiscardHandler), hcloud.New(), dialect.Config{URL: cloud.URL, Transport: cloud.HTTP.Transport, Project: cloud.Project}))
	t.Cleanup(srv.Close)
	secret, err := cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{endpoint: srv.URL + "/v1", token: secret}
	c := sdk.NewClient(sdk.WithEndpoint(w.endpoint), sdk.WithToken(secret), sdk.WithPollOpts(sdk.PollOpts{BackoffFunc: sdk.ConstantBackoff(time.Millisecond)}))
	networks, err := c.Network.All(t.Context())
	if err != nil || len(networks) == 0 {
		t.Fatal(networks, err)
	}
	w.Driver = &hclouddriver.Driver{Client: c, Network: networks[0].Name, ClusterCIDR: "10.244.0.0/16"}
	return w
}

// balancer creates a load balancer that forwards to a server, as a CCM does.
func (w *world) balancer(t *testing.T, name string) {
	t.Helper()
	ctx := t.Context()
	server, _, err := w.Client.Server.GetByName(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	types, err := w.Client.LoadBalancerType.All(ctx)
	if err != nil || len(types) == 0 {
		t.Fatal(types, err)
	}
	made, _, err := w.Client.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{
		Name: "web", LoadBalancerType: types[0], Location: server.Location,
		Services: []sdk.LoadBalancerCreateOptsService{{Protocol: sdk.LoadBalancerServiceProtocolTCP, ListenPort: sdk.Ptr(80), DestinationPort: sdk.Ptr(30080)}},
		Targets:  []sdk.LoadBalancerCreateOptsTarget{{Type: sdk.LoadBalancerTargetTypeServer, Server: sdk.LoadBalancerCreateOptsTargetServer{Server: server}}},
	})
	if err == nil {
		err = w.Client.Action.WaitFor(ctx, made.Action)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestMachines(t *testing.T) {
	d, ctx := start(t), t.Context()
	m, err := d.CreateMachine(ctx, conform.Machine{Name: "a", Run: "run-1"})
	if err != nil {
		t.Fatal(err)
	}
	if !m.Running || m.Zone == "" || m.Type == "" || m.ProviderID == "" || m.Run != "run-1" ||
		!slices.ContainsFunc(m.Addresses, func(a conform.Address) bool { return a.Type == "InternalIP" }) {
		t.Errorf("new machine: got %+v; want it running, with all fields", m)
	}
	if err := d.StopMachine(ctx, "a"); err != nil {
		t.Error(err)
	}
	if got, err := d.GetMachine(ctx, "a"); err != nil || got.Running {
		t.Errorf("after a stop: got %+v, %v", got, err)
	}
	if err := d.StartMachine(ctx, "a"); err != nil {
		t.Error(err)
	}
	if all, err := d.ListMachines(ctx); err != nil || len(all) != 1 || all[0].Run != "run-1" {
		t.Errorf("list: got %+v, %v", all, err)
	}
	for range 2 { // the deletion of a missing machine returns nil
		if err := d.DeleteMachine(ctx, "a"); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.GetMachine(ctx, "a"); !errors.Is(err, conform.ErrNotFound) {
		t.Errorf("GetMachine after the deletion: got error %v, want ErrNotFound", err)
	}
	if _, err := d.CreateMachine(ctx, conform.Machine{Name: "b", Type: "none"}); !errors.Is(err, conform.ErrNotFound) {
		t.Errorf("CreateMachine with an unknown type: got error %v, want ErrNotFound", err)
	}
}

func TestRoutes(t *testing.T) {
	d, ctx := start(t), t.Context()
	if _, err := d.CreateMachine(ctx, conform.Machine{Name: "a", Run: "run-1"}); err != nil {
		t.Fatal(err)
	}
	want := conform.Route{CIDR: "10.99.0.0/24", Machine: "a"}
	r, err := d.CreateRoute(ctx, want)
	if err != nil {
		t.Fatal(err)
	}
	want.ID = r.ID
	if all, err := d.ListRoutes(ctx); err != nil || !slices.Contains(all, want) {
		t.Errorf("routes: got %+v, %v, want %+v", all, err, want)
	}
	if err := d.DeleteRoute(ctx, r.ID); err != nil {
		t.Error(err)
	}
	if all, err := d.ListRoutes(ctx); err != nil || slices.Contains(all, want) {
		t.Errorf("after the deletion: got %+v, %v", all, err)
	}
	d.Network = ""
	if _, err := d.ListRoutes(ctx); !errors.Is(err, conform.ErrUnsupported) {
		t.Errorf("without a network: got error %v", err)
	}
}

// TestLoadBalancers proves that the driver lists the load balancers of a CCM. It also proves that
// Cleanup deletes a load balancer if its only target is a machine of a run.
func TestLoadBalancers(t *testing.T) {
	d, ctx := start(t), t.Context()
	if _, err := d.CreateMachine(ctx, conform.Machine{Name: "a", Run: "run-1"}); err != nil {
		t.Fatal(err)
	}
	d.balancer(t, "a")
	all, err := d.ListLoadBalancers(ctx)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	lb := all[0]
	if !slices.Equal(lb.Machines, []string{"a"}) || !slices.Equal(lb.Ports, []conform.Port{{Protocol: "TCP", Port: 80, NodePort: 30080}}) || len(lb.Addresses) == 0 || net.ParseIP(lb.Addresses[0]) == nil {
		t.Errorf("load balancer: got %+v; want the machine a and the ports 80 and 30080", lb)
	}
	if err := conform.Cleanup(ctx, conform.CleanupConfig{Driver: d.Driver}); err != nil {
		t.Fatal(err)
	}
	if all, err := d.ListLoadBalancers(ctx); err != nil || len(all) > 0 {
		t.Errorf("after the cleanup: got %+v, %v", all, err)
	}
	if err := d.DeleteLoadBalancer(ctx, lb.ID); !errors.Is(err, conform.ErrNotFound) {
		t.Errorf("DeleteLoadBalancer of a missing load balancer: got error %v, want ErrNotFound", err)
	}
}

// TestExampleDriver proves that docs/howto/example-driver.py, a driver in Python, gives the same
// answers as the type Driver.
func TestExampleDriver(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	const path = "../../docs/howto/example-driver.py"
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "\n"); n > 60 {
		t.Errorf("the example has %d lines, want at most 60", n)
	}
	d, ctx := start(t), t.Context()
	t.Setenv("HCLOUD_ENDPOINT", d.endpoint)
	t.Setenv("HCLOUD_TOKEN", d.token)
	example, err := httpdriver.NewExec(python + " " + path)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := example.Capabilities(ctx); err != nil || c.Provider != "hcloud" {
		t.Errorf("capabilities: got %+v, %v", c, err)
	}
	made, err := example.CreateMachine(ctx, conform.Machine{Name: "a", Run: "run-1"})
	if err != nil {
		t.Fatal(err)
	}
	d.Network = "" // the example uses no network
	if want, err := d.GetMachine(ctx, "a"); err != nil || !reflect.DeepEqual(made, want) {
		t.Errorf("CreateMachine of the example: got %+v, want the machine of GetMachine %+v (error %v)", made, want, err)
	}
	if err := example.StopMachine(ctx, "a"); err != nil {
		t.Error(err)
	}
	if m, err := example.GetMachine(ctx, "a"); err != nil || m.Running {
		t.Errorf("after a stop: got %+v, %v", m, err)
	}
	if err := example.StartMachine(ctx, "a"); err != nil {
		t.Error(err)
	}
	d.balancer(t, "a")
	want, err := d.ListLoadBalancers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got, err := example.ListLoadBalancers(ctx)
	if err != nil || len(got) != 1 || len(want) != 1 || !slices.Equal(got[0].Machines, want[0].Machines) || !slices.Equal(got[0].Ports, want[0].Ports) {
		t.Errorf("load balancers: got %+v, %v, want %+v", got, err, want)
	}
	if _, err := example.ListRoutes(ctx); !errors.Is(err, conform.ErrUnsupported) {
		t.Errorf("routes: got error %v", err)
	}
	if err := conform.Cleanup(ctx, conform.CleanupConfig{Driver: example}); err != nil {
		t.Error(err)
	}
	if all, err := example.ListMachines(ctx); err != nil || len(all) > 0 {
		t.Errorf("after the cleanup: got %+v, %v", all, err)
	}
}
