package cloudsim

import "time"

// AuditEntry records one API call and its outcome.
type AuditEntry struct {
	// Number is the position of the entry in the audit trail. Numbers increase by 1 from entry to
	// entry. After a restart of the cloud, there can be a gap, but the numbers are higher than
	// before. A client can store the Number of the last entry that it handled, and continue to read
	// after this entry.
	Number    uint64    `json:"number" doc:"Position in the audit trail. Numbers rise by 1, and after a restart of the cloud they continue with a higher number"`
	Time      time.Time `json:"time" doc:"Time of the call, RFC 3339, on the cloud's clock"`
	RequestID string    `json:"requestId"`
	Caller    string    `json:"caller,omitempty" doc:"Name of the service account or token; absent for unknown callers"`
	Operation string    `json:"operation" example:"instances.create"`
	Target    string    `json:"target,omitempty" doc:"Id of the resource, from the path of the call" example:"i-000001"`
	// A dialect is a server that translates the API of another cloud, e.g. Hetzner Cloud.
	// If a dialect made this API call, DialectCall is the name of the other cloud's call
	// that the dialect translated. Otherwise DialectCall is empty.
	DialectCall string  `json:"dialectCall,omitempty" doc:"Call of the other cloud's API that a dialect translated to this call, as DIALECT.CALL" example:"hcloud.load_balancers.add_service"`
	Outcome     string  `json:"outcome" doc:"ok, or the kind of the error, or dropped if no reply was sent" example:"not_found"`
	Status      int     `json:"status,omitempty" doc:"HTTP status; absent if no reply was sent"`
	Fault       FaultID `json:"fault,omitempty" doc:"Id of the fault that changed the call"`
	Throttled   bool    `json:"throttled,omitempty" doc:"Whether a rate limit or a fault answered 429"`
	Millis      float64 `json:"millis" doc:"Duration of the call in milliseconds"`
	Bytes       int64   `json:"bytes" doc:"Length of the reply in bytes"`
}

// These are values of AuditEntry.Outcome, in addition to the names of the error kinds.
const (
	OutcomeOK      = "ok"
	OutcomeDropped = "dropped"
)

// AuditTrail contains the most recent calls, oldest first. It does not contain calls about the bill
// or the audit trail.
type AuditTrail struct {
	Items   []AuditEntry `json:"items"`
	Last    uint64       `json:"last" doc:"Number of the newest call in memory. A watch after this number misses no call"`
	Dropped uint64       `json:"dropped" doc:"Number of older calls that are not in memory any more; see --audit-file"`
}

// AuditOptions select entries of the audit trail. The zero value selects all stored entries. But in
// the HTTP API, the limit 0 selects only the newest DefaultPageSize entries.
type AuditOptions struct {
	Caller    string    // name of the service account or token
	Operation string    // pattern of operation ids; "" means all operations
	Since     time.Time // earliest time, inclusive
	Limit     int       // maximum number of calls, counted back from the newest call; 0 means all stored calls
	After     uint64    // only calls after the call with this number; 0 means all stored calls
}

// AuditLine is one line of the answer to a watch of the audit trail. A line contains a call
// or a bookmark.
type AuditLine struct {
	*AuditEntry // nil in a bookmark
	// Bookmark is the Number of the last entry that the watch has read, even if the filter of the
	// watch left out this entry. A client can continue its watch after this number. Bookmark is 0
	// if this AuditLine contains a call.
	Bookmark uint64 `json:"bookmark,omitempty"`
}

// Covers reports whether the caller, the operation and the time of e match o. Covers
// ignores the fields Limit and After.
func (o AuditOptions) Covers(e AuditEntry) bool {
	return (o.Caller == "" || o.Caller == e.Caller) && (o.Operation == "" || Glob(o.Operation, e.Operation)) && !e.Time.Before(o.Since)
}

