package hcloud_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/hcloud"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

type answer struct {
	Status int
	ID     string // id of the request
	Error  struct {
		Code    string
		Message string
		Details *struct{ Fields []struct{ Name string } }
	}
}

// sendRaw sends a request without Hetzner's client, and returns the answer.
func (w *world) sendRaw(tb testing.TB, method, path, secret, body string) (a answer) {
	tb.Helper()
	req, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	a.Status, a.ID = resp.StatusCode, resp.Header.Get("X-Correlation-Id")
	if a.Status >= 400 {
		if err := json.Unmarshal(raw, &a); err != nil {
			tb.Errorf("%s %s: the error %q is not valid JSON: %v", method, path, raw, err)
		}
	}
	return a
}

// TestBadRequests proves that the answer to each bad request is an error in Hetzner's format with
// the id of the request. It also proves that the metrics count each request.
func TestBadRequests(t *testing.T) {
	w := start(t)
	good, err := w.cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	w.instance(t, "node-1")
	lb := `{"name":"x","load_balancer_type":"lb11","location":"sim-1a"`
	before, want := w.requestCounts(t), map[string]float64{}
	for name, test := range map[string]struct {
		method, path, secret, body string
		status                     int
		code, field                string
	}{
		"no token":                     {"GET", "/v1/servers", "", "", 401, "unauthorized", ""},
		"wrong token":                  {"GET", "/v1/servers", strings.Repeat("x", 64), "", 401, "unauthorized", ""},
		"wrong token of a fixed list":  {"GET", "/v1/load_balancer_types", strings.Repeat("x", 64), "", 401, "unauthorized", ""},
		"wrong token of an empty list": {"GET", "/v1/certificates", strings.Repeat("x", 64), "", 401, "unauthorized", ""},
		"unsupported call":             {"GET", "/v1/storage_boxes", good, "", 501, "unsupported_error", ""},
		"unsupported method":           {"DELETE", "/v1/locations/1", good, "", 501, "unsupported_error", ""},
		"path outside of the API":      {"GET", "/", good, "", 501, "unsupported_error", ""},
		"id that does not exist":       {"GET", "/v1/servers/4711", good, "", 404, "not_found", ""},
		"id that is no number":         {"GET", "/v1/servers/i-000001", good, "", 404, "not_found", ""},
		"negative id":                  {"GET", "/v1/servers/-1", good, "", 404, "not_found", ""},
		"id that is too large":         {"GET", "/v1/servers/99999999999999999999", good, "", 404, "not_found", ""},
		"page 0":                       {"GET", "/v1/servers?page=0", good, "", 422, "invalid_input", "page"},
		"wrong selector":               {"GET", "/v1/servers?label_selector=a+in", good, "", 422, "invalid_input", "label_selector"},
		"selector with >":              {"GET", "/v1/servers?label_selector=a%3E1", good, "", 422, "invalid_input", "label_selector"},
		"wrong sort":                   {"GET", "/v1/servers?sort=size", good, "", 422, "invalid_input", "sort"},
		"actions without ids":          {"GET", "/v1/actions", good, "", 422, "invalid_input", "id"},
		"no JSON":                      {"POST", "/v1/load_balancers", good, "name=x", 400, "json_error", ""},
		"two values":                   {"POST", "/v1/load_balancers", good, lb + "}{}", 400, "json_error", ""},
		"unknown field":                {"POST", "/v1/load_balancers", good, lb + `,"color":"red"}`, 422, "invalid_input", "color"},
		"wrong type of a field":        {"POST", "/v1/load_balancers", good, `{"name":1}`, 422, "invalid_input", "name"},
		"body that is no object":       {"POST", "/v1/load_balancers", good, `[1]`, 422, "invalid_input", "body"},
		"wrong type of a reference":    {"POST", "/v1/load_balancers", good, `{"load_balancer_type":{}}`, 422, "invalid_input", "load_balancer_type"},
		"large body":                   {"POST", "/v1/load_balancers", good, `{"name":"` + strings.Repeat("x", 300<<10) + `"}`, 422, "invalid_input", ""},
		"no name":                      {"POST", "/v1/load_balancers", good, `{"load_balancer_type":"lb11","location":"sim-1a"}`, 422, "invalid_input", "name"},
		"name that is too long":        {"POST", "/v1/load_balancers", good, `{"name":"` + strings.Repeat("X", 129) + `","load_balancer_type":"lb11","location":"sim-1a"}`, 422, "invalid_input", "name"},
		"unknown type":                 {"POST", "/v1/load_balancers", good, `{"name":"x","load_balancer_type":"lb99","location":"sim-1a"}`, 422, "invalid_input", "load_balancer_type"},
		"unknown location":             {"POST", "/v1/load_balancers", good, `{"name":"x","load_balancer_type":"lb11","location":"fsn1"}`, 422, "invalid_input", "location"},
		"reserved label":               {"POST", "/v1/load_balancers", good, lb + `,"labels":{"dialect.cloudsim.dev/type":"lb31"}}`, 422, "invalid_input", "labels"},
		"wrong label":                  {"POST", "/v1/load_balancers", good, lb + `,"labels":{"a":"b c"}}`, 422, "invalid_input", "labels"},
		"http service":                 {"POST", "/v1/load_balancers", good, lb + `,"services":[{"protocol":"http"}]}`, 501, "unsupported_error", ""},
		"service without a port":       {"POST", "/v1/load_balancers", good, lb + `,"services":[{"protocol":"tcp","destination_port":80}]}`, 422, "invalid_input", "services[0].listen_port"},
		"wrong status code":            {"POST", "/v1/load_balancers", good, lb + `,"services":[{"protocol":"tcp","destination_port":80,"listen_port":80,"health_check":{"protocol":"http","http":{"status_codes":["2x"]}}}]}`, 422, "invalid_input", "services[0].health_check.http.status_codes"},
		"target that does not exist":   {"POST", "/v1/load_balancers", good, lb + `,"targets":[{"type":"server","server":{"id":99}}]}`, 422, "invalid_input", "server.id"},
		"target by selector":           {"POST", "/v1/load_balancers", good, lb + `,"targets":[{"type":"label_selector","label_selector":{"selector":"a"}}]}`, 501, "unsupported_error", ""},
		"small volume":                 {"POST", "/v1/volumes", good, `{"name":"v","size":9,"location":"sim-1a"}`, 422, "invalid_input", "size"},
		"formatted volume":             {"POST", "/v1/volumes", good, `{"name":"v","size":10,"location":"sim-1a","format":"ext4"}`, 501, "unsupported_error", ""},
		"server name with _":           {"POST", "/v1/servers", good, `{"name":"a_b","server_type":"small","image":"debian-13"}`, 422, "invalid_input", "name"},
		"server with unknown SSH key":  {"POST", "/v1/servers", good, `{"name":"s","server_type":"small","image":"debian-13","ssh_keys":["x"]}`, 422, "invalid_input", "ssh_keys[0]"},
		"server with firewalls":        {"POST", "/v1/servers", good, `{"name":"s","server_type":"small","image":"debian-13","firewalls":[{"firewall":1}]}`, 501, "unsupported_error", ""},
		"server in no group":           {"POST", "/v1/servers", good, `{"name":"s","server_type":"small","image":"debian-13","placement_group":9}`, 422, "invalid_input", "placement_group"},
		"placement group of a type":    {"POST", "/v1/placement_groups", good, `{"name":"g","type":"pack"}`, 422, "invalid_input", "type"},
		"new name of no group":         {"PUT", "/v1/placement_groups/9", good, `{"name":""}`, 404, "not_found", ""},
		"SSH key without a key":        {"POST", "/v1/ssh_keys", good, `{"name":"k"}`, 422, "invalid_input", "public_key"},
		"SSH key of two lines":         {"POST", "/v1/ssh_keys", good, `{"name":"k","public_key":"` + publicKey + `\n` + otherKey + `"}`, 422, "invalid_input", "public_key"},
		"SSH key with options":         {"POST", "/v1/ssh_keys", good, `{"name":"k","public_key":"no-pty ` + publicKey + `"}`, 422, "invalid_input", "public_key"},
		"private SSH key":              {"POST", "/v1/ssh_keys", good, `{"name":"k","public_key":"-----BEGIN OPENSSH PRIVATE KEY-----"}`, 422, "invalid_input", "public_key"},
		"name with a control code":     {"POST", "/v1/ssh_keys", good, `{"name":"a\nb","public_key":"` + publicKey + `"}`, 422, "invalid_input", "name"},
		"name of many bytes":           {"POST", "/v1/load_balancers", good, `{"name":"` + strings.Repeat("€", 100) + `","load_balancer_type":"lb11","location":"sim-1a"}`, 422, "invalid_input", "name"},
		"server of an unknown type":    {"POST", "/v1/servers", good, `{"name":"s","server_type":"cx22","image":"debian-13"}`, 422, "invalid_input", "server_type"},
		"server with an unknown image": {"POST", "/v1/servers", good, `{"name":"s","server_type":"small","image":"plan9"}`, 422, "invalid_input", "image"},
		"new name of a server":         {"PUT", "/v1/servers/1", good, `{"name":"other"}`, 501, "unsupported_error", ""},
		"attachment to no server":      {"POST", "/v1/volumes/1/actions/attach", good, `{"server":99}`, 404, "not_found", ""},
		"route over no server":         {"POST", "/v1/networks/1/actions/add_route", good, `{"destination":"10.1.0.0/24","gateway":"10.0.0.9"}`, 422, "invalid_input", "gateway"},
		"route to no range":            {"POST", "/v1/networks/1/actions/add_route", good, `{"destination":"x","gateway":"10.0.0.9"}`, 422, "invalid_input", "destination"},
		"network that is no range":     {"POST", "/v1/networks", good, `{"name":"n","ip_range":"x"}`, 422, "invalid_input", "ipv4"},
	} {
		t.Run(name, func(t *testing.T) {
			want[strconv.Itoa(test.status)]++
			a := w.sendRaw(t, test.method, test.path, test.secret, test.body)
			if a.Status != test.status || a.Error.Code != test.code || a.Error.Message == "" || a.ID == "" {
				t.Errorf("got answer %+v, want status %d and code %s", a, test.status, test.code)
			}
			if strings.Contains(a.Error.Message, "hcloud.") {
				t.Errorf("got message %q, want no name of a Go type", a.Error.Message)
			}
			if test.field != "" && (a.Error.Details == nil || a.Error.Details.Fields[0].Name != test.field) {
				t.Errorf("got details %+v, want field %s", a.Error.Details, test.field)
			}
		})
	}
	for code, n := range w.requestCounts(t) {
		if got := n - before[code]; got != want[code] {
			t.Errorf("metrics: got %v requests with the status %s, want %v", got, code, want[code])
		}
	}
	if got := w.sendRaw(t, "GET", "/readyz", "", ""); got.Status != 200 {
		t.Errorf("/readyz: got status %d, want 200", got.Status)
	}
}

