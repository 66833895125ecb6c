package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) billRoutes() {
	handle(a, op{id: "bill.get", method: http.MethodGet, path: "/v1/bill", summary: "Count the API calls of each caller since the last reset, or since a time", access: engine.Admin}, a.getBill)
	handle(a, op{id: "bill.reset", method: http.MethodDelete, path: "/v1/bill", summary: "Reset the counters of the bill", status: http.StatusNoContent, access: engine.Admin}, a.resetBill)
	handle(a, op{id: "audit.list", method: http.MethodGet, path: "/v1/audit", summary: "List the most recent calls", access: engine.Admin}, a.listAudit)
	handle(a, op{id: "audit.watch", method: http.MethodGet, path: auditWatchPath, summary: "Stream the calls after the call with a given number, one JSON document per line", access: engine.Admin}, a.watchAudit)
	handle(a, op{id: "rateLimits.get", method: http.MethodGet, path: "/v1/rate-limits", summary: "Read the rate limits of callers", access: engine.Read},
		func(ctx context.Context, _ *none) (*struct{ Body cloudsim.RateLimits }, error) {
			return withoutETag(a.engine.GetRateLimits(ctx))
		})
	handle(a, op{id: "rateLimits.set", method: http.MethodPut, path: "/v1/rate-limits", summary: "Set the rate limits of callers", access: engine.Admin},
		func(ctx context.Context, in *create[cloudsim.RateLimits]) (*struct{ Body cloudsim.RateLimits }, error) {
			return withoutETag(a.engine.SetRateLimits(ctx, in.Body))
		})
}

type auditInput struct {
	Caller    string    `query:"caller" maxLength:"63" doc:"Only calls of the service account or token of this name"`
	Operation string    `query:"operation" maxLength:"128" doc:"Only calls of operations whose id matches this pattern; * matches any characters"`
	Since     time.Time `query:"since" doc:"RFC 3339; only calls at or after this time, on the cloud's clock"`
}

func (in auditInput) options() cloudsim.AuditOptions {
	return cloudsim.AuditOptions{Caller: in.Caller, Operation: in.Operation, Since: in.Since}
}

func (a *api) getBill(ctx context.Context, in *auditInput) (*struct{ Body cloudsim.Bill }, error) {
	return withoutETag(a.engine.Bill(ctx, in.options()))
}

func (a *api) resetBill(ctx context.Context, _ *none) (*none, error) {
	return nil, a.engine.ResetBill(ctx)
}

// AuditFilter is exported because huma reads only exported embedded structs.
type AuditFilter = auditInput

// AuditPosition contains the query parameter "after". It is exported because huma reads only
// exported embedded structs.
type AuditPosition struct {
	After uint64 `query:"after" doc:"Only calls after the call with this number; 0 for all calls in memory"`
}

func (a *api) listAudit(ctx context.Context, in *struct {
	AuditFilter
	AuditPosition
	Limit int `query:"limit" minimum:"0" maximum:"16384" doc:"Maximum number of calls in the answer, which contains the newest calls. 0 or absent for 500"`
}) (*struct{ Body cloudsim.AuditTrail }, error) {
	o := in.options()
	o.After = in.After
	if o.Limit = in.Limit; o.Limit == 0 {
		o.Limit = cloudsim.DefaultPageSize
	}
	return withoutETag(a.engine.Audit(ctx, o))
}

// watchAudit streams the entries of the audit trail. It reports errors in the same way as
// watchEvents.
func (a *api) watchAudit(ctx context.Context, in *struct {
	AuditFilter
	AuditPosition
}) (*huma.StreamResponse, error) {
	o := in.options()
	o.After = in.After
	if _, err := a.engine.Audit(ctx, o); err != nil {
		return nil, err
	}
	return streamItems(ctx, a, a.engine.WatchAudit(ctx, o, bookmarkEvery)), nil
}

type auditFile struct {
	mu sync.Mutex
	w  io.Writer
}

// recordCall adds an ended call to the audit trail in memory and to the audit file. It
// ignores requests outside the API, and calls about the bill or the audit trail. So a
// caller that reads the bill does not change the bill.
func (a *api) recordCall(x *exchange, rec *recorder, dropped bool, took time.Duration) {
	if noun := tagOf(x.operation); x.operation == "" || noun == "bill" || noun == "audit" {
		return
	}
	e := cloudsim.AuditEntry{
		Time: x.at, RequestID: x.requestID, Caller: x.caller, Operation: x.operation, Target: x.target, DialectCall: x.dialectCall,
		Outcome: outcomeOf(x, rec.status, dropped), Status: rec.status, Fault: cloudsim.FaultID(x.fault), Throttled: x.throttled,
		Millis: float64(took.Microseconds()) / 1000, Bytes: rec.bytes,
	}
	if e.Time.IsZero() {
		e.Time = a.engine.Now()
	}
	e = a.engine.Record(e)
	if a.audit.w == nil {
		return
	}
	line, err := json.Marshal(e)
	if err != nil {
		a.log.Error("cannot write a call to the audit file", "requestId", e.RequestID, "err", err)
		return
	}
	a.audit.mu.Lock()
	defer a.audit.mu.Unlock()
	if _, err := a.audit.w.Write(append(line, '\n')); err != nil {
		a.log.Error("cannot write a call to the audit file", "requestId", e.RequestID, "err", err)
	}
}

func outcomeOf(x *exchange, status int, dropped bool) string {
	switch {
	case dropped || status == 0:
		return cloudsim.OutcomeDropped
	case status < 400:
		return cloudsim.OutcomeOK
	case x.outcome != "":
		return x.outcome
	case status < 500: // huma could not decode the request
		return cloudsim.Invalid.Error()
	}
	return cloudsim.Internal.Error()
}
