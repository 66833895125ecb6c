package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

func createFault(t *testing.T, c *client.Client, operation string, effect cloudsim.FaultEffect, when cloudsim.FaultWhen) cloudsim.Fault {
	t.Helper()
	f, err := c.CreateFault(t.Context(), cloudsim.CreateFault{Name: "f", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: operation}, When: when, Effect: effect,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.DeleteFault(context.Background(), f.ID); err != nil {
			t.Error(err)
		}
	})
	return f
}

const zonesOf = "/v1/zones"

// noReply sends a create request. It fails the test if the cloud sends any answer, even an empty
// 200.
func noReply(t *testing.T, c *client.Client) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", c.URL+"/v1/instances", strings.NewReader(`{"name":"a","zone":"sim-1a","type":"small"}`))
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := c.Token()
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Content-Type", "application/json")
	if resp, err := c.HTTP.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("got reply %s, want none", resp.Status)
	}
}

func TestFaultErrors(t *testing.T) {
	c := cloudtest.Start(t)
	for name, tc := range map[string]struct {
		effect cloudsim.FaultEffect
		status int
		kind   cloudsim.Kind
		retry  string
		says   string
	}{
		"plain":    {cloudsim.FaultEffect{Type: cloudsim.FaultError}, 503, cloudsim.Unavailable, "", "fault-0"},
		"internal": {cloudsim.FaultEffect{Type: cloudsim.FaultError, Kind: "internal", Message: "on fire"}, 500, cloudsim.Internal, "", "on fire"},
		"status":   {cloudsim.FaultEffect{Type: cloudsim.FaultError, Kind: "denied", Status: 418, RetryAfterSeconds: 9}, 418, cloudsim.Denied, "9", "fault-0"},
		"throttle": {cloudsim.FaultEffect{Type: cloudsim.FaultThrottle}, 429, cloudsim.Exhausted, "1", "fault-0"},
		"slower":   {cloudsim.FaultEffect{Type: cloudsim.FaultThrottle, RetryAfterSeconds: 30}, 429, cloudsim.Exhausted, "30", "fault-0"},
	} {
		t.Run(name, func(t *testing.T) {
			createFault(t, c, "zones.*", tc.effect, cloudsim.FaultWhen{})
			resp, raw := sendRequest(t, c, "GET", zonesOf, "")
			var p cloudsim.Problem
			if err := json.Unmarshal(raw, &p); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tc.status || p.Kind != tc.kind || resp.Header.Get("Retry-After") != tc.retry || !strings.Contains(p.Detail, tc.says) {
				t.Errorf("call with the fault: got %s, Retry-After %q, body %s; want status %d, kind %s, Retry-After %q and %q in the detail",
					resp.Status, resp.Header.Get("Retry-After"), raw, tc.status, tc.kind, tc.retry, tc.says)
			}
		})
	}
	if resp, raw := sendRequest(t, c, "GET", zonesOf, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("call after the fault ended: got %s %s, want 200", resp.Status, raw)
	}
}

// TestFaultLosesTheReply proves that the cloud stores a created instance even if a fault drops the
// reply. The events of the fault and of the instance have the same request id. A repeated request
// returns the created instance.
func TestFaultLosesTheReply(t *testing.T) {
	var log bytes.Buffer
	c, ctx := cloudtest.Start(t, cloudtest.WithLog(slog.New(slog.NewTextHandler(&log, nil)))), t.Context()
	f := createFault(t, c, "instances.create", cloudsim.FaultEffect{Type: cloudsim.FaultLoseReply}, cloudsim.FaultWhen{Max: 2})
	req := cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"}
	if _, err := c.CreateInstance(ctx, req); !errors.Is(err, cloudsim.Unavailable) {
		t.Fatalf("creation with a lost reply: got error %v, want Unavailable", err)
	}
	noReply(t, c)
	l, err := c.ListInstances(ctx, cloudsim.ListOptions{})
	if err != nil || len(l.Items) != 1 {
		t.Fatalf("instances: got %+v, error %v; want the created instance", l.Items, err)
	}
	repeated, err := c.CreateInstance(ctx, req)
	if err != nil || repeated.ID != l.Items[0].ID {
		t.Errorf("repeated creation: got instance %s, error %v; want %s", repeated.ID, err, l.Items[0].ID)
	}
	if f, err := c.GetFault(ctx, f.ID); err != nil || f.Hits != 2 {
		t.Errorf("fault: got %d hits, error %v; want 2", f.Hits, err)
	}
	requests := map[cloudsim.ResourceKind]string{}
	evs, err := c.ListEvents(ctx, cloudsim.WatchOptions{Since: f.Revision, Kinds: []cloudsim.ResourceKind{cloudsim.KindFault, cloudsim.KindInstance}})
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range evs.Items {
		if requests[ev.Kind] == "" {
			requests[ev.Kind] = ev.RequestID
		}
	}
	if requests[cloudsim.KindFault] == "" || requests[cloudsim.KindFault] != requests[cloudsim.KindInstance] {
		t.Errorf("the events of the fault and of the instance have different request IDs: %v", requests)
	}
	if log.Len() > 0 {
		t.Errorf("the log reports a lost reply: %s", log.String())
	}
}