// requestCounts returns the number of requests in the metrics for each HTTP status.
func (w *world) requestCounts(tb testing.TB) map[string]float64 {
	tb.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	n := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "cloudsim_dialect_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "code" {
					n[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// TestUnknownFields proves that each call with a body refuses a body with an unknown field.
func TestUnknownFields(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	at := &sdk.Location{Name: "sim-1a"}
	n, resp, err := w.Network.GetByName(ctx, "default")
	must(t, n, resp, err)
	v, resp, err := w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "v", Size: 10, Location: at})
	must(t, v, resp, err)
	l, resp, err := w.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{Name: "l", LoadBalancerType: &sdk.LoadBalancerType{Name: "lb11"}, Location: at})
	must(t, l, resp, err)
	k, resp, err := w.SSHKey.Create(ctx, sdk.SSHKeyCreateOpts{Name: "k", PublicKey: publicKey})
	must(t, k, resp, err)
	g, resp, err := w.PlacementGroup.Create(ctx, sdk.PlacementGroupCreateOpts{Name: "g", Type: sdk.PlacementGroupTypeSpread})
	must(t, g, resp, err)
	ids := map[string]int64{
		"servers": w.server(t, w.instance(t, "node-1")).ID, "networks": n.ID, "volumes": v.Volume.ID, "load_balancers": l.LoadBalancer.ID,
		"ssh_keys": k.ID, "placement_groups": g.PlacementGroup.ID,
	}
	bodiless := []string{"servers.poweron", "servers.poweroff", "servers.shutdown", "servers.reboot", "servers.reset"}
	for _, c := range hcloud.New().Calls {
		if c.Method != http.MethodPost && c.Method != http.MethodPut || slices.Contains(bodiless, c.Name) {
			continue
		}
		path := strings.Replace(c.Path, "{id}", fmt.Sprint(ids[strings.Split(c.Path, "/")[2]]), 1)
		a := w.sendRaw(t, c.Method, path, secretOf(t, w), `{"no_such_field":1}`)
		if a.Status != 422 || a.Error.Code != "invalid_input" || a.Error.Details == nil || a.Error.Details.Fields[0].Name != "no_such_field" {
			t.Errorf("%s: got answer %+v, want status 422 and the field no_such_field", c.Name, a)
		}
	}
}

