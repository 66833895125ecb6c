package hcloud_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/hcloud"
)

// TestEachCall makes each supported call with Hetzner's own client. It fails if one of these calls
// never succeeds.
func TestEachCall(t *testing.T) {
	tested := map[string]int{}
	for name, part := range map[string]func(*testing.T, *world){
		"catalogue":      catalogueCalls,
		"servers":        serverCalls,
		"volumes":        volumeCalls,
		"networks":       networkCalls,
		"interfaces":     networkInterfaceCalls,
		"load balancers": loadBalancerCalls,
		"records":        recordCalls,
		"protection":     protectionCalls,
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			part(t, w)
			for name, n := range w.seen.n {
				tested[name] += n
			}
		})
	}
	for _, c := range hcloud.New().Calls {
		if tested[c.Name] == 0 {
			t.Errorf("no test makes the call %s (%s %s) with Hetzner's client", c.Name, c.Method, c.Path)
		}
	}
}

func names[T any](all []T, name func(T) string) []string {
	var out []string
	for _, v := range all {
		out = append(out, name(v))
	}
	return out
}

func catalogueCalls(t *testing.T, w *world) {
	ctx := context.Background()
	all, err := w.Location.All(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(all, func(l *sdk.Location) string { return l.Name }); !slices.Equal(got, []string{"sim-1a", "sim-1b", "sim-1c"}) {
		t.Errorf("locations: got %v", got)
	}
	if one, _, err := w.Location.GetByID(ctx, all[1].ID); err != nil || one == nil || one.Name != "sim-1b" || one.NetworkZone != "sim-1" {
		t.Errorf("location by id: got %+v, error %v", one, err)
	}
	if one, _, err := w.Location.GetByName(ctx, "sim-1c"); err != nil || one == nil || one.ID != all[2].ID {
		t.Errorf("location by name: got %+v, error %v", one, err)
	}
	if one, _, err := w.Location.GetByID(ctx, 1); err != nil || one != nil {
		t.Errorf("location with an unknown id: got %+v, error %v; want none", one, err)
	}
	types, err := w.ServerType.All(ctx)
	if err != nil || len(types) != 3 {
		t.Fatalf("server types: got %v, error %v", types, err)
	}
	if sorted, err := w.ServerType.AllWithOpts(ctx, sdk.ServerTypeListOpts{Sort: []string{"name:desc"}}); err != nil || !slices.Equal(names(sorted, func(s *sdk.ServerType) string { return s.Name }), []string{"small", "medium", "large"}) {
		t.Errorf("server types sorted by name:desc: got %v, error %v", sorted, err)
	}
	small, _, err := w.ServerType.GetByName(ctx, "small")
	if err != nil || small == nil || small.Cores != 2 || small.Memory != 4 {
		t.Fatalf("server type small: got %+v, error %v", small, err)
	}
	if one, _, err := w.ServerType.GetByID(ctx, small.ID); err != nil || one == nil || one.Name != "small" {
		t.Errorf("server type by id: got %+v, error %v", one, err)
	}
	lb, _, err := w.LoadBalancerType.GetByName(ctx, "lb11")
	if err != nil || lb == nil || lb.MaxServices != 5 || lb.MaxTargets != 25 {
		t.Fatalf("load balancer type: got %+v, error %v", lb, err)
	}
	if one, _, err := w.LoadBalancerType.GetByID(ctx, lb.ID); err != nil || one == nil || one.Name != "lb11" {
		t.Errorf("load balancer type by id: got %+v, error %v", one, err)
	}
	//nolint:staticcheck // older clients call this deprecated part of the API
	centers, err := w.Datacenter.All(ctx)
	if err != nil || len(centers) != 3 || centers[0].Location.Name != "sim-1a" {
		t.Fatalf("datacenters: got %+v, error %v", centers, err)
	}
	//nolint:staticcheck // older clients call this deprecated part of the API
	if one, _, err := w.Datacenter.GetByID(ctx, centers[0].ID); err != nil || one == nil || one.Name != centers[0].Name {
		t.Errorf("datacenter by id: got %+v, error %v", one, err)
	}
	img, _, err := w.Image.GetForArchitecture(ctx, "ubuntu-24.04", sdk.ArchitectureX86)
	if err != nil || img == nil {
		t.Fatalf("image: got %+v, error %v", img, err)
	}
	if one, _, err := w.Image.GetByID(ctx, img.ID); err != nil || one == nil || one.Name != "ubuntu-24.04" {
		t.Errorf("image by id: got %+v, error %v", one, err)
	}
	p, _, err := w.Pricing.Get(ctx)
	if err != nil || len(p.ServerTypes) != 3 || p.ServerTypes[0].ServerType.Name != types[0].Name || len(p.LoadBalancerTypes) != 3 {
		t.Fatalf("prices: got %+v, error %v", p, err)
	}
	for source, prices := range map[string][]sdk.ServerTypeLocationPricing{"all": p.ServerTypes[0].Pricings, "server type": small.Pricings} {
		if got := names(prices, func(p sdk.ServerTypeLocationPricing) string { return p.Location.Name + " " + p.Hourly.Net }); !slices.Equal(got, []string{"sim-1a 0.0000000000", "sim-1b 0.0000000000", "sim-1c 0.0000000000"}) {
			t.Errorf("prices (%s): got %v", source, got)
		}
	}
	if got := names(lb.Pricings, func(p sdk.LoadBalancerTypeLocationPricing) string { return p.Location.Name }); !slices.Equal(got, []string{"sim-1a", "sim-1b", "sim-1c"}) {
		t.Errorf("prices of the load balancer type: got %v", got)
	}
	for kind, list := range map[string]func() (int, error){
		"certificates": func() (int, error) { v, err := w.Certificate.All(ctx); return len(v), err },
		"firewalls":    func() (int, error) { v, err := w.Firewall.All(ctx); return len(v), err },
		"floating IPs": func() (int, error) { v, err := w.FloatingIP.All(ctx); return len(v), err },
		"ISO images":   func() (int, error) { v, err := w.ISO.All(ctx); return len(v), err },
		"primary IPs":  func() (int, error) { v, err := w.PrimaryIP.All(ctx); return len(v), err },
	} {
		if n, err := list(); n != 0 || err != nil {
			t.Errorf("%s: got %d, error %v; want none", kind, n, err)
		}
	}
}

func do[T any](t *testing.T, w *world, method, path string) (body T) {
	t.Helper()
	req, err := w.NewRequest(context.Background(), method, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.Do(req, &body)
	return must(t, body, resp, err)
}

func serverCalls(t *testing.T, w *world) {
	ctx := context.Background()
	made, resp, err := w.Server.Create(ctx, sdk.ServerCreateOpts{
		Name: "Worker-1.Example", ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "ubuntu-24.04"},
		Location: &sdk.Location{Name: "sim-1b"}, Labels: map[string]string{"pool": "a"}, UserData: "#cloud-config",
	})
	s := must(t, made, resp, err).Server
	w.wait(t, made.Action, nil, nil)
	if one, resp, err := w.Action.GetByID(ctx, made.Action.ID); must(t, one, resp, err) == nil || one.Status != sdk.ActionStatusSuccess {
		t.Errorf("action: got %+v", one)
	}
	if all, err := w.Action.AllWithOpts(ctx, sdk.ActionListOpts{ID: []int64{made.Action.ID, 999999}}); err != nil || len(all) != 1 || all[0].Command != "create_server" {
		t.Errorf("actions: got %+v, error %v", all, err)
	}
	s, resp, err = w.Server.GetByID(ctx, s.ID)
	must(t, s, resp, err)
	if s.Name != "Worker-1.Example" || s.Status != sdk.ServerStatusRunning || s.Location.Name != "sim-1b" || s.ServerType.Name != "small" || s.Image.Name != "ubuntu-24.04" || !maps.Equal(s.Labels, map[string]string{"pool": "a"}) {
		t.Errorf("server: got %+v", s)
	}
	raw := do[struct{ Server map[string]any }](t, w, http.MethodGet, fmt.Sprintf("/servers/%d", s.ID)).Server
	if raw["name"] != s.Name || raw["datacenter"] != nil {
		t.Errorf("server: got %v, want no datacenter", raw)
	}
	if s.PublicNet.IPv4.IP == nil || len(s.PrivateNet) != 0 {
		t.Errorf("addresses: got %+v, %+v", s.PublicNet, s.PrivateNet)
	}
	if one, resp, err := w.Server.GetByName(ctx, "Worker-1.Example"); must(t, one, resp, err) == nil || one.ID != s.ID {
		t.Errorf("server by name: got %+v", one)
	}
	_, _, err = w.Server.Create(ctx, sdk.ServerCreateOpts{Name: "Worker-1.Example", ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "ubuntu-24.04"}})
	expectError(t, err, sdk.ErrorCodeUniquenessError)
	s, resp, err = w.Server.Update(ctx, s, sdk.ServerUpdateOpts{Name: "Worker-1.Example", Labels: map[string]string{"pool": "b"}})
	if must(t, s, resp, err); s.Labels["pool"] != "b" || s.Name != "Worker-1.Example" {
		t.Errorf("updated server: got %+v, want the label pool=b and the old name", s)
	}
	if other, resp, err := w.Server.Update(ctx, w.server(t, w.instance(t, "unlabeled")), sdk.ServerUpdateOpts{Name: "unlabeled"}); must(t, other, resp, err).Name != "unlabeled" {
		t.Errorf("result of an update without a change: got %+v", other)
	}
	for _, step := range []struct {
		do   func(context.Context, *sdk.Server) (*sdk.Action, *sdk.Response, error)
		want sdk.ServerStatus
	}{
		{w.Server.Shutdown, sdk.ServerStatusOff}, {w.Server.Poweron, sdk.ServerStatusRunning}, {w.Server.Poweron, sdk.ServerStatusRunning},
		{w.Server.Reboot, sdk.ServerStatusRunning}, {w.Server.Reset, sdk.ServerStatusRunning}, {w.Server.Poweroff, sdk.ServerStatusOff},
	} {
		a, resp, err := step.do(ctx, s)
		w.wait(t, a, resp, err)
		if s, resp, err = w.Server.GetByID(ctx, s.ID); must(t, s, resp, err).Status != step.want {
			t.Errorf("status: got %s, want %s", s.Status, step.want)
		}
	}
	off, err := w.Server.AllWithOpts(ctx, sdk.ServerListOpts{Status: []sdk.ServerStatus{sdk.ServerStatusOff}})
	if err != nil || len(off) != 1 {
		t.Errorf("servers with the status off: got %v, error %v; want 1", off, err)
	}
	gone, resp, err := w.Server.DeleteWithResult(ctx, s)
	w.wait(t, must(t, gone, resp, err).Action, nil, nil)
	if s, _, err := w.Server.GetByID(ctx, s.ID); s != nil || err != nil {
		t.Errorf("deleted server: got %+v, error %v; want none", s, err)
	}
}

