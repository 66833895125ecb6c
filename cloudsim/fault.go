package cloudsim

import (
	"crypto/sha256"
	"encoding/binary"
	"path"
	"regexp"
	"time"
)

// FaultID names a fault, e.g. "fault-000001".
type FaultID string

// KindFault is the kind of resource in events about faults. The cloud writes an event of this kind
// for every call that a fault hits. The event contains the request id of the call.
const KindFault ResourceKind = "fault"

// Fault is a rule that delays API calls or changes their results. The cloud checks the rules in the
// order of their ids. A latency rule delays the call, and then the cloud checks the next rule. If a
// rule with any other effect hits the call, the cloud does not check the later rules. The field
// Seen of the later rules does not count this call.
//
// The cloud first checks the authentication, the project, the syntax and the permissions of a
// request. Then it checks the rules, before it does any work for the request. No rule applies to
// operations on faults, so a user can always delete a fault. No rule applies to operations on the
// clock, holds, work durations or saved states, or to the operations of the command `why`. A rule
// applies to the operation identity.get only in calls through a dialect (see
// FaultMatch.DialectCall).
type Fault struct {
	ID FaultID `json:"id" example:"fault-000001"`
	Meta
	FaultSpec
	Seen uint64 `json:"seen" doc:"Number of matching calls while the fault was active, without the calls that another fault had already changed"`
	Hits uint64 `json:"hits" doc:"Number of calls that the fault changed"`
}

// FaultSpec is the part of a fault that the caller chooses.
type FaultSpec struct {
	Match  FaultMatch  `json:"match" doc:"Condition of matching calls. A call must match all given fields"`
	When   FaultWhen   `json:"when,omitzero" doc:"Selection among the matching calls; absent for all matching calls"`
	Effect FaultEffect `json:"effect" doc:"Effect on the matching calls"`
}

// FaultMatch selects API calls. A call must match all fields that are not empty.
type FaultMatch struct {
	Operation string            `json:"operation" minLength:"1" maxLength:"128" example:"instances.*" doc:"Operation id, in which * matches any characters. See GET /v1/faults/targets"`
	Caller    string            `json:"caller,omitempty" maxLength:"63" example:"ccm" doc:"Name of the caller's token or service account"`
	Target    string            `json:"target,omitempty" maxLength:"128" example:"i-000001" doc:"Id of the resource in the path"`
	Labels    map[string]string `json:"labels,omitempty" doc:"Labels of the resource in the path, or of the resource that the request creates"`
	Zone      string            `json:"zone,omitempty" maxLength:"63" example:"sim-1a" doc:"Zone of the resource in the path, or of the resource that the request creates"`
	// A dialect is a server that translates the API of another cloud. DialectCall is a pattern for
	// calls of that API in the form DIALECT.CALL.
	DialectCall string `json:"dialectCall,omitempty" maxLength:"128" example:"hcloud.load_balancers.add_service" doc:"Call of another cloud's API, as DIALECT.CALL, in which * matches any characters. Only calls through a dialect match. See 'allinone dialect calls'"`
	Type        string `json:"type,omitempty" maxLength:"63" example:"small" doc:"Instance type or disk type of the resource in the path, or of the resource that the request creates"`
}

// FaultWhen selects some of the matching calls. Times are on the cloud's clock.
type FaultWhen struct {
	Probability  *float64   `json:"probability,omitempty" exclusiveMinimum:"0" maximum:"1" example:"0.3" doc:"Probability that the fault changes a matching call, more than 0 and at most 1; absent for 1"`
	Seed         uint64     `json:"seed,omitempty" doc:"Seed of the random numbers; 0 or absent for the seed of the cloud. The same seed, fault id and number of the call give the same decision"`
	Skip         uint64     `json:"skip,omitempty" doc:"Number of matching calls that the fault first leaves unchanged"`
	Max          uint64     `json:"max,omitempty" doc:"Maximum number of calls that the fault changes, even if calls are concurrent; 0 or absent for no maximum"`
	From         *time.Time `json:"from,omitempty" doc:"RFC 3339; start of the fault. Cannot be used with afterSeconds"`
	Until        *time.Time `json:"until,omitempty" doc:"RFC 3339; end of the fault. Cannot be used with forSeconds"`
	AfterSeconds int64      `json:"afterSeconds,omitempty" minimum:"0" maximum:"315360000" doc:"Seconds from the creation of the fault to its start"`
	ForSeconds   int64      `json:"forSeconds,omitempty" minimum:"0" maximum:"315360000" doc:"Seconds from the start of the fault to its end; 0 or absent for no end"`
}

