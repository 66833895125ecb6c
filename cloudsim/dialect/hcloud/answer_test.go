package hcloud_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/hcloud"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// throttle adds a fault for calls of the given operation. The fault affects only the calls that the
// dialect makes while it handles dialectCall. The parameter most is the maximum number of calls
// that fail with the status 429.
func (w *world) throttle(t *testing.T, most uint64, operation, dialectCall string) {
	t.Helper()
	_, err := w.cloud.CreateFault(context.Background(), cloudsim.CreateFault{Name: dialect.Name(operation + " in " + dialectCall), FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: operation, DialectCall: "hcloud." + dialectCall}, When: cloudsim.FaultWhen{Max: most}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultThrottle},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPartlyThrottledCallSucceeds proves that a client's call succeeds although a rate limit
// refuses some of the calls that the dialect makes to the cloud. If the dialect returns an error,
// Hetzner's client repeats its call. The repeated call fails if the first call has left a resource
// with the same name.
func TestPartlyThrottledCallSucceeds(t *testing.T) {
	ctx := context.Background()
	w := start(t, cloudtest.WithProfile(engine.Realistic))
	secret, err := w.cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	c := sdk.NewClient(sdk.WithEndpoint(w.url+"/v1"), sdk.WithToken(secret), sdk.WithPollOpts(sdk.PollOpts{BackoffFunc: sdk.ConstantBackoff(10 * time.Millisecond)}),
		sdk.WithRetryOpts(sdk.RetryOpts{BackoffFunc: sdk.ConstantBackoff(time.Millisecond), MaxRetries: 5}))
	at, s := &sdk.Location{Name: "sim-1a"}, w.instance(t, "node-1")
	group, _, err := c.PlacementGroup.Create(ctx, sdk.PlacementGroupCreateOpts{Name: "first", Type: sdk.PlacementGroupTypeSpread})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.cloud.WaitOperation(ctx, s.Operation); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		call       string
		operations []string
		do         func(name string, n int) error
	}{
		{"servers.create", []string{"disks.list", "records.list", "instances.list", "instances.create"}, func(name string, _ int) error {
			made, _, err := c.Server.Create(ctx, sdk.ServerCreateOpts{Name: name, ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "debian-13"}, Location: at, PlacementGroup: group.PlacementGroup})
			if err == nil && (made.Server.PlacementGroup == nil || made.Server.PlacementGroup.Servers[len(made.Server.PlacementGroup.Servers)-1] != made.Server.ID) {
				t.Errorf("placement group of the new server: got %+v", made.Server.PlacementGroup)
			}
			return err
		}},
		{"placement_groups.create", []string{"instances.list"}, func(name string, _ int) error {
			_, _, err := c.PlacementGroup.Create(ctx, sdk.PlacementGroupCreateOpts{Name: name, Type: sdk.PlacementGroupTypeSpread})
			return err
		}},
		{"networks.create", []string{"subnets.*", "operations.get", "regions.list"}, func(name string, n int) error {
			_, _, err := c.Network.Create(ctx, sdk.NetworkCreateOpts{Name: name, IPRange: cidr(fmt.Sprintf("10.%d.0.0/16", 20+n)), Subnets: []sdk.NetworkSubnet{
				{Type: sdk.NetworkSubnetTypeCloud, IPRange: cidr(fmt.Sprintf("10.%d.1.0/24", 20+n)), NetworkZone: "sim-1"},
			}})
			return err
		}},
		{"volumes.create", []string{"operations.get", "disks.get", "disks.attach"}, func(name string, _ int) error {
			_, _, err := c.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: name, Size: 10, Server: &sdk.Server{ID: dialect.Number(s.ID)}})
			return err
		}},
		{"volumes.delete", []string{"operations.get"}, func(name string, _ int) error {
			made, _, err := c.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: name, Size: 10, Location: at})
			if err == nil {
				err = c.Action.WaitFor(ctx, made.Action)
			}
			if err == nil {
				_, err = c.Volume.Delete(ctx, made.Volume)
			}
			return err
		}},
		{"load_balancers.delete", []string{"operations.get"}, func(name string, _ int) error {
			made, _, err := c.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{Name: name, LoadBalancerType: &sdk.LoadBalancerType{Name: "lb11"}, Location: at})
			if err == nil {
				err = c.Action.WaitFor(ctx, made.Action)
			}
			if err == nil {
				_, err = c.LoadBalancer.Delete(ctx, made.LoadBalancer)
			}
			return err
		}},
	} {
		for n, operation := range tc.operations {
			t.Run(tc.call+" with "+operation, func(t *testing.T) {
				t.Parallel()
				most := uint64(1)
				if strings.HasSuffix(operation, "*") {
					most = 2 // the second call deletes the incomplete resource
				}
				w.throttle(t, most, operation, tc.call)
				if err := tc.do(dialect.Name(operation+tc.call), n); err != nil {
					t.Errorf("got error %v, want none", err)
				}
			})
		}
	}
}