func volumeCalls(t *testing.T, w *world) {
	ctx := context.Background()
	s := w.server(t, w.instance(t, "node-1"))
	made, resp, err := w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "pvc-1", Size: 10, Location: &sdk.Location{Name: "sim-1a"}, Labels: map[string]string{"app": "db"}})
	v := must(t, made, resp, err).Volume
	w.wait(t, made.Action, nil, nil)
	if v.LinuxDevice != "/dev/disk/by-id/scsi-0HC_Volume_1" || v.Location.Name != "sim-1a" || v.Size != 10 || v.Labels["app"] != "db" {
		t.Errorf("volume: got %+v", v)
	}
	a, resp, err := w.Volume.AttachWithOpts(ctx, v, sdk.VolumeAttachOpts{Server: s})
	w.wait(t, a, resp, err)
	if v, resp, err = w.Volume.GetByName(ctx, "pvc-1"); must(t, v, resp, err) == nil || v.Server == nil || v.Server.ID != s.ID || v.Status != sdk.VolumeStatusAvailable {
		t.Errorf("attached volume: got %+v", v)
	}
	if s = w.server(t, cloudsim.Instance{ID: "i-000001"}); len(s.Volumes) != 1 || s.Volumes[0].ID != v.ID {
		t.Errorf("volumes of the server: got %+v", s.Volumes)
	}
	v, resp, err = w.Volume.Update(ctx, v, sdk.VolumeUpdateOpts{Name: "pvc-1", Labels: map[string]string{"app": "web"}})
	if must(t, v, resp, err); !maps.Equal(v.Labels, map[string]string{"app": "web"}) || v.Name != "pvc-1" || v.Server == nil {
		t.Errorf("updated volume: got %+v, want the label app=web, the old name and a server", v)
	}
	_, _, err = w.Volume.Attach(ctx, v, s)
	expectError(t, err, sdk.ErrorCodeVolumeAlreadyAttached)
	a, resp, err = w.Volume.Resize(ctx, v, 20)
	w.wait(t, a, resp, err)
	_, _, err = w.Volume.Resize(ctx, v, 15)
	expectError(t, err, sdk.ErrorCodeInvalidInput)
	_, err = w.Volume.Delete(ctx, v)
	expectError(t, err, sdk.ErrorCodeLocked)
	a, resp, err = w.Volume.Detach(ctx, v)
	w.wait(t, a, resp, err)
	_, _, err = w.Volume.Detach(ctx, v)
	expectError(t, err, sdk.ErrorCodeServiceError)
	if v, resp, err = w.Volume.GetByID(ctx, v.ID); must(t, v, resp, err).Server != nil || v.Size != 20 {
		t.Errorf("detached volume: got %+v", v)
	}
	_, err = w.Volume.Delete(ctx, v)
	must(t, 0, nil, err)
	if all, err := w.Volume.All(ctx); err != nil || len(all) != 0 {
		t.Errorf("volumes after the deletion: got %v, error %v; want none", all, err)
	}
	made, resp, err = w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "pvc-2", Size: 10, Server: s})
	if must(t, made, resp, err); made.Volume.Server == nil || made.Volume.Server.ID != s.ID || len(made.NextActions) != 1 {
		t.Errorf("volume of a server: got %+v", made)
	}
}