// These constants limit the effects of a fault.
const (
	MaxFaultHang    = 10 * time.Minute // after this time the cloud closes the connection of a hanging call
	maxFaultLatency = 10 * time.Minute
)

// CreateFault requests a fault. The call is idempotent by name: the same
// request returns the existing fault with its counters.
type CreateFault struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"lost-reply" doc:"Unique in the cloud"`
	Labels map[string]string `json:"labels,omitempty" doc:"Labels of the fault"`
	FaultSpec
}

// FaultTargets lists every operation that faults can affect. The list is sorted
// by the operation's id.
type FaultTargets struct {
	Items []FaultTarget `json:"items"`
}

// FaultTarget is an operation that a fault can affect.
type FaultTarget struct {
	Operation string `json:"operation" example:"instances.create"`
	Method    string `json:"method" example:"POST"`
	Path      string `json:"path" example:"/v1/instances"`
	Summary   string `json:"summary"`
}

var dialectCallRE = regexp.MustCompile(`^[A-Za-z0-9_*]+(\.[A-Za-z0-9_*]+)*$`)

// ValidDialectCall reports whether s can be the name of a call of another cloud's API, e.g.
// "hcloud.load_balancers.add_service", or a pattern for these names.
func ValidDialectCall(s string) bool { return len(s) <= 128 && dialectCallRE.MatchString(s) }

var operationRE = regexp.MustCompile(`^[A-Za-z0-9*]+(\.[A-Za-z0-9*]+)*$`)

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateFault) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.labels(r.Labels)
	r.Match.check(&c)
	r.When.check(&c)
	r.Effect.check(&c)
	r.checkOutage(&c)
	return c.err()
}

func (m FaultMatch) check(c *checks) {
	if !operationRE.MatchString(m.Operation) || len(m.Operation) > 128 {
		c.addf("match.operation", "must be an operation id in which * matches any characters, e.g. instances.* or loadBalancers.create; got %q", Clip(m.Operation))
	}
	if m.Caller != "" && !nameRE.MatchString(m.Caller) {
		c.addf("match.caller", "must be the name of a token or service account, got %q", Clip(m.Caller))
	}
	c.optionalReference("match.target", m.Target)
	if m.DialectCall != "" && !ValidDialectCall(m.DialectCall) {
		c.addf("match.dialectCall", "must be a call of a dialect in which * stands for any characters, e.g. hcloud.volumes.*; got %q", Clip(m.DialectCall))
	}
	if m.Zone != "" && !nameRE.MatchString(m.Zone) {
		c.addf("match.zone", "must be the name of a zone, got %q", Clip(m.Zone))
	}
	if m.Type != "" && !nameRE.MatchString(m.Type) {
		c.addf("match.type", "must be the name of an instance type or disk type, got %q", Clip(m.Type))
	}
	var bad checks
	bad.labels(m.Labels)
	for _, f := range bad {
		c.addf("match."+f.Field, "%s", f.Reason)
	}
}

func (w FaultWhen) check(c *checks) {
	if p := w.Probability; p != nil && !(*p > 0 && *p <= 1) {
		c.addf("when.probability", "must be more than 0 and at most 1, got %v", *p)
	}
	if w.AfterSeconds < 0 || w.AfterSeconds > tenYears {
		c.addf("when.afterSeconds", "must be between 0 and %d seconds (ten years), got %d", tenYears, w.AfterSeconds)
	}
	if w.ForSeconds < 0 || w.ForSeconds > tenYears {
		c.addf("when.forSeconds", "must be between 0 and %d seconds (ten years), got %d", tenYears, w.ForSeconds)
	}
	if w.From != nil && w.AfterSeconds != 0 {
		c.addf("when.afterSeconds", "cannot be used with from: both set the start of the fault")
	}
	if w.Until != nil && w.ForSeconds != 0 {
		c.addf("when.forSeconds", "cannot be used with until: both set the end of the fault")
	}
	if w.From != nil && w.Until != nil && !w.From.Before(*w.Until) {
		c.addf("when.until", "must be after from")
	}
}

// Covers reports whether the pattern in m.Operation matches the given operation id.
func (m FaultMatch) Covers(operation string) bool {
	ok, err := path.Match(m.Operation, operation)
	return ok && err == nil
}

// CoversDialect reports whether the pattern in m.DialectCall matches dialectCall. A dialect
// translates a call of another cloud's API to API calls of this cloud. The parameter dialectCall is
// the name of the other cloud's call. If no dialect made the API call, dialectCall is "". An empty
// pattern matches every value.
func (m FaultMatch) CoversDialect(dialectCall string) bool {
	return m.DialectCall == "" || dialectCall != "" && Glob(m.DialectCall, dialectCall)
}

// Window returns the time window in which f can hit calls. If the window has no start, the first
// result is the zero time. If the window has no end, the second result is nil. The window includes
// its start, but not its end.
func (f Fault) Window() (from time.Time, until *time.Time) {
	w := f.When
	from = f.CreatedAt.Add(time.Duration(w.AfterSeconds) * time.Second)
	if w.From != nil {
		from = *w.From
	}
	until = w.Until
	if w.ForSeconds != 0 {
		end := from.Add(time.Duration(w.ForSeconds) * time.Second)
		until = &end
	}
	if w.From == nil && w.AfterSeconds == 0 {
		from = time.Time{} // a user can set the clock back to a time before the creation of the fault
	}
	return from, until
}

// OpenAt reports whether t is in f's window.
func (f Fault) OpenAt(t time.Time) bool {
	from, until := f.Window()
	return !t.Before(from) && (until == nil || t.Before(*until))
}

// ActiveAt reports whether f can hit a call at the time t. The result is true if t is in
// f's window, and f has not reached its maximum number of hits.
func (f Fault) ActiveAt(t time.Time) bool { return !f.Spent() && f.OpenAt(t) }

// Spent reports whether f has reached its maximum number of hits.
func (f Fault) Spent() bool { return f.When.Max != 0 && f.Hits >= f.When.Max }

// Strikes reports whether f hits the n-th matching call. For the first call, n is 1. For
// the same seed, fault id and n, the result is the same in every run. Strikes ignores the
// maximum number of hits, which the engine checks.
func (f Fault) Strikes(n uint64) bool {
	if n <= f.When.Skip {
		return false
	}
	p := f.When.Probability
	return p == nil || f.pseudoRandom("hit", n) < *p
}

// Latency returns the delay of the n-th matching call. The delay is 0 if f is not a latency
// fault.
func (f Fault) Latency(n uint64) time.Duration {
	if f.Effect.Type != FaultLatency {
		return 0
	}
	jitter := f.pseudoRandom("jitter", n) * float64(f.Effect.JitterMillis)
	return time.Duration(f.Effect.LatencyMillis)*time.Millisecond + time.Duration(jitter*float64(time.Millisecond))
}

// pseudoRandom returns a pseudo-random number in [0, 1). It uses a hash instead of a random
// number generator, because a hash needs no state, and gives the same result in every
// version of Go.
func (f Fault) pseudoRandom(use string, n uint64) float64 {
	b := binary.BigEndian.AppendUint64(nil, f.When.Seed)
	b = binary.BigEndian.AppendUint64(b, n)
	b = append(append(b, use...), f.ID...)
	sum := sha256.Sum256(b)
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}
