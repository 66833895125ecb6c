package cli

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// CheckCollector returns an error if the value of the flag --tracing-endpoint is not HOST:PORT. It
// accepts an empty value. Without a value, the command sends no spans.
func CheckCollector(flag string) error {
	if flag != "" && !IsHostPort(flag) {
		return BadFlag("tracing-endpoint", flag, "HOST:PORT, such as 127.0.0.1:4317")
	}
	return nil
}

// TraceTo returns a tracer provider. The provider sends the spans of the service to the collector
// at collectorAddr. This address has the form HOST:PORT. The returned function stop sends the
// remaining spans. If collectorAddr is empty, the provider is nil.
func TraceTo(ctx context.Context, collectorAddr, service, instance string) (provider trace.TracerProvider, stop func() error, err error) {
	if collectorAddr == "" {
		return nil, func() error { return nil }, nil
	}
	wire.QuietGRPC()
	to, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(collectorAddr), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, nil, err
	}
	p := sdk.NewTracerProvider(sdk.WithBatcher(to), sdk.WithResource(resource.NewSchemaless(
		attribute.String("service.name", service), attribute.String("service.instance.id", instance))))
	return p, func() error {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return p.Shutdown(last)
	}, nil
}