// TestServerOfAVolumeCannotBeRead proves that the creation of a volume fails with the code
// rate_limit_exceeded if a rate limit prevents the dialect from reading the volume's server.
// Hetzner's client repeats a call that fails with this code.
func TestServerOfAVolumeCannotBeRead(t *testing.T) {
	w := start(t)
	s := w.server(t, w.instance(t, "node-1"))
	w.throttle(t, 1, "instances.get", "volumes.create")
	_, _, err := w.Volume.Create(context.Background(), sdk.VolumeCreateOpts{Name: "data", Size: 10, Server: s})
	expectError(t, err, sdk.ErrorCodeRateLimitExceeded)
}

// TestServerInADatacenter proves that a client can create a server in a datacenter, with the id or
// the name of the datacenter. It also proves that the dialect refuses an unknown datacenter, an
// unknown location, and a request that contains both a datacenter and a location.
func TestServerInADatacenter(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	d, resp, err := w.Datacenter.GetByName(ctx, "sim-1b-dc1") //nolint:staticcheck // older clients use datacenters
	must(t, d, resp, err)
	for name, in := range map[string]*sdk.Datacenter{"by-id": d, "by-name": {Name: d.Name}} { //nolint:staticcheck // older clients use datacenters
		made, _, err := w.Server.Create(ctx, sdk.ServerCreateOpts{Name: name, ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "debian-13"}, Datacenter: in}) //nolint:staticcheck // older clients use datacenters
		if err != nil || made.Server.Location.Name != "sim-1b" {
			t.Errorf("server in a datacenter %s: got %+v, error %v; want a server in sim-1b", name, made.Server, err)
		}
	}
	secret, err := w.cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	for place, field := range map[string]string{`"datacenter":"sim-1b"`: "datacenter", `"datacenter":"sim-1b-dc1","location":"sim-1a"`: "datacenter", `"location":"sim-1b-dc1"`: "location"} {
		a := w.sendRaw(t, http.MethodPost, "/v1/servers", secret, `{"name":"s","server_type":"small","image":"debian-13",`+place+`}`)
		if a.Status != 422 || a.Error.Details == nil || a.Error.Details.Fields[0].Name != field {
			t.Errorf("%s: got answer %+v, want status 422 and the field %s", place, a, field)
		}
	}
}

// TestDefaultStatusCodes proves that an HTTP health check without status codes expects a status of
// 2xx or 3xx. This is the default of Hetzner's API.
func TestDefaultStatusCodes(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	service := func(port int, codes []string) sdk.LoadBalancerCreateOptsService {
		return sdk.LoadBalancerCreateOptsService{
			Protocol: sdk.LoadBalancerServiceProtocolTCP, ListenPort: &port, DestinationPort: &port, HealthCheck: &sdk.LoadBalancerCreateOptsServiceHealthCheck{
				Protocol: sdk.LoadBalancerServiceProtocolHTTP, HTTP: &sdk.LoadBalancerCreateOptsServiceHealthCheckHTTP{Path: sdk.Ptr("/healthz"), StatusCodes: codes},
			},
		}
	}
	tcp := sdk.LoadBalancerCreateOptsService{Protocol: sdk.LoadBalancerServiceProtocolTCP, ListenPort: sdk.Ptr(82), DestinationPort: sdk.Ptr(82)}
	made, resp, err := w.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{
		Name: "front", LoadBalancerType: &sdk.LoadBalancerType{Name: "lb11"}, Location: &sdk.Location{Name: "sim-1a"},
		Services: []sdk.LoadBalancerCreateOptsService{service(80, nil), service(81, []string{"204"}), tcp},
	})
	l := must(t, made, resp, err).LoadBalancer
	for _, port := range []int{81, 82} { // an update without statuses keeps them, except for a change from tcp to http
		a, resp, err := w.LoadBalancer.UpdateService(ctx, l, port, sdk.LoadBalancerUpdateServiceOpts{HealthCheck: &sdk.LoadBalancerUpdateServiceOptsHealthCheck{Protocol: sdk.LoadBalancerServiceProtocolHTTP}})
		w.wait(t, a, resp, err)
	}
	stored, err := w.cloud.GetLoadBalancer(ctx, dialect.ID[cloudsim.LoadBalancerID]("lb", l.ID))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []map[int]bool{{199: false, 200: true, 204: true, 302: true, 400: false}, {200: false, 204: true}, {200: true, 302: true, 404: false}} {
		for status, healthy := range want {
			check := stored.Listeners[i].HealthCheck.WithDefaults(nil)
			if got := check.Expects(status); got != healthy {
				t.Errorf("service %d with the statuses %q: %d is healthy: got %t, want %t", stored.Listeners[i].Port, check.ExpectedCodes, status, got, healthy)
			}
		}
	}
}

