package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

func auditQuery(o cloudsim.AuditOptions) string {
	q := url.Values{}
	if o.Caller != "" {
		q.Set("caller", o.Caller)
	}
	if o.Operation != "" {
		q.Set("operation", o.Operation)
	}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.Format(time.RFC3339Nano))
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.After != 0 {
		q.Set("after", strconv.FormatUint(o.After, 10))
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// Bill returns the number of API calls for each caller and operation. If o.Since is zero, the bill
// includes all calls since the last reset or the start of the cloud. Otherwise it includes the
// calls since o.Since that the cloud still has in memory. The caller must have the permission
// bill.get in all projects.
func (c *Client) Bill(ctx context.Context, o cloudsim.AuditOptions) (cloudsim.Bill, error) {
	o.Limit, o.After = 0, 0
	return call[cloudsim.Bill](ctx, c, "GET", "/v1/bill"+auditQuery(o), nil)
}

// ResetBill sets the counts of the bill to zero.
func (c *Client) ResetBill(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/bill", nil)
	return err
}

// Audit returns the newest API calls. In the result, the oldest of these calls comes first. The
// result contains at most o.Limit calls. If o.Limit is 0, the limit is cloudsim.DefaultPageSize. If
// o.After is not 0, Audit returns only calls with higher numbers than o.After. It returns Gone if
// some of these calls are no longer in the cloud's memory, e.g. after a restart. The caller must
// have the permission audit.list in all projects.
func (c *Client) Audit(ctx context.Context, o cloudsim.AuditOptions) (cloudsim.AuditTrail, error) {
	return call[cloudsim.AuditTrail](ctx, c, "GET", "/v1/audit"+auditQuery(o), nil)
}

// RateLimits returns the rate limits, which apply to each caller separately.
func (c *Client) RateLimits(ctx context.Context) (cloudsim.RateLimits, error) {
	return call[cloudsim.RateLimits](ctx, c, "GET", "/v1/rate-limits", nil)
}

// SetRateLimits sets the rate limits, which apply to each caller separately. The caller of
// SetRateLimits must be an admin.
func (c *Client) SetRateLimits(ctx context.Context, req cloudsim.RateLimits) (cloudsim.RateLimits, error) {
	return call[cloudsim.RateLimits](ctx, c, "PUT", "/v1/rate-limits", req)
}