// TestUnsupported proves that the answer to an unsupported call contains the name of the call. It
// also proves that the answer contains the request id that the caller has chosen, and that a metric
// counts the call.
func TestUnsupported(t *testing.T) {
	w := start(t)
	req, err := http.NewRequest(http.MethodGet, w.url+"/v1/storage_boxes/7", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secretOf(t, w))
	req.Header.Set("X-Request-Id", "my-id")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if id := resp.Header.Get("X-Correlation-Id"); resp.StatusCode != http.StatusNotImplemented || id != "my-id" || !strings.Contains(string(raw), "GET /v1/storage_boxes/7 is not supported") {
		t.Errorf("got status %d, id %q and body %s; want 501, my-id and the name of the call", resp.StatusCode, id, raw)
	}
	if err := testutil.GatherAndCompare(w.metrics, strings.NewReader(`
# HELP cloudsim_dialect_unsupported_total Unsupported calls, by the resource in their path, or by the name of the call.
# TYPE cloudsim_dialect_unsupported_total counter
cloudsim_dialect_unsupported_total{dialect="hcloud",resource="storage_boxes"} 1
`), "cloudsim_dialect_unsupported_total"); err != nil {
		t.Error(err)
	}
}

// TestRefusals makes each call in the map Refusals. It proves that the answer contains the reason
// in this map.
func TestRefusals(t *testing.T) {
	w := start(t)
	for pattern, why := range hcloud.New().Refusals {
		method, path, ok := strings.Cut(pattern, " ")
		if !ok {
			method, path = "GET", pattern
		}
		path = strings.NewReplacer("{id}", "1", "{action}", "x", "{path...}", "x").Replace(path)
		if a := w.sendRaw(t, method, path, secretOf(t, w), ""); a.Status != 501 || a.Error.Code != "unsupported_error" || !strings.HasSuffix(a.Error.Message, ": "+why) {
			t.Errorf("%s %s: got answer %+v, want status 501 and the reason %q", method, path, a, why)
		}
	}
}

