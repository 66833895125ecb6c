package cloudsim

import "strings"

// FaultEffectType names the effect of a fault on a call.
type FaultEffectType string

// The effects of a fault. Some effects can apply only to some operations: see
// FaultEffectType.Breaks.
const (
	FaultError            FaultEffectType = "error"            // the cloud does no work and replies with an error
	FaultLatency          FaultEffectType = "latency"          // the cloud does the work after a delay
	FaultThrottle         FaultEffectType = "throttle"         // the cloud does no work and replies with status 429 and Retry-After
	FaultHang             FaultEffectType = "hang"             // the cloud does no work, sends no reply, and closes the connection after MaxFaultHang
	FaultDrop             FaultEffectType = "drop"             // the cloud does no work and closes the connection without a reply
	FaultLoseReply        FaultEffectType = "loseReply"        // the cloud does the work and commits it, and then closes the connection without a reply
	FaultErrorAfterCommit FaultEffectType = "errorAfterCommit" // the cloud does the work and commits it, and then replies with an error
	FaultQuota            FaultEffectType = "quota"            // the cloud replies with the error of an exhausted quota
	FaultStockOut         FaultEffectType = "stockOut"         // the cloud replies with the error of a zone without capacity for the type
	FaultStaleRead        FaultEffectType = "staleRead"        // the answer shows an earlier state of the cloud
	FaultDuplicate        FaultEffectType = "duplicate"        // the cloud does the work twice and sends the second reply
	FaultStuckState       FaultEffectType = "stuckState"       // the work begins, but its operation does not end before the fault ends
	FaultCorruptToken     FaultEffectType = "corruptToken"     // the cloud makes the token, but the secret in the reply is wrong
	FaultZoneOutage       FaultEffectType = "zoneOutage"       // a whole zone fails: its API, its data plane or both
)

// FaultEffects lists every effect.
func FaultEffects() []FaultEffectType {
	return []FaultEffectType{
		FaultError, FaultLatency, FaultThrottle, FaultHang, FaultDrop, FaultLoseReply, FaultErrorAfterCommit,
		FaultQuota, FaultStockOut, FaultStaleRead, FaultDuplicate, FaultStuckState, FaultCorruptToken, FaultZoneOutage,
	}
}

// faultBreaks maps an effect to the verbs or operations to which the effect can apply.
// An effect without an entry in the map can apply to all operations except RegistryChallenge.
var faultBreaks = map[FaultEffectType][]string{
	FaultQuota:        {"create", "resize"},
	FaultStockOut:     {"instances.create", "instances.start", "disks.create", "disks.resize", "disks.modify"},
	FaultStaleRead:    {"get", "list"},
	FaultDuplicate:    {"create", "update", "delete", "set", "setTargets", "start", "stop", "reboot", "attach", "detach", "attachNetwork", "detachNetwork", "resize", "modify", "cancel", "release"},
	FaultStuckState:   {"create", "update", "delete", "setTargets", "start", "stop", "reboot", "attach", "detach", "resize", "modify"},
	FaultCorruptToken: {"tokens.create", RegistryToken},
}

// Breaks reports whether the effect t can apply to an operation. For example, the effect stockOut
// cannot apply to an operation that lists resources, and the effect stuckState cannot apply to an
// operation that only reads. The operation registry.challenge is an exception: only the effect
// corruptToken can apply to it. In this operation, the image registry tells a client to request a
// token.
func (t FaultEffectType) Breaks(operation string) bool {
	if operation == RegistryChallenge {
		return t == FaultCorruptToken
	}
	words, some := faultBreaks[t]
	if !some {
		return true
	}
	_, verb, _ := strings.Cut(operation, ".")
	for _, w := range words {
		if w == operation || w == verb {
			return true
		}
	}
	return false
}

// ZoneOutageScope is the part of a zone that fails.
type ZoneOutageScope string

// The scopes of a zone outage.
const (
	OutageAPI  ZoneOutageScope = "api"  // calls about resources in the zone fail; the data plane works
	OutageData ZoneOutageScope = "data" // no traffic reaches resources in the zone; calls about them work
	OutageBoth ZoneOutageScope = "both"
)

