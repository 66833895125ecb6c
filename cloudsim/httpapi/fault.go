package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// unaffectedNouns contains nouns of operation ids, such as the noun "faults" of
// faults.create. Faults cannot affect the operations with these nouns. A user needs these
// operations to control and repair the cloud.
var unaffectedNouns = []string{"faults", "clock", "holds", "durations", "why", "states"}

// identityGet is the operation with which the console reads the rights of a user. A dialect, which
// is a server that translates the API of another cloud, checks its callers with this operation.
// Faults affect identityGet only in calls of dialects. So an administrator with a token can always
// open the console and delete the faults. But a fault for tokens.create can prevent new console
// links, because each new link needs a call of tokens.create.
const identityGet = "identity.get"

// withFaults returns a function that calls fn and applies the fault rules before and after
// this call.
func withFaults[I, O any](a *api, o op, fn func(context.Context, *I) (*O, error)) func(context.Context, *I) (*O, error) {
	if slices.Contains(unaffectedNouns, tagOf(o.id)) {
		return fn
	}
	a.targets = append(a.targets, cloudsim.FaultTarget{Operation: o.id, Method: o.method, Path: o.path, Summary: o.summary})
	return func(ctx context.Context, in *I) (*O, error) {
		if o.id == identityGet && exchangeOf(ctx).dialectCall == "" {
			return fn(ctx, in)
		}
		hit, err := a.engine.Decide(ctx, subjectOf(o.id, in))
		if err != nil {
			return nil, err
		}
		if hit == (engine.Strike{}) {
			return fn(ctx, in)
		}
		if err := applyBefore(ctx, hit); err != nil {
			return nil, err
		}
		ctx = engine.Under(ctx, hit)
		if hasEffect(hit, cloudsim.FaultDuplicate) {
			_, _ = fn(ctx, in) // the first delivery of a duplicated request; the caller gets only the second answer
		}
		out, err := fn(ctx, in)
		if err := applyAfter(ctx, hit, err); err != nil {
			return nil, err
		}
		if hasEffect(hit, cloudsim.FaultCorruptToken) {
			corrupt(out)
		}
		return out, err
	}
}

func hasEffect(hit engine.Strike, effect cloudsim.FaultEffectType) bool {
	return hit.Fault != nil && hit.Fault.Effect.Type == effect
}

// corrupt replaces the secret in an answer with another secret. The new secret has the right
// format, but the cloud does not accept it.
func corrupt(out any) {
	if b, ok := out.(*body[cloudsim.Token]); ok && b != nil {
		b.Body.Secret = engine.NewSecret()
	}
}

// subjectOf returns the operation and the resource of a decoded request.
func subjectOf(operation string, in any) engine.Subject {
	s := engine.Subject{Operation: operation}
	switch in := in.(type) {
	case interface{ target() string }:
		s.Target = in.target()
	case interface{ requestedObject() any }:
		s.Body = in.requestedObject()
	}
	return s
}

// applyBefore applies the effects that delay a call, or make it fail before the cloud does its
// work. When applyBefore runs, the cloud has not yet committed any change for the call.
func applyBefore(ctx context.Context, hit engine.Strike) error {
	x := exchangeOf(ctx)
	if hit.Latency > 0 {
		_ = x.reply.SetWriteDeadline(time.Now().Add(hit.Latency + replyTimeout))
		backoff.Sleep(ctx, hit.Latency)
		if err := ctx.Err(); err != nil {
			return err // the caller has disconnected
		}
	}
	if hit.Fault == nil {
		return nil
	}
	x.fault = string(hit.Fault.ID)
	switch hit.Fault.Effect.Type {
	case cloudsim.FaultError, cloudsim.FaultThrottle, cloudsim.FaultQuota, cloudsim.FaultStockOut, cloudsim.FaultZoneOutage:
		return injectedFault(ctx, hit.Fault)
	case cloudsim.FaultHang:
		backoff.Sleep(ctx, cloudsim.MaxFaultHang) // Sleep returns earlier if the caller has disconnected
		drop()
	case cloudsim.FaultDrop:
		drop()
	}
	return nil
}