// TestNamesAndRoles proves that a name can have capital letters and 128 characters. It also proves
// that a caller with the role reader cannot create a resource.
func TestNamesAndRoles(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	long := strings.Repeat("Ab_", 42) + "Cd"
	made, resp, err := w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: long, Size: 10, Location: &sdk.Location{Name: "sim-1a"}})
	v := must(t, made, resp, err).Volume
	if got, resp, err := w.Volume.GetByName(ctx, long); must(t, got, resp, err) == nil || got.ID != v.ID || got.Name != long {
		t.Errorf("volume with a long name: got %+v", got)
	}
	_, _, err = w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: long, Size: 10, Location: &sdk.Location{Name: "sim-1a"}})
	expectError(t, err, sdk.ErrorCodeUniquenessError)
	reader := w.clientOf(t, cloudtest.As(t, w.cloud, "reader", cloudsim.RoleReader))
	_, _, err = reader.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "x", Size: 10, Location: &sdk.Location{Name: "sim-1a"}})
	expectError(t, err, sdk.ErrorCodeForbidden)
}

// TestLocked makes calls that need an idle resource, while an action runs on the resource. It
// proves that these calls fail with the code locked. It also proves that an action has the status
// running until its operation ends.
func TestLocked(t *testing.T) {
	ctx := context.Background()
	w := start(t, cloudtest.WithProfile(engine.Realistic), cloudtest.WithFrozenClock(time.Time{}))
	pass := func() {
		t.Helper()
		if _, err := w.cloud.AdvanceClock(ctx, cloudsim.AdvanceClock{Seconds: 3600}); err != nil {
			t.Fatal(err)
		}
	}
	server, resp, err := w.Server.Create(ctx, sdk.ServerCreateOpts{Name: "s", ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "debian-13"}, Location: &sdk.Location{Name: "sim-1a"}})
	must(t, server, resp, err)
	volume, resp, err := w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "v", Size: 10, Location: &sdk.Location{Name: "sim-1a"}})
	must(t, volume, resp, err)
	lb, resp, err := w.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{Name: "l", LoadBalancerType: &sdk.LoadBalancerType{Name: "lb11"}, Location: &sdk.Location{Name: "sim-1a"}})
	must(t, lb, resp, err)
	if server.Server.Status != sdk.ServerStatusInitializing || !server.Server.Locked {
		t.Errorf("new server: got %+v, want status initializing and locked", server.Server)
	}
	for name, locked := range map[string]func() error{
		"server": func() error { _, _, err := w.Server.Poweroff(ctx, server.Server); return err },
		"attachment to a network": func() error {
			_, _, err := w.Server.AttachToNetwork(ctx, server.Server, sdk.ServerAttachToNetworkOpts{Network: &sdk.Network{ID: 1}})
			return err
		},
		"detachment from a network": func() error {
			_, _, err := w.Server.DetachFromNetwork(ctx, server.Server, sdk.ServerDetachFromNetworkOpts{Network: &sdk.Network{ID: 1}})
			return err
		},
		"volume": func() error { _, _, err := w.Volume.Resize(ctx, volume.Volume, 20); return err },
		"service": func() error {
			_, _, err := w.LoadBalancer.AddService(ctx, lb.LoadBalancer, sdk.LoadBalancerAddServiceOpts{Protocol: sdk.LoadBalancerServiceProtocolTCP, ListenPort: sdk.Ptr(1), DestinationPort: sdk.Ptr(2)})
			return err
		},
		"deletion of the load balancer": func() error { _, err := w.LoadBalancer.Delete(ctx, lb.LoadBalancer); return err },
		"deletion of the volume":        func() error { _, err := w.Volume.Delete(ctx, volume.Volume); return err },
	} {
		if err := locked(); !sdk.IsError(err, sdk.ErrorCodeLocked) {
			t.Errorf("%s: got error %v, want locked", name, err)
		}
	}
	for _, a := range []*sdk.Action{server.Action, volume.Action, lb.Action} {
		before, resp, err := w.Action.GetByID(ctx, a.ID)
		if must(t, before, resp, err); a.Status != sdk.ActionStatusRunning || before.Status != sdk.ActionStatusRunning || before.Progress > 99 || len(before.Resources) != 1 {
			t.Errorf("action: got %+v in the answer and %+v by id; want running, progress below 100 and 1 resource", a, before)
		}
	}
	pass()
	for _, a := range []*sdk.Action{server.Action, volume.Action, lb.Action} {
		if after, resp, err := w.Action.GetByID(ctx, a.ID); must(t, after, resp, err).Status != sdk.ActionStatusSuccess || after.Progress != 100 {
			t.Errorf("action: got %+v, want success", after)
		}
	}
	a, resp, err := w.Server.Poweroff(ctx, server.Server)
	if must(t, a, resp, err); a.Status != sdk.ActionStatusRunning {
		t.Errorf("action of Poweroff: got %+v, want running", a)
	}
}

