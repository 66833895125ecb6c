package hcloud_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// modelLB contains the values that a load balancer should have. The map services contains the
// destination port for each listen port. The map targets contains the ids of servers.
type modelLB struct {
	services  map[int]int
	targets   map[int64]bool
	typ       string
	algorithm sdk.LoadBalancerAlgorithmType
}

// typeLimits contains the maximum numbers of services and targets for each load balancer type.
var typeLimits = map[string][2]int{"lb11": {5, 25}, "lb21": {15, 75}, "lb31": {30, 150}}

// TestLimitsOfTypes proves that a load balancer cannot have more services or targets than its type
// allows.
func TestLimitsOfTypes(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	var targets []sdk.LoadBalancerCreateOptsTarget
	for i := range 151 { // more than the limit of the largest type
		s := &sdk.Server{ID: dialect.Number(w.instance(t, fmt.Sprintf("node-%d", i)).ID)}
		targets = append(targets, sdk.LoadBalancerCreateOptsTarget{Type: sdk.LoadBalancerTargetTypeServer, Server: sdk.LoadBalancerCreateOptsTargetServer{Server: s}})
	}
	for typ, limit := range typeLimits {
		opts := sdk.LoadBalancerCreateOpts{Name: typ, LoadBalancerType: &sdk.LoadBalancerType{Name: typ}, NetworkZone: "sim-1", Targets: targets[:limit[1]]}
		for i := range limit[0] {
			opts.Services = append(opts.Services, sdk.LoadBalancerCreateOptsService{Protocol: sdk.LoadBalancerServiceProtocolTCP, ListenPort: sdk.Ptr(1000 + i), DestinationPort: sdk.Ptr(80)})
		}
		made, resp, err := w.LoadBalancer.Create(ctx, opts)
		l := must(t, made, resp, err).LoadBalancer
		if len(l.Services) != limit[0] || len(l.Targets) != limit[1] {
			t.Errorf("%s: got %d services and %d targets, want %v", typ, len(l.Services), len(l.Targets), limit)
		}
		_, _, err = w.LoadBalancer.AddService(ctx, l, sdk.LoadBalancerAddServiceOpts{Protocol: sdk.LoadBalancerServiceProtocolTCP, ListenPort: sdk.Ptr(999), DestinationPort: sdk.Ptr(80)})
		expectError(t, err, sdk.ErrorCodeResourceLimitExceeded)
		_, _, err = w.LoadBalancer.AddServerTarget(ctx, l, sdk.LoadBalancerAddServerTargetOpts{Server: targets[limit[1]].Server.Server})
		expectError(t, err, sdk.ErrorCodeResourceLimitExceeded)
		opts.Name, opts.Targets = typ+"-large", targets[:limit[1]+1]
		_, _, err = w.LoadBalancer.Create(ctx, opts)
		expectError(t, err, sdk.ErrorCodeResourceLimitExceeded)
	}
}

// TestRandomLoadBalancerCalls makes random calls for a load balancer. After each call, it compares
// the error and the load balancer with a model.
func TestRandomLoadBalancerCalls(t *testing.T) {
	w := start(t)
	var servers []*sdk.Server
	for i := range 27 { // more than the limit of the smallest type
		servers = append(servers, w.server(t, w.instance(t, fmt.Sprintf("node-%d", i))))
	}
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			made, resp, err := w.LoadBalancer.Create(context.Background(), sdk.LoadBalancerCreateOpts{
				Name: fmt.Sprintf("LB %d", seed), LoadBalancerType: &sdk.LoadBalancerType{Name: "lb11"}, NetworkZone: "sim-1",
			})
			l := must(t, made, resp, err).LoadBalancer
			m := modelLB{services: map[int]int{}, targets: map[int64]bool{}, typ: "lb11", algorithm: sdk.LoadBalancerAlgorithmTypeRoundRobin}
			rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a repeatable test
			for step := range 80 {
				want := m.step(t, w, rng, l, servers)
				if t.Failed() {
					t.Fatalf("step %d failed; wanted error code %q", step, want)
				}
			}
			_, err = w.LoadBalancer.Delete(context.Background(), l)
			must(t, 0, nil, err)
		})
	}
}

