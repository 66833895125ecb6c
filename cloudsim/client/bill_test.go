package client_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestBill proves that the bill counts each caller's calls by operation and outcome.
func TestBill(t *testing.T) {
	cloud, ctx := cloudtest.Start(t), t.Context()
	mine := cloudtest.As(t, cloud, "mine", cloudsim.RoleReader)
	if err := cloud.ResetBill(ctx); err != nil {
		t.Fatal(err)
	}
	must(mine.ListInstances(ctx, cloudsim.ListOptions{}))(t)
	must(mine.ListInstances(ctx, cloudsim.ListOptions{}))(t)
	_, _ = mine.GetInstance(ctx, "i-00000f")
	_, _ = mine.CreateInstance(ctx, instance("a"))
	f := must(cloud.CreateFault(ctx, cloudsim.CreateFault{Name: "f", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "zones.list"}, When: cloudsim.FaultWhen{Max: 2}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultThrottle},
	}}))(t)
	_, _ = mine.ListZones(ctx, cloudsim.ListOptions{})

	b := must(cloud.Bill(ctx, cloudsim.AuditOptions{Caller: "mine"}))(t)
	if b.Total.Calls != 5 || b.Total.Denied != 1 || b.Total.Throttled != 1 || b.Total.Faults != 1 || b.Total.Failed != 3 ||
		b.Total.Errors["not_found"] != 1 || b.Total.Errors["denied"] != 1 || b.Total.Errors["exhausted"] != 1 || !b.Complete {
		t.Errorf("totals of the bill: got %+v, want 5 calls, 3 of them failed, each with a different error", b)
	}
	if len(b.Rows) != 4 || b.Rows[2].Operation != "instances.list" || b.Rows[2].Calls != 2 || b.Rows[2].Bytes == 0 {
		t.Errorf("rows of the bill: got %+v, want 4 rows, the third with 2 calls of instances.list", b.Rows)
	}
	if since := must(cloud.Bill(ctx, cloudsim.AuditOptions{Caller: "mine", Since: b.From}))(t); since.Total.Calls != 5 {
		t.Errorf("bill since the start of the first bill: got %+v, want 5 calls", since.Total)
	}
	trail := must(cloud.Audit(ctx, cloudsim.AuditOptions{Caller: "mine", Operation: "zones.*"}))(t)
	if len(trail.Items) != 1 || trail.Items[0].Fault != f.ID || trail.Items[0].Outcome != "exhausted" || trail.Items[0].Status != 429 || trail.Items[0].RequestID == "" {
		t.Errorf("audit trail of zones.*: got %+v, want 1 entry with the fault and status 429", trail)
	}
	if err := cloud.ResetBill(ctx); err != nil {
		t.Fatal(err)
	}
	if b := must(cloud.Bill(ctx, cloudsim.AuditOptions{Caller: "mine"}))(t); b.Total.Calls != 0 {
		t.Errorf("bill after the reset: got %+v, want 0 calls", b)
	}
}