// FaultEffect describes how a fault changes a call.
type FaultEffect struct {
	Type              FaultEffectType `json:"type" enum:"error,latency,throttle,hang,drop,loseReply,errorAfterCommit,quota,stockOut,staleRead,duplicate,stuckState,corruptToken,zoneOutage"`
	Kind              string          `json:"kind,omitempty" enum:"internal,invalid,unauthenticated,denied,not_found,exists,conflict,stale,exhausted,unavailable,gone" doc:"Kind of the error. Default: internal for the effect errorAfterCommit; exhausted for the effects throttle, quota and stockOut; unavailable for other effects"`
	Status            int             `json:"status,omitempty" doc:"HTTP status of the error, 400 to 599; absent for the status of kind"`
	Message           string          `json:"message,omitempty" maxLength:"1024" doc:"Detail of the error; absent for a text with the fault's id and name"`
	RetryAfterSeconds int             `json:"retryAfterSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Retry-After of the error in seconds; default 1 for the effect throttle"`
	LatencyMillis     int             `json:"latencyMillis,omitempty" minimum:"0" maximum:"600000" doc:"Delay of the effect latency"`
	JitterMillis      int             `json:"jitterMillis,omitempty" minimum:"0" maximum:"600000" doc:"Maximum of an additional random delay of the effect latency"`
	AgeSeconds        int64           `json:"ageSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Age in seconds of the data that a staleRead returns, on the cloud's clock. The journal limits the age"`
	Scope             ZoneOutageScope `json:"scope,omitempty" enum:"api,data,both" doc:"Scope of the effect zoneOutage. api: API calls about resources in the zone fail. data: no traffic reaches resources in the zone. both: api and data. Default: both"`
}

// Darkens reports whether e stops the traffic to the resources of a zone.
func (e FaultEffect) Darkens() bool { return e.Type == FaultZoneOutage && e.Scope != OutageAPI }

// Strikes is like FaultEffectType.Breaks, but returns false for a zone outage with the scope data.
// This outage affects only the data plane, and no API calls.
func (e FaultEffect) Strikes(operation string) bool {
	return e.Type.Breaks(operation) && (e.Type != FaultZoneOutage || e.Scope != OutageData)
}

// ErrorKind returns the kind of the error with which e answers a call. For an effect that
// does not answer with an error, the result has no meaning.
func (e FaultEffect) ErrorKind() Kind {
	if kind, ok := ParseKind(e.Kind); ok {
		return kind
	}
	switch e.Type {
	case FaultErrorAfterCommit:
		return Internal
	case FaultThrottle, FaultQuota, FaultStockOut:
		return Exhausted
	}
	return Unavailable
}

// RetryAfter returns the value of the header Retry-After in seconds. It returns 0 if the answer has
// no such header.
func (e FaultEffect) RetryAfter() int {
	if e.Type == FaultThrottle {
		return max(e.RetryAfterSeconds, 1)
	}
	return e.RetryAfterSeconds
}

