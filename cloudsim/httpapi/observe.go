package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// propagator reads where a caller's trace is: W3C Trace Context.
var propagator = propagation.TraceContext{}

func newTracer(p trace.TracerProvider) trace.Tracer {
	if p == nil {
		p = noop.NewTracerProvider()
	}
	return p.Tracer("github.com/cloudsim-dev/allinone/cloudsim/httpapi")
}

// trace begins the span of a request, in its caller's trace if it has one.
func (a *api) trace(r *http.Request) (context.Context, trace.Span) {
	ctx := propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	return a.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
}

// endSpan ends a span of trace. Names are OpenTelemetry's for HTTP servers; the
// cloud's own begin with cloudsim.
func endSpan(span trace.Span, r *http.Request, x *exchange, status int) {
	if span.IsRecording() {
		if x.route != "" {
			span.SetName(r.Method + " " + x.route)
		}
		span.SetAttributes(
			attribute.String("http.request.method", r.Method), attribute.String("http.route", x.route), attribute.Int("http.response.status_code", status),
			attribute.String("cloudsim.request_id", x.requestID), attribute.String("cloudsim.operation", x.operation),
			attribute.String("cloudsim.caller", x.caller), attribute.String("cloudsim.target", x.target), attribute.String("cloudsim.fault", x.fault),
		)
		if status == 0 || status >= 500 {
			span.SetStatus(codes.Error, x.outcome)
		}
	}
	span.End()
}

// logRequest writes one line about a request that ended, at the level of its
// status where the log is to have requests, and else for who debugs. Of what
// the caller sent it says nothing that could be a secret: no header, query or
// body.
func (a *api) logRequest(r *http.Request, x *exchange, status int, took time.Duration) {
	level := slog.LevelDebug
	if a.logRequests {
		switch {
		case status >= 500:
			level = slog.LevelError
		case status >= 400 || status == 0: // 0: its reply was dropped
			level = slog.LevelWarn
		default:
			level = slog.LevelInfo
		}
	}
	a.log.LogAttrs(r.Context(), level, "request",
		slog.String("method", r.Method), slog.String("route", x.route), slog.Int("status", status), slog.Duration("took", took),
		slog.String("requestId", x.requestID), slog.String("caller", x.caller),
		slog.String("operation", x.operation), slog.String("target", x.target), slog.String("fault", x.fault))
}
