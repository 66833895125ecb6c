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
	"github.com/cloudsim-dev/allinone/internal/pause"
)

// whole are the nouns whose operations no fault breaks, or a broken cloud
// could not be repaired: what a person holds the cloud by.
var whole = []string{"faults", "clock", "holds", "durations", "why", "states"}

// breakable is fn behind the fault rules.
func breakable[I, O any](a *api, o op, fn func(context.Context, *I) (*O, error)) func(context.Context, *I) (*O, error) {
	if slices.Contains(whole, tagOf(o.id)) {
		return fn
	}
	a.targets = append(a.targets, cloudsim.FaultTarget{Operation: o.id, Method: o.method, Path: o.path, Summary: o.summary})
	return func(ctx context.Context, in *I) (*O, error) {
		hit, err := a.engine.Decide(ctx, subjectOf(o.id, in))
		if err != nil {
			return nil, err
		}
		if hit == (engine.Strike{}) {
			return fn(ctx, in)
		}
		if err := before(ctx, hit); err != nil {
			return nil, err
		}
		ctx = engine.Under(ctx, hit)
		if does(hit, cloudsim.FaultDuplicate) {
			_, _ = fn(ctx, in) // its answer got lost on the way to who asked again
		}
		out, err := fn(ctx, in)
		if err := after(ctx, hit, err); err != nil {
			return nil, err
		}
		if does(hit, cloudsim.FaultCorruptToken) {
			corrupt(out)
		}
		return out, err
	}
}

// does reports whether a strike has an effect.
func does(hit engine.Strike, effect cloudsim.FaultEffectType) bool {
	return hit.Fault != nil && hit.Fault.Effect.Type == effect
}

// corrupt makes the secret in an answer one that looks right and opens nothing.
func corrupt(out any) {
	if b, ok := out.(*body[cloudsim.Token]); ok && b != nil {
		b.Body.Secret = engine.NewSecret()
	}
}

// subjectOf finds in a decoded request what the call is about.
func subjectOf(operation string, in any) engine.Subject {
	s := engine.Subject{Operation: operation}
	switch in := in.(type) {
	case interface{ target() string }:
		s.Target = in.target()
	case interface{ wanted() any }:
		s.Body = in.wanted()
	}
	return s
}

// before does what a strike does instead of the work or ahead of it. Nothing
// is committed yet.
func before(ctx context.Context, hit engine.Strike) error {
	x := exchangeOf(ctx)
	if hit.Latency > 0 {
		_ = x.reply.SetWriteDeadline(time.Now().Add(hit.Latency + replyTimeout))
		pause.For(ctx, hit.Latency)
		if err := ctx.Err(); err != nil {
			return err // whoever left wants no work any more
		}
	}
	if hit.Fault == nil {
		return nil
	}
	x.fault = string(hit.Fault.ID)
	switch hit.Fault.Effect.Type {
	case cloudsim.FaultError, cloudsim.FaultThrottle, cloudsim.FaultQuota, cloudsim.FaultStockOut, cloudsim.FaultZoneOutage:
		return struck(ctx, hit.Fault)
	case cloudsim.FaultHang:
		pause.For(ctx, cloudsim.MaxFaultHang) // whoever left gets no reply either
		drop()
	case cloudsim.FaultDrop:
		drop()
	}
	return nil
}

// after does what a strike does once the work is done and durable. Work that
// failed keeps its own error, unless the reply is lost anyway.
func after(ctx context.Context, hit engine.Strike, failed error) error {
	switch {
	case hit.Fault == nil:
		return nil
	case hit.Fault.Effect.Type == cloudsim.FaultLoseReply:
		drop()
	case hit.Fault.Effect.Type == cloudsim.FaultErrorAfterCommit && failed == nil:
		return struck(ctx, hit.Fault)
	}
	return nil
}

// drop ends the request by closing its connection without a reply.
func drop() {
	panic(http.ErrAbortHandler) //nolint:forbidigo // net/http has no other way that works for every protocol
}

// struckKind is the kind of an effect's error unless the fault says another.
var struckKind = map[cloudsim.FaultEffectType]cloudsim.Kind{
	cloudsim.FaultError:            cloudsim.Unavailable,
	cloudsim.FaultThrottle:         cloudsim.Exhausted,
	cloudsim.FaultErrorAfterCommit: cloudsim.Internal,
	cloudsim.FaultQuota:            cloudsim.Exhausted,
	cloudsim.FaultStockOut:         cloudsim.Exhausted,
	cloudsim.FaultZoneOutage:       cloudsim.Unavailable,
}

// struck is the error that a fault asks for. Its message is sent as it is,
// even of kind internal: it was written to be read.
func struck(ctx context.Context, f *cloudsim.Fault) *problem {
	e := f.Effect
	kind := struckKind[e.Type]
	if e.Kind != "" {
		kind, _ = cloudsim.ParseKind(e.Kind)
	}
	msg := cmp.Or(e.Message, words(ctx, f)+fmt.Sprintf("%s %s (%s) struck this call", cloudsim.KindFault, f.ID, f.Name))
	p := newProblem(cmp.Or(e.Status, status[kind]), kind, msg, exchangeOf(ctx).requestID)
	p.retryAfter = e.RetryAfterSeconds
	if e.Type == cloudsim.FaultThrottle {
		p.retryAfter = max(p.retryAfter, 1)
	}
	return p
}

// words are what a cloud says that means it: what is short, and where.
func words(ctx context.Context, f *cloudsim.Fault) string {
	m := f.Match
	switch f.Effect.Type {
	case cloudsim.FaultQuota:
		return fmt.Sprintf("quota %s: all of it is used, delete what is not needed or raise it; ", tagOf(exchangeOf(ctx).operation))
	case cloudsim.FaultStockOut:
		return fmt.Sprintf("no more of type %s in zone %s: ask for another zone or type, or later; ", cmp.Or(m.Type, "that was asked for"), cmp.Or(m.Zone, "that was asked for"))
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
		return nil, cloudsim.InvalidField("match.operation", fmt.Sprintf("%.80q matches no operation that can be broken so (%s): see GET /v1/faults/targets", m.Operation, e.Type))
	}
	v, err := a.engine.CreateFault(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) faultTargets(context.Context, *none) (*struct{ Body cloudsim.FaultTargets }, error) {
	all := slices.SortedFunc(slices.Values(a.targets), func(x, y cloudsim.FaultTarget) int { return strings.Compare(x.Operation, y.Operation) })
	return &struct{ Body cloudsim.FaultTargets }{cloudsim.FaultTargets{Items: all}}, nil
}

// wanted is what a create asks for.
func (c *create[R]) wanted() any { return &c.Body }