// TestFaults proves that a fault can select the calls of a dialect by name. The caller of the
// dialect then gets the error of the fault. If a fault drops the reply of the cloud, the caller of
// the dialect gets no reply.
func TestFaults(t *testing.T) {
	ctx := context.Background()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	w := start(t, cloudtest.WithFrozenClock(at))
	fault := func(name string, match cloudsim.FaultMatch, effect cloudsim.FaultEffect) {
		t.Helper()
		if _, err := w.cloud.CreateFault(ctx, cloudsim.CreateFault{Name: name, FaultSpec: cloudsim.FaultSpec{Match: match, When: cloudsim.FaultWhen{Max: 1}, Effect: effect}}); err != nil {
			t.Fatal(err)
		}
	}
	once := sdk.NewClient(sdk.WithEndpoint(w.url+"/v1"), sdk.WithToken(secretOf(t, w)), sdk.WithRetryOpts(sdk.RetryOpts{MaxRetries: 0}))

	fault("by-call", cloudsim.FaultMatch{Operation: "*", DialectCall: "hcloud.servers.*"}, cloudsim.FaultEffect{Type: cloudsim.FaultError})
	if _, err := once.Volume.All(ctx); err != nil {
		t.Errorf("call that the fault does not match: got error %v", err)
	}
	if _, err := w.cloud.ListInstances(ctx, cloudsim.ListOptions{}); err != nil {
		t.Errorf("direct call with a fault for a dialect's call: got error %v", err)
	}
	_, err := once.Server.All(ctx)
	expectError(t, err, "unavailable")

	fault("throttle", cloudsim.FaultMatch{Operation: "instances.list"}, cloudsim.FaultEffect{Type: cloudsim.FaultThrottle, RetryAfterSeconds: 7})
	_, err = once.Server.All(ctx)
	expectError(t, err, sdk.ErrorCodeRateLimitExceeded)
	e, ok := errors.AsType[sdk.Error](err)
	if !ok {
		t.Fatalf("got error %v, want an error of Hetzner's API", err)
	}
	if h := e.Response().Header; h.Get("RateLimit-Remaining") != "0" || h.Get("Retry-After") != "7" || !e.Response().Meta.Ratelimit.Reset.Equal(at.Add(7*time.Second)) {
		t.Errorf("refused call: got headers %v, want RateLimit-Remaining 0, Retry-After 7 and RateLimit-Reset %d", h, at.Add(7*time.Second).Unix())
	}

	fault("lost", cloudsim.FaultMatch{Operation: "disks.create", DialectCall: "hcloud.volumes.create"}, cloudsim.FaultEffect{Type: cloudsim.FaultLoseReply})
	_, _, err = once.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "v", Size: 10, Location: &sdk.Location{Name: "sim-1a"}})
	if err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("call with a lost reply: got error %v, want EOF", err)
	}
	if all, err := once.Volume.All(ctx); err != nil || len(all) != 1 {
		t.Errorf("volumes after the lost reply: got %v, error %v; want 1", all, err)
	}

	trail, err := w.cloud.Audit(ctx, cloudsim.AuditOptions{Operation: "disks.create"})
	if err != nil || len(trail.Items) != 1 || trail.Items[0].DialectCall != "hcloud.volumes.create" {
		t.Errorf("audit: got %+v, error %v; want 1 entry of hcloud.volumes.create", trail.Items, err)
	}
	if bad := []string{"h-cloud", "a..b", "a b"}; slices.ContainsFunc(bad, cloudsim.ValidDialectCall) {
		t.Errorf("ValidDialectCall accepts an invalid name of %v", bad)
	}
}

func secretOf(tb testing.TB, w *world) string {
	tb.Helper()
	s, err := w.cloud.Token()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