func TestFaultErrorAfterCommit(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	createFault(t, c, "instances.*", cloudsim.FaultEffect{Type: cloudsim.FaultErrorAfterCommit}, cloudsim.FaultWhen{Max: 2})
	if _, err := c.GetInstance(ctx, "i-000fff"); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("GetInstance of a missing instance: got error %v, want NotFound", err)
	}
	req := cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"}
	if _, err := c.CreateInstance(ctx, req); !errors.Is(err, cloudsim.Internal) {
		t.Errorf("creation with an error after the commit: got error %v, want Internal", err)
	}
	if l, err := c.ListInstances(ctx, cloudsim.ListOptions{}); err != nil || len(l.Items) != 1 {
		t.Errorf("instances: got %+v, error %v; want 1", l.Items, err)
	}
}

// TestFaultDrops proves that a dropped call changes nothing.
func TestFaultDrops(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	createFault(t, c, "instances.create", cloudsim.FaultEffect{Type: cloudsim.FaultDrop}, cloudsim.FaultWhen{Max: 2})
	noReply(t, c)
	if _, err := c.CreateInstance(ctx, cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"}); !errors.Is(err, cloudsim.Unavailable) {
		t.Fatalf("creation with a dropped request: got error %v, want Unavailable", err)
	}
	if l, err := c.ListInstances(ctx, cloudsim.ListOptions{}); err != nil || len(l.Items) != 0 {
		t.Errorf("instances: got %+v, error %v; want 0", l.Items, err)
	}
}

func TestFaultLatency(t *testing.T) {
	c := cloudtest.Start(t)
	const late = 150 * time.Millisecond
	createFault(t, c, "zones.list", cloudsim.FaultEffect{Type: cloudsim.FaultLatency, LatencyMillis: int(late.Milliseconds())}, cloudsim.FaultWhen{Max: 1})
	begin := time.Now()
	if resp, raw := sendRequest(t, c, "GET", zonesOf, ""); resp.StatusCode != http.StatusOK || time.Since(begin) < late {
		t.Errorf("got %s after %s: %s; want 200 after the delay", resp.Status, time.Since(begin), raw)
	}
}

// TestFaultOfIdentity proves that a fault affects the operation identity.get only if a dialect
// makes the call. A dialect is a server that translates the API of another cloud.
func TestFaultOfIdentity(t *testing.T) {
	c := cloudtest.Start(t)
	createFault(t, c, "*", cloudsim.FaultEffect{Type: cloudsim.FaultError}, cloudsim.FaultWhen{})
	if _, err := c.WhoAmI(t.Context()); err != nil {
		t.Errorf("direct call: got error %v", err)
	}
	if _, err := c.ListZones(t.Context(), cloudsim.ListOptions{}); !errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("another call: got error %v, want Unavailable", err)
	}
	if resp, _ := sendRequest(t, c, "GET", "/v1/whoami", "", "Dialect-Call", "hcloud.pricing.get"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("call of a dialect: got status %d, want 503", resp.StatusCode)
	}
}

// TestCancelDelayedCall proves that a caller can cancel a call that a fault delays. The cloud then
// ends the call, and the call changes nothing.
func TestCancelDelayedCall(t *testing.T) {
	for _, effect := range []cloudsim.FaultEffect{
		{Type: cloudsim.FaultHang},
		{Type: cloudsim.FaultLatency, LatencyMillis: 600_000},
	} {
		t.Run(string(effect.Type), func(t *testing.T) {
			c := cloudtest.Start(t)
			f := createFault(t, c, "instances.create", effect, cloudsim.FaultWhen{})
			ctx, leave := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := c.CreateInstance(ctx, cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"}); !errors.Is(err, context.Canceled) {
					t.Errorf("call of a cancelled client: got error %v, want context.Canceled", err)
				}
			})
			eventually.True(t, "fault is hit", func() bool {
				f, err := c.GetFault(t.Context(), f.ID)
				return err == nil && f.Hits == 1
			})
			leave()
			wg.Wait()
			eventually.True(t, "call ends", func() bool {
				_, metrics := sendRequest(t, c, "GET", "/metrics", "")
				return bytes.Contains(metrics, []byte(`cloudsim_api_request_duration_seconds_count{operation="instances.create"} 1`))
			})
			if l, err := c.ListInstances(t.Context(), cloudsim.ListOptions{}); err != nil || len(l.Items) != 0 {
				t.Errorf("instances: got %+v, error %v; want 0", l.Items, err)
			}
		})
	}
}

