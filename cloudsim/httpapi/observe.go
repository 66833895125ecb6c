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

// propagator reads the caller's trace from the headers of W3C Trace Context.
var propagator = propagation.TraceContext{}

func newTracer(p trace.TracerProvider) trace.Tracer {
	if p == nil {
		p = noop.NewTracerProvider()
	}
	return p.Tracer("github.com/cloudsim-dev/allinone/cloudsim/httpapi")
}

// beginSpan begins the span of a request. If the caller sent a trace context, the span belongs to
// the caller's trace.
func (a *api) beginSpan(r *http.Request) (context.Context, trace.Span) {
	ctx := propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	return a.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
}

// endSpan ends a span that beginSpan began. Attribute names follow OpenTelemetry's conventions for
// HTTP servers. The names of the cloud's own attributes begin with "cloudsim.", as in
// cloudsim.caller.
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

// logRequest logs one line about an ended request. If LogRequests is set, the log level
// depends on the status of the reply. Otherwise the level is debug. The line contains no
// header, query or body of the request, because these parts of a request may contain
// secrets.
func (a *api) logRequest(r *http.Request, x *exchange, status int, took time.Duration) {
	level := slog.LevelDebug
	if a.logRequests {
		switch {
		case status >= 500:
			level = slog.LevelError
		case status >= 400 || status == 0: // 0: the reply was dropped
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