func (e FaultEffect) check(c *checks) {
	fails := false
	switch e.Type {
	case FaultError, FaultThrottle, FaultErrorAfterCommit, FaultQuota, FaultStockOut:
		fails = true
	case FaultLatency, FaultHang, FaultDrop, FaultLoseReply, FaultStaleRead, FaultDuplicate, FaultStuckState, FaultCorruptToken, FaultZoneOutage:
	default:
		c.addf("effect.type", "must be %s, got %q", orList(FaultEffects()), Clip(string(e.Type)))
		return
	}
	switch {
	case e.Status != 0 && (e.Status < 400 || e.Status > 599):
		c.addf("effect.status", "must be between 400 and 599, got %d", e.Status)
	case e.RetryAfterSeconds < 0 || e.RetryAfterSeconds > 24*3600:
		c.addf("effect.retryAfterSeconds", "must be between 0 and 86400 seconds (a day), got %d", e.RetryAfterSeconds)
	case len(e.Message) > 1024:
		c.addf("effect.message", "must be at most 1024 bytes, got %d", len(e.Message))
	}
	if _, known := ParseKind(e.Kind); e.Kind != "" && !known {
		c.addf("effect.kind", "must be %s, got %q", orList(kindNames[:]), Clip(e.Kind))
	}
	for field, given := range map[string]bool{
		"effect.kind": e.Kind != "", "effect.status": e.Status != 0, "effect.message": e.Message != "", "effect.retryAfterSeconds": e.RetryAfterSeconds != 0,
	} {
		if given && !fails {
			c.addf(field, "can be used only with the effects error, throttle, errorAfterCommit, quota and stockOut, not with %s", e.Type)
		}
	}
	e.checkLatency(c)
	e.checkAge(c)
	switch {
	case e.Scope != "" && e.Type != FaultZoneOutage:
		c.addf("effect.scope", "can be used only with the effect zoneOutage, not with %s", e.Type)
	case e.Scope != "" && e.Scope != OutageAPI && e.Scope != OutageData && e.Scope != OutageBoth:
		c.addf("effect.scope", "must be api, data or both, got %q", Clip(string(e.Scope)))
	}
}

func (e FaultEffect) checkLatency(c *checks) {
	limit := int(maxFaultLatency.Milliseconds())
	if e.LatencyMillis < 0 || e.LatencyMillis > limit {
		c.addf("effect.latencyMillis", "must be between 0 and %d, got %d", limit, e.LatencyMillis)
	}
	if e.JitterMillis < 0 || e.JitterMillis > limit {
		c.addf("effect.jitterMillis", "must be between 0 and %d, got %d", limit, e.JitterMillis)
	}
	given := e.LatencyMillis != 0 || e.JitterMillis != 0
	switch {
	case e.Type == FaultLatency && !given:
		c.addf("effect.latencyMillis", "or jitterMillis is required for the effect latency")
	case e.Type != FaultLatency && given:
		c.addf("effect.latencyMillis", "and jitterMillis can be used only with the effect latency, not with %s: create a second fault", e.Type)
	}
}

func (e FaultEffect) checkAge(c *checks) {
	switch {
	case e.Type != FaultStaleRead && e.AgeSeconds != 0:
		c.addf("effect.ageSeconds", "can be used only with the effect staleRead, not with %s", e.Type)
	case e.Type == FaultStaleRead && (e.AgeSeconds < 1 || e.AgeSeconds > 24*3600):
		c.addf("effect.ageSeconds", "must be between 1 and 86400 (a day) for the effect staleRead, got %d", e.AgeSeconds)
	}
}

// checkOutage rejects settings of Match and When that a zone outage does not support. A zone outage
// affects all calls about resources in the zone. Therefore a fault with this effect cannot select
// only some callers, operations or calls.
func (s FaultSpec) checkOutage(c *checks) {
	if s.Effect.Type != FaultZoneOutage {
		return
	}
	m, w := s.Match, s.When
	if m.Zone == "" {
		c.addf("match.zone", "is required for the effect zoneOutage")
	}
	if m.Operation != "*" {
		c.addf("match.operation", "must be * for the effect zoneOutage, which affects all operations: for some operations, use the effect error; got %q", Clip(m.Operation))
	}
	if m.Caller != "" || m.Target != "" || m.Type != "" || m.DialectCall != "" || len(m.Labels) > 0 {
		c.addf("match", "must contain only operation and zone for the effect zoneOutage, which affects all callers: for some calls, use the effect error")
	}
	if w.Probability != nil || w.Skip != 0 || w.Max != 0 {
		c.addf("when", "must contain only from, until, afterSeconds and forSeconds for the effect zoneOutage: for some calls, use the effect error")
	}
}

// orList returns the words as a list such as "a, b or c".
func orList[S ~string](words []S) string {
	var b strings.Builder
	for n, w := range words {
		switch n {
		case 0:
		case len(words) - 1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}