// applyAfter applies the effects that begin after the work of a call. At this time the changes
// are durable. For the effect loseReply, applyAfter drops the reply. For the effect
// errorAfterCommit, it returns the fault's error if the work succeeded. Otherwise it returns nil,
// and the caller gets the result of the work.
func applyAfter(ctx context.Context, hit engine.Strike, failed error) error {
	switch {
	case hit.Fault == nil:
		return nil
	case hit.Fault.Effect.Type == cloudsim.FaultLoseReply:
		drop()
	case hit.Fault.Effect.Type == cloudsim.FaultErrorAfterCommit && failed == nil:
		return injectedFault(ctx, hit.Fault)
	}
	return nil
}

// drop closes the connection of the request without a reply.
func drop() {
	panic(http.ErrAbortHandler) //nolint:forbidigo // net/http has no other way that works for every protocol
}

// injectedFault returns the error of a fault's effect. The client must always get the message of
// this error. The method toProblem hides the message of an Internal error, but not the message of a
// *problem. Therefore injectedFault returns a *problem.
func injectedFault(ctx context.Context, f *cloudsim.Fault) *problem {
	e := f.Effect
	kind := e.ErrorKind()
	msg := cmp.Or(e.Message, shortageText(ctx, f)+fmt.Sprintf("%s %s (%s) changed this call", cloudsim.KindFault, f.ID, f.Name))
	p := newProblem(cmp.Or(e.Status, kind.HTTPStatus()), kind, msg, exchangeOf(ctx).requestID)
	p.retryAfter = e.RetryAfter()
	return p
}

// shortageText returns the first part of the error message for a fault that imitates a shortage
// or an outage. This part names the quota, the type or the zone. For other faults, the function
// returns "".
func shortageText(ctx context.Context, f *cloudsim.Fault) string {
	m := f.Match
	switch f.Effect.Type {
	case cloudsim.FaultQuota:
		return fmt.Sprintf("quota %s is used up: delete unused resources, or raise the quota; ", tagOf(exchangeOf(ctx).operation))
	case cloudsim.FaultStockOut:
		typeText, where := "the requested type", "the requested zone"
		if m.Type != "" {
			typeText = "type " + m.Type
		}
		if m.Zone != "" {
			where = "zone " + m.Zone
		}
		return fmt.Sprintf("no capacity for %s in %s: use another zone or type, or try again later; ", typeText, where)
	case cloudsim.FaultZoneOutage:
		return fmt.Sprintf("zone %s does not answer; ", m.Zone)
	}
	return ""
}

func (a *api) createFault(ctx context.Context, in *create[cloudsim.CreateFault]) (*body[cloudsim.Fault], error) {
	if err := in.Body.Validate(); err != nil {
		return nil, err
	}
	m, e := in.Body.Match, in.Body.Effect
	if !slices.ContainsFunc(a.targets, func(t cloudsim.FaultTarget) bool { return m.Covers(t.Operation) && e.Type.Breaks(t.Operation) }) {
		return nil, cloudsim.InvalidField("match.operation", fmt.Sprintf("%.80q matches no operation that the effect %s can change: see GET /v1/faults/targets", m.Operation, e.Type))
	}
	v, err := a.engine.CreateFault(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) faultTargets(context.Context, *none) (*struct{ Body cloudsim.FaultTargets }, error) {
	all := slices.SortedFunc(slices.Values(a.targets), func(x, y cloudsim.FaultTarget) int { return strings.Compare(x.Operation, y.Operation) })
	return &struct{ Body cloudsim.FaultTargets }{cloudsim.FaultTargets{Items: all}}, nil
}

func (a *api) faultPresets(context.Context, *none) (*struct{ Body cloudsim.FaultPresetList }, error) {
	return &struct{ Body cloudsim.FaultPresetList }{cloudsim.FaultPresetList{Items: cloudsim.FaultPresets()}}, nil
}

func (c *create[R]) requestedObject() any { return &c.Body }
