package main

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// traceTo sends spans to the collector that the flag names, and returns what
// sends the last of them.
func (f *proxyServerFlags) traceTo(ctx context.Context) (stop func() error, err error) {
	if f.tracing == "" {
		return func() error { return nil }, nil
	}
	to, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(f.tracing), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, err
	}
	p := trace.NewTracerProvider(trace.WithBatcher(to), trace.WithResource(resource.NewSchemaless(
		attribute.String("service.name", "allinone-proxy-server"), attribute.String("service.instance.id", f.ID))))
	f.Tracer = p
	return func() error {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return p.Shutdown(last)
	}, nil
}