func cidr(s string) *net.IPNet {
	_, n, _ := net.ParseCIDR(s)
	return n
}

func networkCalls(t *testing.T, w *world) {
	ctx := context.Background()
	n, resp, err := w.Network.Create(ctx, sdk.NetworkCreateOpts{
		Name: "Cluster", IPRange: cidr("10.20.0.0/16"), Labels: map[string]string{"a": "b"},
		Subnets: []sdk.NetworkSubnet{{Type: sdk.NetworkSubnetTypeCloud, IPRange: cidr("10.20.1.0/24"), NetworkZone: "sim-1"}},
	})
	if must(t, n, resp, err); n.Name != "Cluster" || n.IPRange.String() != "10.20.0.0/16" || len(n.Subnets) != 1 || n.Subnets[0].NetworkZone != "sim-1" || n.Labels["a"] != "b" {
		t.Fatalf("network: got %+v", n)
	}
	a, resp, err := w.Network.AddSubnet(ctx, n, sdk.NetworkAddSubnetOpts{Subnet: sdk.NetworkSubnet{Type: sdk.NetworkSubnetTypeCloud, IPRange: cidr("10.20.2.0/24"), NetworkZone: "sim-1"}})
	w.wait(t, a, resp, err)
	_, _, err = w.Network.AddSubnet(ctx, n, sdk.NetworkAddSubnetOpts{Subnet: sdk.NetworkSubnet{Type: sdk.NetworkSubnetTypeCloud, IPRange: cidr("10.20.2.0/24"), NetworkZone: "sim-1"}})
	expectError(t, err, sdk.ErrorCodeUniquenessError)
	a, resp, err = w.Network.DeleteSubnet(ctx, n, sdk.NetworkDeleteSubnetOpts{Subnet: sdk.NetworkSubnet{IPRange: cidr("10.20.2.0/24")}})
	w.wait(t, a, resp, err)
	made, resp, err := w.Server.Create(ctx, sdk.ServerCreateOpts{
		Name: "node-1", ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "debian-13"}, Location: &sdk.Location{Name: "sim-1a"}, Networks: []*sdk.Network{n},
	})
	s := must(t, made, resp, err).Server
	if len(s.PrivateNet) != 1 || s.PrivateNet[0].Network.ID != n.ID {
		t.Fatalf("private network of the server: got %+v", s.PrivateNet)
	}
	route := sdk.NetworkRoute{Destination: cidr("10.244.1.0/24"), Gateway: s.PrivateNet[0].IP}
	a, resp, err = w.Network.AddRoute(ctx, n, sdk.NetworkAddRouteOpts{Route: route})
	w.wait(t, a, resp, err)
	_, _, err = w.Network.AddRoute(ctx, n, sdk.NetworkAddRouteOpts{Route: route})
	expectError(t, err, sdk.ErrorCodeUniquenessError)
	if n, resp, err = w.Network.GetByName(ctx, "Cluster"); must(t, n, resp, err) == nil || len(n.Routes) != 1 || !n.Routes[0].Gateway.Equal(route.Gateway) || len(n.Servers) != 1 {
		t.Errorf("network: got %+v", n)
	}
	a, resp, err = w.Network.DeleteRoute(ctx, n, sdk.NetworkDeleteRouteOpts{Route: route})
	w.wait(t, a, resp, err)
	_, _, err = w.Network.DeleteRoute(ctx, n, sdk.NetworkDeleteRouteOpts{Route: route})
	expectError(t, err, sdk.ErrorCodeNotFound)
	a, resp, err = w.Network.AddRoute(ctx, n, sdk.NetworkAddRouteOpts{Route: route})
	w.wait(t, a, resp, err)
	n, resp, err = w.Network.Update(ctx, n, sdk.NetworkUpdateOpts{Labels: map[string]string{"a": "c"}})
	if must(t, n, resp, err); n.Labels["a"] != "c" || n.Name != "Cluster" {
		t.Errorf("updated network: got %+v, want the label a=c and the old name", n)
	}
	if one, resp, err := w.Network.GetByID(ctx, n.ID); must(t, one, resp, err) == nil || one.Name != n.Name {
		t.Errorf("network by id: got %+v", one)
	}
	_, err = w.Network.Delete(ctx, n)
	expectError(t, err, sdk.ErrorCodeResourceInUse)
	gone, resp, err := w.Server.DeleteWithResult(ctx, s)
	w.wait(t, must(t, gone, resp, err).Action, nil, nil)
	if n, resp, err = w.Network.GetByID(ctx, n.ID); must(t, n, resp, err) == nil || len(n.Routes) != 1 || !n.Routes[0].Gateway.Equal(route.Gateway) {
		t.Errorf("routes through a deleted server: got %+v, want the route with its gateway", n.Routes)
	}
	a, resp, err = w.Network.DeleteRoute(ctx, n, sdk.NetworkDeleteRouteOpts{Route: n.Routes[0]})
	w.wait(t, a, resp, err)
	_, err = w.Network.Delete(ctx, n)
	must(t, 0, nil, err)
	all, err := w.Network.All(ctx)
	if err != nil || len(all) != 1 || all[0].Name != "default" {
		t.Errorf("networks: got %v, error %v; want only the default network", all, err)
	}
}