// Bill sums up API calls in a time window. It does not include calls about the bill or the audit
// trail.
type Bill struct {
	From     time.Time  `json:"from" doc:"Start of the window: the start of the cloud, the last reset, or the requested time"`
	To       time.Time  `json:"to"`
	Complete bool       `json:"complete" doc:"Whether all calls of the window are still in memory"`
	Rows     []BillRow  `json:"rows" doc:"Sorted by caller and operation"`
	Total    BillCounts `json:"total"`
}

// BillRow sums up the calls of one caller to one operation.
type BillRow struct {
	Caller    string `json:"caller" doc:"Empty for unknown callers"`
	Operation string `json:"operation"`
	BillCounts
}

// BillCounts contains sums over several API calls.
type BillCounts struct {
	Calls     uint64            `json:"calls"`
	Throttled uint64            `json:"throttled" doc:"Number of calls that a rate limit or a fault answered with 429"`
	Denied    uint64            `json:"denied" doc:"Number of calls without the permission or without a valid token"`
	Failed    uint64            `json:"failed" doc:"Number of calls with an error or without a reply"`
	Errors    map[string]uint64 `json:"errors,omitempty" doc:"Number of failed calls, by kind of error"`
	Faults    uint64            `json:"faults" doc:"Number of calls that a fault affected"`
	Millis    float64           `json:"millis" doc:"Sum of the durations in milliseconds"`
	Bytes     int64             `json:"bytes" doc:"Sum of the lengths of the replies in bytes"`
}

// Add adds the call e to the sums in b.
func (b *BillCounts) Add(e AuditEntry) {
	b.Calls++
	b.Millis += e.Millis
	b.Bytes += e.Bytes
	if e.Fault != "" {
		b.Faults++
	}
	if e.Throttled {
		b.Throttled++
	}
	if e.Outcome == OutcomeOK {
		return
	}
	b.Failed++
	if e.Outcome == Denied.Error() || e.Outcome == Unauthenticated.Error() {
		b.Denied++
	}
	if b.Errors == nil {
		b.Errors = map[string]uint64{}
	}
	b.Errors[e.Outcome]++
}

// Merge adds the sums of another BillCounts to b.
func (b *BillCounts) Merge(other BillCounts) {
	b.Calls += other.Calls
	b.Throttled += other.Throttled
	b.Denied += other.Denied
	b.Failed += other.Failed
	b.Faults += other.Faults
	b.Millis += other.Millis
	b.Bytes += other.Bytes
	for kind, n := range other.Errors {
		if b.Errors == nil {
			b.Errors = map[string]uint64{}
		}
		b.Errors[kind] += n
	}
}

// RateLimits limits the API calls of each caller. The cloud applies the same limits to all callers.
// Each caller has two token buckets: one for calls that read, and one for all other calls. The
// limits do not apply to operations on the whole cloud, which only an admin may call. An example is
// a change of the limits.
type RateLimits struct {
	Read  Rate `json:"read,omitzero" doc:"Limit of calls that read; absent for no limit"`
	Write Rate `json:"write,omitzero" doc:"Limit of all other calls; absent for no limit"`
}

// Rate configures a token bucket, which limits calls. The buckets of RateLimits use the cloud's
// clock.
type Rate struct {
	PerSecond float64 `json:"perSecond,omitempty" minimum:"0" maximum:"1000000" example:"10" doc:"Long-term average of calls per second; 0 for no limit"`
	Burst     int     `json:"burst,omitempty" minimum:"0" maximum:"1000000" example:"20" doc:"Maximum number of calls at once after a pause; at least 1 if perSecond is not 0"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r RateLimits) Validate() error {
	var c checks
	r.Read.check(&c, "read")
	r.Write.check(&c, "write")
	return c.err()
}

func (r Rate) check(c *checks, field string) {
	switch {
	case !(r.PerSecond >= 0 && r.PerSecond <= 1e6):
		c.addf(field+".perSecond", "must be between 0 and a million, got %v", r.PerSecond)
	case r.Burst < 0 || r.Burst > 1e6:
		c.addf(field+".burst", "must be between 0 and a million, got %d", r.Burst)
	case (r.PerSecond == 0) != (r.Burst == 0):
		c.addf(field, "needs both perSecond and burst, or neither for no limit")
	}
}