// TestPageAfterDeletions reads two pages and deletes the servers of page 1. It proves that
// the servers of page 2 are on page 1 after the deletions.
func TestPageAfterDeletions(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	var all []*sdk.Server
	for _, name := range []string{"a", "b", "c", "d"} {
		all = append(all, w.server(t, w.instance(t, name)))
	}
	page := func(n int) []string {
		found, resp, err := w.Server.List(ctx, sdk.ServerListOpts{ListOpts: sdk.ListOpts{Page: n, PerPage: 2}})
		return names(must(t, found, resp, err), func(s *sdk.Server) string { return s.Name })
	}
	if first, second := page(1), page(2); len(first) != 2 || len(second) != 2 {
		t.Fatalf("pages: got %v and %v", first, second)
	}
	for _, s := range all[:2] {
		gone, resp, err := w.Server.DeleteWithResult(ctx, s)
		w.wait(t, must(t, gone, resp, err).Action, nil, nil)
	}
	if second, first := page(2), page(1); len(second) != 0 || len(first) != 2 {
		t.Errorf("pages after the deletion of a and b: got %v and %v, want c and d only on page 1", first, second)
	}
}

// TestSelectorOfAHiddenLabel proves that a label selector cannot select by the labels that the
// dialect hides from its clients.
func TestSelectorOfAHiddenLabel(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	made, resp, err := w.Server.Create(ctx, sdk.ServerCreateOpts{Name: "node-1", ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "debian-13"}})
	must(t, made, resp, err)
	for _, selector := range []string{dialect.LabelPrefix + "image=debian-13", dialect.LabelPrefix + "image in (debian-13)"} {
		if all, err := w.Server.AllWithOpts(ctx, sdk.ServerListOpts{ListOpts: sdk.ListOpts{LabelSelector: selector}}); err != nil || len(all) != 0 {
			t.Errorf("selector %s: got %d servers, error %v; want none", selector, len(all), err)
		}
	}
}

// TestRangeInTheDefaultNetwork proves that the attachment of a server to the default network fails
// if the requested range does not contain the address of the server.
func TestRangeInTheDefaultNetwork(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	made, resp, err := w.Server.Create(ctx, sdk.ServerCreateOpts{Name: "node-1", ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "debian-13"}})
	s := must(t, made, resp, err).Server
	n, resp, err := w.Network.GetByName(ctx, "default")
	must(t, n, resp, err)
	_, _, err = w.Server.AttachToNetwork(ctx, s, sdk.ServerAttachToNetworkOpts{Network: n, IPRange: cidr("10.99.0.0/24")})
	expectError(t, err, "unsupported_error")
	a, resp, err := w.Server.AttachToNetwork(ctx, s, sdk.ServerAttachToNetworkOpts{Network: n, IPRange: n.Subnets[0].IPRange})
	w.wait(t, a, resp, err)
}

// TestSlowCallerDelaysNoOtherCaller proves that a caller gets its answer while another caller waits
// for the cloud's list of instance types.
func TestSlowCallerDelaysNoOtherCaller(t *testing.T) {
	w := start(t)
	s := w.server(t, w.instance(t, "node-1"))
	srv := httptest.NewServer(dialect.New(slog.New(slog.DiscardHandler), hcloud.New(), dialect.Config{URL: w.cloud.URL, Transport: w.cloud.HTTP.Transport, Project: w.cloud.Project}))
	defer srv.Close()
	w.url = srv.URL // the cache of this dialect is empty
	slow := cloudtest.As(t, w.cloud, "slow", cloudsim.RoleWriter)
	if _, err := w.cloud.CreateFault(t.Context(), cloudsim.CreateFault{Name: "hang", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "instanceTypes.list", Caller: "slow"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultHang},
	}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // the request must end before srv
	hung, client := make(chan error, 1), w.clientOf(t, slow)
	go func() { _, _, err := client.Server.GetByID(ctx, s.ID); hung <- err }()
	eventually.True(t, "the call of the slow caller hangs", func() bool {
		f, err := w.cloud.ListFaults(t.Context(), cloudsim.ListOptions{})
		return err == nil && f.Items[0].Hits > 0
	})
	quick, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	if _, _, err := w.clientOf(t, w.cloud).Server.GetByID(quick, s.ID); err != nil {
		t.Errorf("other caller: got error %v, want none", err)
	}
	cancel()
	<-hung
}