// TestFaultMaxOverTheWire proves that a fault refuses exactly FaultWhen.Max calls.
// The test makes 64 calls at the same time.
func TestFaultMaxOverTheWire(t *testing.T) {
	c := cloudtest.Start(t)
	const callers, most = 64, 20
	createFault(t, c, "instances.create", cloudsim.FaultEffect{Type: cloudsim.FaultError}, cloudsim.FaultWhen{Max: most})
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() {
			_, errs[n] = c.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: fmt.Sprintf("n-%d", n), Zone: "sim-1a", Type: "small"})
		})
	}
	wg.Wait()
	refused := 0
	for _, err := range errs {
		if err != nil {
			refused++
		}
	}
	if l, err := c.ListInstances(t.Context(), cloudsim.ListOptions{}); err != nil || refused != most || len(l.Items) != callers-most {
		t.Errorf("got %d refused calls and %d instances, error %v; want %d and %d", refused, len(l.Items), err, most, callers-most)
	}
}

// TestFaultTargets proves that a fault for "*" affects every operation in the list of fault
// targets. The test calls only operations with the methods GET and DELETE, because these need no
// request body. The test also proves that the list contains no operation on faults, and that
// CreateFault returns Invalid for a fault that matches no operation.
func TestFaultTargets(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	targets, err := c.FaultTargets(ctx)
	if err != nil || len(targets) < 25 {
		t.Fatalf("got %d fault targets, error %v; want at least 25", len(targets), err)
	}
	f := createFault(t, c, "*", cloudsim.FaultEffect{Type: cloudsim.FaultError}, cloudsim.FaultWhen{})
	for _, target := range targets {
		if strings.HasPrefix(target.Operation, "faults.") {
			t.Errorf("fault targets: got %s, want no operation of faults", target.Operation)
		}
		if target.Method != http.MethodGet && target.Method != http.MethodDelete {
			continue // needs a body, and the API checks the body first
		}
		path := strings.ReplaceAll(target.Path, "{id}", "x-000001")
		if resp, raw := sendRequest(t, c, target.Method, path, "", "Dialect-Call", "hcloud.pricing.get"); resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s with a fault: got %s %s, want 503", target.Operation, resp.Status, raw)
		}
	}
	if _, err := c.GetFault(ctx, f.ID); err != nil {
		t.Errorf("faults.get with a fault for every operation: got error %v", err)
	}
	_, err = c.CreateFault(ctx, cloudsim.CreateFault{Name: "typo", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "instance.*"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultDrop},
	}})
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || e.Kind != cloudsim.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != "match.operation" {
		t.Errorf("fault that matches no operation: got error %v, want Invalid with the field match.operation", err)
	}
}

// TestFaultsAreHiddenFromOthers proves that a caller without the role admin, e.g. a controller
// under test, sees neither faults nor the events of faults.
func TestFaultsAreHiddenFromOthers(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	tok, err := c.CreateToken(ctx, cloudsim.CreateToken{Name: "ccm", Role: cloudsim.RoleWriter})
	if err != nil {
		t.Fatal(err)
	}
	createFault(t, c, "zones.*", cloudsim.FaultEffect{Type: cloudsim.FaultDrop}, cloudsim.FaultWhen{})
	ccm := *c
	ccm.Token, ccm.Project = client.StaticToken(tok.Secret), ""
	if _, err := ccm.ListFaults(ctx, cloudsim.ListOptions{}); !errors.Is(err, cloudsim.Denied) {
		t.Errorf("list of faults: got error %v, want Denied", err)
	}
	if l, err := ccm.ListEvents(ctx, cloudsim.WatchOptions{Kinds: []cloudsim.ResourceKind{cloudsim.KindFault}}); err != nil || len(l.Items) != 0 {
		t.Errorf("events of faults: got %+v, error %v; want none", l.Items, err)
	}
}