func loadBalancerCalls(t *testing.T, w *world) {
	ctx := context.Background()
	s := w.server(t, w.instance(t, "node-1"))
	made, resp, err := w.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{
		Name: "a0123", LoadBalancerType: &sdk.LoadBalancerType{Name: "lb11"}, Location: &sdk.Location{Name: "sim-1a"}, Labels: map[string]string{"hcloud-ccm/service-uid": "u-1"},
	})
	l := must(t, made, resp, err).LoadBalancer
	w.wait(t, made.Action, nil, nil)
	if l.PublicNet.IPv4.IP == nil || l.PublicNet.IPv6.IP == nil || l.Location.Name != "sim-1a" || l.LoadBalancerType.Name != "lb11" || len(l.Services) != 0 {
		t.Errorf("load balancer: got %+v", l)
	}
	all, err := w.LoadBalancer.AllWithOpts(ctx, sdk.LoadBalancerListOpts{ListOpts: sdk.ListOpts{LabelSelector: "hcloud-ccm/service-uid==u-1"}})
	if err != nil || len(all) != 1 || all[0].ID != l.ID {
		t.Errorf("load balancers with the label: got %v, error %v", all, err)
	}
	a, resp, err := w.LoadBalancer.AddService(ctx, l, sdk.LoadBalancerAddServiceOpts{
		Protocol: sdk.LoadBalancerServiceProtocolTCP, ListenPort: sdk.Ptr(80), DestinationPort: sdk.Ptr(30080), Proxyprotocol: sdk.Ptr(true),
		HealthCheck: &sdk.LoadBalancerAddServiceOptsHealthCheck{
			Protocol: sdk.LoadBalancerServiceProtocolHTTP, Port: sdk.Ptr(30081), Interval: sdk.Ptr(3 * time.Second), Timeout: sdk.Ptr(2 * time.Second), Retries: sdk.Ptr(2),
			HTTP: &sdk.LoadBalancerAddServiceOptsHealthCheckHTTP{Path: sdk.Ptr("/healthz"), StatusCodes: []string{"2??", "301", "40?"}, TLS: sdk.Ptr(false)},
		},
	})
	w.wait(t, a, resp, err)
	a, resp, err = w.LoadBalancer.AddServerTarget(ctx, l, sdk.LoadBalancerAddServerTargetOpts{Server: s, UsePrivateIP: sdk.Ptr(false)})
	w.wait(t, a, resp, err)
	_, _, err = w.LoadBalancer.AddServerTarget(ctx, l, sdk.LoadBalancerAddServerTargetOpts{Server: s})
	expectError(t, err, sdk.ErrorCodeTargetAlreadyDefined)
	if l, resp, err = w.LoadBalancer.GetByName(ctx, "a0123"); must(t, l, resp, err) == nil || len(l.Services) != 1 || len(l.Targets) != 1 {
		t.Fatalf("load balancer: got %+v", l)
	}
	sv := l.Services[0]
	if sv.ListenPort != 80 || sv.DestinationPort != 30080 || !sv.Proxyprotocol || sv.HealthCheck.Port != 30081 || sv.HealthCheck.Interval != 3*time.Second ||
		sv.HealthCheck.HTTP == nil || sv.HealthCheck.HTTP.Path != "/healthz" || !slices.Equal(sv.HealthCheck.HTTP.StatusCodes, []string{"2??", "301", "40?"}) {
		t.Errorf("service: got %+v, %+v", sv, sv.HealthCheck.HTTP)
	}
	if at := l.Targets[0]; at.Server.Server.ID != s.ID || at.UsePrivateIP || len(at.HealthStatus) != 1 {
		t.Errorf("target: got %+v", at)
	}
	a, resp, err = w.LoadBalancer.UpdateService(ctx, l, 80, sdk.LoadBalancerUpdateServiceOpts{Protocol: sdk.LoadBalancerServiceProtocolTCP, DestinationPort: sdk.Ptr(30090), Proxyprotocol: sdk.Ptr(false)})
	w.wait(t, a, resp, err)
	if l, resp, err = w.LoadBalancer.GetByID(ctx, l.ID); must(t, l, resp, err).Services[0].DestinationPort != 30090 || l.Services[0].Proxyprotocol {
		t.Errorf("updated service: got %+v, want destination port 30090 without the PROXY protocol", l.Services[0])
	}
	a, resp, err = w.LoadBalancer.RemoveServerTarget(ctx, l, s)
	w.wait(t, a, resp, err)
	a, resp, err = w.LoadBalancer.DeleteService(ctx, l, 80)
	w.wait(t, a, resp, err)
	_, _, err = w.LoadBalancer.DeleteService(ctx, l, 80)
	expectError(t, err, sdk.ErrorCodeNotFound)
	a, resp, err = w.LoadBalancer.ChangeAlgorithm(ctx, l, sdk.LoadBalancerChangeAlgorithmOpts{Type: sdk.LoadBalancerAlgorithmTypeLeastConnections})
	w.wait(t, a, resp, err)
	a, resp, err = w.LoadBalancer.ChangeType(ctx, l, sdk.LoadBalancerChangeTypeOpts{LoadBalancerType: &sdk.LoadBalancerType{Name: "lb21"}})
	w.wait(t, a, resp, err)
	n, resp, err := w.Network.GetByName(ctx, "default")
	must(t, n, resp, err)
	_, _, err = w.LoadBalancer.AddServerTarget(ctx, l, sdk.LoadBalancerAddServerTargetOpts{Server: s, UsePrivateIP: sdk.Ptr(true)})
	expectError(t, err, sdk.ErrorCodeLoadBalancerNotAttachedToNetwork)
	a, resp, err = w.LoadBalancer.AttachToNetwork(ctx, l, sdk.LoadBalancerAttachToNetworkOpts{Network: n})
	w.wait(t, a, resp, err)
	a, resp, err = w.LoadBalancer.AddServerTarget(ctx, l, sdk.LoadBalancerAddServerTargetOpts{Server: s, UsePrivateIP: sdk.Ptr(true)})
	w.wait(t, a, resp, err)
	a, resp, err = w.LoadBalancer.DisablePublicInterface(ctx, l)
	w.wait(t, a, resp, err)
	l, resp, err = w.LoadBalancer.GetByID(ctx, l.ID)
	if must(t, l, resp, err); l.Algorithm.Type != sdk.LoadBalancerAlgorithmTypeLeastConnections || l.LoadBalancerType.Name != "lb21" || len(l.PrivateNet) != 1 || l.PrivateNet[0].Network.ID != n.ID || !l.Targets[0].UsePrivateIP || l.PublicNet.Enabled {
		t.Errorf("load balancer after all changes: got %+v, want lb21, least_connections, one private network and no public network", l)
	}
	a, resp, err = w.LoadBalancer.EnablePublicInterface(ctx, l)
	w.wait(t, a, resp, err)
	a, resp, err = w.LoadBalancer.DetachFromNetwork(ctx, l, sdk.LoadBalancerDetachFromNetworkOpts{Network: n})
	w.wait(t, a, resp, err)
	l, resp, err = w.LoadBalancer.Update(ctx, l, sdk.LoadBalancerUpdateOpts{Name: "a0123", Labels: map[string]string{"x": "y"}})
	if must(t, l, resp, err); !maps.Equal(l.Labels, map[string]string{"x": "y"}) || l.LoadBalancerType.Name != "lb21" || !l.PublicNet.Enabled || len(l.PrivateNet) != 0 {
		t.Errorf("updated load balancer: got %+v, want the label x=y, lb21, a public network and no private network", l)
	}
	deleted := do[schema.ActionGetResponse](t, w, http.MethodDelete, fmt.Sprintf("/load_balancers/%d", l.ID)).Action
	if a, resp, err := w.Action.GetByID(ctx, deleted.ID); must(t, a, resp, err) == nil || a.Status != sdk.ActionStatusSuccess || a.Command != deleted.Command {
		t.Errorf("action of the deletion: got %+v in the answer and %+v by id, want success and the same command", deleted, a)
	}
	if l, _, err := w.LoadBalancer.GetByID(ctx, l.ID); l != nil || err != nil {
		t.Errorf("deleted load balancer: got %+v, error %v; want none", l, err)
	}
}