// step makes a random call. It compares the error and the load balancer with the model,
// and returns the code of the expected error.
func (m *modelLB) step(t *testing.T, w *world, rng *rand.Rand, l *sdk.LoadBalancer, servers []*sdk.Server) (want sdk.ErrorCode) {
	t.Helper()
	ctx := context.Background()
	port, to := 80+rng.IntN(8), 30000+rng.IntN(100)
	s := servers[rng.IntN(len(servers))]
	_, has := m.services[port]
	var err error
	switch rng.IntN(8) {
	case 0, 1:
		switch {
		case len(m.services) >= typeLimits[m.typ][0]:
			want = sdk.ErrorCodeResourceLimitExceeded
		case has:
			want = sdk.ErrorCodeSourcePortAlreadyUsed
		default:
			m.services[port] = to
		}
		_, _, err = w.LoadBalancer.AddService(ctx, l, sdk.LoadBalancerAddServiceOpts{Protocol: sdk.LoadBalancerServiceProtocolTCP, ListenPort: &port, DestinationPort: &to})
	case 2:
		if want = sdk.ErrorCodeNotFound; has {
			want, m.services[port] = "", to
		}
		_, _, err = w.LoadBalancer.UpdateService(ctx, l, port, sdk.LoadBalancerUpdateServiceOpts{DestinationPort: &to})
	case 3:
		if want = sdk.ErrorCodeNotFound; has {
			want = ""
			delete(m.services, port)
		}
		_, _, err = w.LoadBalancer.DeleteService(ctx, l, port)
	case 4, 5:
		switch {
		case m.targets[s.ID]:
			want = sdk.ErrorCodeTargetAlreadyDefined
		case len(m.targets) >= typeLimits[m.typ][1]:
			want = sdk.ErrorCodeResourceLimitExceeded
		default:
			m.targets[s.ID] = true
		}
		_, _, err = w.LoadBalancer.AddServerTarget(ctx, l, sdk.LoadBalancerAddServerTargetOpts{Server: s})
	case 6:
		if want = sdk.ErrorCodeNotFound; m.targets[s.ID] && rng.IntN(4) == 0 {
			want = ""
			delete(m.targets, s.ID)
			_, _, err = w.LoadBalancer.RemoveServerTarget(ctx, l, s)
			break
		}
		_, _, err = w.LoadBalancer.RemoveServerTarget(ctx, l, &sdk.Server{ID: 4711})
	default:
		typ := []string{"lb11", "lb21", "lb31"}[rng.IntN(3)]
		if want = "invalid_load_balancer_type"; len(m.services) <= typeLimits[typ][0] && len(m.targets) <= typeLimits[typ][1] {
			want, m.typ = "", typ
		}
		_, _, err = w.LoadBalancer.ChangeType(ctx, l, sdk.LoadBalancerChangeTypeOpts{LoadBalancerType: &sdk.LoadBalancerType{Name: typ}})
	}
	if want == "" && err != nil || want != "" && !sdk.IsError(err, want) {
		t.Errorf("got error %v, want code %q", err, want)
	}
	m.compare(t, w, l)
	return want
}

func (m *modelLB) compare(t *testing.T, w *world, l *sdk.LoadBalancer) {
	t.Helper()
	got, resp, err := w.LoadBalancer.GetByName(context.Background(), l.Name)
	if must(t, got, resp, err) == nil || got.ID != l.ID {
		t.Fatalf("load balancer: got %+v, want the id of the model", got)
	}
	if got.LoadBalancerType.Name != m.typ || got.Algorithm.Type != m.algorithm || len(got.Services) != len(m.services) || len(got.Targets) != len(m.targets) {
		t.Errorf("load balancer: got %+v, want %+v", got, m)
	}
	for _, s := range got.Services {
		if m.services[s.ListenPort] != s.DestinationPort {
			t.Errorf("service: got %+v, want one of %v", s, m.services)
		}
	}
	for _, at := range got.Targets {
		if !m.targets[at.Server.Server.ID] || len(at.HealthStatus) != len(m.services) {
			t.Errorf("target: got %+v, want one of %v", at, m.targets)
		}
	}
}