// TestWatchAudit proves that a watch of the audit trail yields each selected call once, in the
// order of the calls' numbers. To begin after a stored call, the client sends the number of this
// call. If the cloud has no call with this number, the watch yields Gone. The watch ends when an
// admin deletes the token that the watch uses.
func TestWatchAudit(t *testing.T) {
	cloud, ctx := cloudtest.Start(t), t.Context()
	mine := cloudtest.As(t, cloud, "mine", cloudsim.RoleReader)
	before := must(cloud.Audit(ctx, cloudsim.AuditOptions{}))(t)
	for range 2 {
		must(mine.ListZones(ctx, cloudsim.ListOptions{}))(t)
		_, _ = mine.GetInstance(ctx, "i-00000f")
	}
	take := func(n int, o cloudsim.AuditOptions) (all []cloudsim.AuditEntry) {
		t.Helper()
		for e, err := range cloud.WatchAudit(ctx, o) {
			if err != nil {
				t.Fatal(err)
			}
			if all = append(all, e); len(all) == n {
				break
			}
			if len(all) == n-1 { // the last call happens during the watch
				must(mine.ListZones(ctx, cloudsim.ListOptions{}))(t)
			}
		}
		return all
	}
	all := take(5, cloudsim.AuditOptions{Caller: "mine", After: before.Last})
	for i, want := range []string{"zones.list", "instances.get", "zones.list", "instances.get", "zones.list"} {
		if got := all[i]; got.Operation != want || got.Number != before.Last+uint64(i)+1 {
			t.Errorf("call %d: got %s with number %d, want %s with number %d", i, got.Operation, got.Number, want, before.Last+uint64(i)+1)
		}
	}
	if got := take(2, cloudsim.AuditOptions{Operation: "zones.*", After: all[0].Number}); got[0].Number != all[2].Number || got[1].Number != all[4].Number {
		t.Errorf("zones.* after the first call: got %+v, want the calls %d and %d", got, all[2].Number, all[4].Number)
	}
	for _, tc := range []struct {
		number uint64
		want   string
	}{{1, "no longer in memory"}, {all[4].Number + 1000, "does not exist yet"}, {math.MaxUint64, "does not exist yet"}} {
		for _, err := range cloud.WatchAudit(ctx, cloudsim.AuditOptions{After: tc.number}) {
			if !errors.Is(err, cloudsim.Gone) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("watch after number %d: got error %v, want Gone and %q", tc.number, err, tc.want)
			}
		}
	}
	for _, err := range mine.WatchAudit(ctx, cloudsim.AuditOptions{}) {
		if !errors.Is(err, cloudsim.Denied) {
			t.Errorf("watch of a reader: got error %v, want Denied", err)
		}
	}

	tok := must(cloud.CreateToken(ctx, cloudsim.CreateToken{Name: "screen", Role: cloudsim.RoleAdmin}))(t)
	screen := *cloud
	screen.Token = client.StaticToken(tok.Secret)
	var last error
	for e, err := range screen.WatchAudit(ctx, cloudsim.AuditOptions{Caller: "mine"}) {
		switch last = err; {
		case err == nil && e.Number == all[0].Number:
			if err := cloud.DeleteToken(ctx, tok.ID); err != nil {
				t.Fatal(err)
			}
			must(mine.ListZones(ctx, cloudsim.ListOptions{}))(t)
		case err == nil && e.Number > all[4].Number+2:
			t.Fatalf("the watch of a deleted token yields %+v", e)
		}
	}
	if !errors.Is(last, cloudsim.Unauthenticated) {
		t.Errorf("watch of a deleted token: got error %v, want Unauthenticated", last)
	}
}

// TestRateLimits proves that a caller gets an error with a Retry-After if it makes more calls than
// the rate limit allows. The Retry-After is a duration on the cloud's clock. After this time, the
// next call of the caller succeeds. The calls of other callers do not count toward this limit.
func TestRateLimits(t *testing.T) {
	cloud, ctx := cloudtest.Start(t), t.Context()
	mine, other := cloudtest.As(t, cloud, "mine", cloudsim.RoleReader), cloudtest.As(t, cloud, "other", cloudsim.RoleReader)
	must(cloud.SetClock(ctx, cloudsim.SetClock{Rate: new(0.0)}))(t)
	must(cloud.SetRateLimits(ctx, cloudsim.RateLimits{Read: cloudsim.Rate{PerSecond: 0.5, Burst: 2}}))(t)
	for range 2 {
		must(mine.ListZones(ctx, cloudsim.ListOptions{}))(t)
	}
	_, err := mine.ListZones(ctx, cloudsim.ListOptions{})
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || e.Kind != cloudsim.Exhausted || e.RetryAfter != 2*time.Second {
		t.Fatalf("third call: got error %#v, want Exhausted and a retry after 2s", err)
	}
	must(other.ListZones(ctx, cloudsim.ListOptions{}))(t)
	must(cloud.AdvanceClock(ctx, cloudsim.AdvanceClock{Seconds: 2}))(t)
	must(mine.ListZones(ctx, cloudsim.ListOptions{}))(t)
	if _, err := mine.ListZones(ctx, cloudsim.ListOptions{}); !errors.Is(err, cloudsim.Exhausted) {
		t.Errorf("second call after the wait: got error %v, want Exhausted", err)
	}
	must(cloud.SetClock(ctx, cloudsim.SetClock{Real: true}))(t)
	must(cloud.SetRateLimits(ctx, cloudsim.RateLimits{Read: cloudsim.Rate{PerSecond: 20, Burst: 1}}))(t)
	patient := *mine
	patient.Retries = 20
	for range 3 {
		must(patient.ListZones(ctx, cloudsim.ListOptions{}))(t)
	}
	if _, err := cloud.SetRateLimits(ctx, cloudsim.RateLimits{Read: cloudsim.Rate{PerSecond: 1}}); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("rate limit without a burst: got error %v, want Invalid", err)
	}
	must(cloud.SetRateLimits(ctx, cloudsim.RateLimits{}))(t)
}
