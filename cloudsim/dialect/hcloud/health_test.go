package hcloud_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// TestHealthOfServices creates a load balancer with two services. The health check of one service
// always fails. The test proves that a target has a separate health for each service. It also
// proves that connections to the healthy service reach the target.
func TestHealthOfServices(t *testing.T) {
	ctx := context.Background()
	cfg := engine.Default()
	w := start(t, cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
		return dataplane.Run(engine.AsCloud(ctx), slog.New(slog.DiscardHandler), dataplane.Config{Instances: append(cfg.LoadBalancerRanges(), cfg.Instances)}, e)
	}))
	i := w.instance(t, "node-1")
	ln, err := net.Listen("tcp", net.JoinHostPort(i.InternalIP(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "hello")
			_ = c.Close()
		}
	}()
	port := ln.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // the address of a TCP listener
	service := func(listen, check int) sdk.LoadBalancerCreateOptsService {
		return sdk.LoadBalancerCreateOptsService{
			Protocol: sdk.LoadBalancerServiceProtocolTCP, ListenPort: &listen, DestinationPort: &port,
			HealthCheck: &sdk.LoadBalancerCreateOptsServiceHealthCheck{
				Protocol: sdk.LoadBalancerServiceProtocolTCP, Port: &check, Interval: sdk.Ptr(time.Second), Timeout: sdk.Ptr(time.Second), Retries: sdk.Ptr(1),
			},
		}
	}
	made, resp, err := w.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{
		Name: "two", LoadBalancerType: &sdk.LoadBalancerType{Name: "lb11"}, Location: &sdk.Location{Name: "sim-1a"},
		Services: []sdk.LoadBalancerCreateOptsService{service(18080, port), service(18081, 1)},
		Targets:  []sdk.LoadBalancerCreateOptsTarget{{Type: sdk.LoadBalancerTargetTypeServer, Server: sdk.LoadBalancerCreateOptsTargetServer{Server: w.server(t, i)}}},
	})
	l := must(t, made, resp, err).LoadBalancer
	want := map[int]sdk.LoadBalancerTargetHealthStatusStatus{18080: sdk.LoadBalancerTargetHealthStatusStatusHealthy, 18081: sdk.LoadBalancerTargetHealthStatusStatusUnhealthy}
	eventually.Empty(t, func() string {
		got, _, err := w.LoadBalancer.GetByID(ctx, l.ID)
		if err != nil {
			return err.Error()
		}
		for _, h := range got.Targets[0].HealthStatus {
			if h.Status != want[h.ListenPort] {
				return fmt.Sprintf("got health %+v", got.Targets[0].HealthStatus)
			}
		}
		return ""
	})
	c, err := net.Dial("tcp", net.JoinHostPort(l.PublicNet.IPv4.IP.String(), strconv.Itoa(18080)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var hello [5]byte
	if _, err := c.Read(hello[:]); err != nil || string(hello[:]) != "hello" {
		t.Errorf("got answer %q, error %v; want hello", hello, err)
	}
}
