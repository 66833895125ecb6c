package server

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// propagator reads the trace of a client's request in the W3C Trace Context
// format.
var propagator = propagation.TraceContext{}

// trace starts the span of a dial. If the server has no tracer, the span is
// nil.
func (s *Server) trace(ctx context.Context, mode Mode, address string) (context.Context, trace.Span) {
	if s.tracer == nil {
		return ctx, nil
	}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = propagator.Extract(ctx, carrier(md))
	}
	return s.tracer.Start(ctx, "netproxy.dial", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("netproxy.frontend", string(mode)), attribute.String("server.address", address)))
}

func endSpan(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

func extract(ctx context.Context, h http.Header) context.Context {
	return propagator.Extract(ctx, propagation.HeaderCarrier(h))
}

// carrier adapts gRPC metadata to a propagator.
type carrier metadata.MD

func (c carrier) Get(key string) string {
	if v := metadata.MD(c).Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

func (c carrier) Keys() []string {
	var keys []string
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}
