package hcloud_test

import (
	"context"
	"net"
	"slices"
	"testing"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestAutoscalerCalls makes the calls of the cluster autoscaler's provider for Hetzner, in the
// order of the provider. The provider makes these calls at its start, for a new node of a node
// group, and for the removal of the node.
func TestAutoscalerCalls(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	k, resp, err := w.SSHKey.Create(ctx, sdk.SSHKeyCreateOpts{Name: "admin", PublicKey: publicKey})
	must(t, k, resp, err)
	k, resp, err = w.SSHKey.Get(ctx, "admin")
	must(t, k, resp, err)
	n, resp, err := w.Network.Get(ctx, "default")
	must(t, n, resp, err)
	if f, _, err := w.Firewall.Get(ctx, "none"); f != nil || err != nil {
		t.Errorf("firewall: got %+v, error %v; want none", f, err)
	}
	types, err := w.ServerType.All(ctx)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(types, func(st *sdk.ServerType) bool { return st.Name == "small" })
	if !slices.ContainsFunc(types[i].Pricings, func(p sdk.ServerTypeLocationPricing) bool { return p.Location.Name == "sim-1b" }) {
		t.Fatalf("server type: got prices %+v, want one of the location sim-1b", types[i].Pricings)
	}
	if snapshots, err := w.Image.AllWithOpts(ctx, sdk.ImageListOpts{
		Type: []sdk.ImageType{sdk.ImageTypeSnapshot}, Status: []sdk.ImageStatus{sdk.ImageStatusAvailable}, Sort: []string{"created:desc"},
		Architecture: []sdk.Architecture{types[i].Architecture}, ListOpts: sdk.ListOpts{LabelSelector: "image=node"},
	}); err != nil || len(snapshots) != 0 {
		t.Errorf("snapshots: got %v, error %v; want none", snapshots, err)
	}
	img, resp, err := w.Image.GetForArchitecture(ctx, "debian-12", types[i].Architecture)
	must(t, img, resp, err)
	g, resp, err := w.PlacementGroup.Create(ctx, sdk.PlacementGroupCreateOpts{Name: "pool-1", Type: sdk.PlacementGroupTypeSpread})
	must(t, g, resp, err)
	made, resp, err := w.Server.Create(ctx, sdk.ServerCreateOpts{
		Name: "pool-1-62f1a5b0c0ffee", UserData: "#cloud-config\n", Location: &sdk.Location{Name: "sim-1b"}, ServerType: types[i], Image: img,
		StartAfterCreate: sdk.Ptr(true), Labels: map[string]string{"hcloud/node-group": "pool-1"},
		PublicNet: &sdk.ServerCreatePublicNet{EnableIPv4: true, EnableIPv6: true},
		SSHKeys:   []*sdk.SSHKey{k}, Networks: []*sdk.Network{n}, PlacementGroup: g.PlacementGroup,
	})
	must(t, made, resp, err)
	for _, a := range append([]*sdk.Action{made.Action}, made.NextActions...) {
		w.wait(t, a, nil, nil)
	}
	all, err := w.Server.AllWithOpts(ctx, sdk.ServerListOpts{ListOpts: sdk.ListOpts{LabelSelector: "hcloud/node-group"}})
	if err != nil || len(all) != 1 || all[0].Location.Name != "sim-1b" || all[0].Status != sdk.ServerStatusRunning {
		t.Fatalf("servers of the node group: got %+v, error %v", all, err)
	}
	gone, resp, err := w.Server.DeleteWithResult(ctx, all[0])
	w.wait(t, must(t, gone, resp, err).Action, nil, nil)
	if n := w.unsupported.Load(); n != 0 {
		t.Errorf("got %d answers with the status 501, want none", n)
	}
}

// TestTerraformCalls makes the calls with which Terraform's provider for Hetzner creates, reads,
// changes and deletes basic resources. The test makes these calls in the order in which the
// provider makes them. TestEachCall checks the results of these calls, so TestTerraformCalls checks
// only a few results.
func TestTerraformCalls(t *testing.T) {
	ctx := context.Background()
	w := start(t, cloudtest.WithProfile(engine.Realistic)) // with delays, to prove that no call fails because a resource is still changing
	k, resp, err := w.SSHKey.Create(ctx, sdk.SSHKeyCreateOpts{Name: "me", PublicKey: publicKey})
	must(t, k, resp, err)
	g, resp, err := w.PlacementGroup.Create(ctx, sdk.PlacementGroupCreateOpts{Name: "spread", Type: sdk.PlacementGroupTypeSpread})
	group := must(t, g, resp, err).PlacementGroup

	// hcloud_network, hcloud_network_subnet
	n, resp, err := w.Network.Create(ctx, sdk.NetworkCreateOpts{Name: "net", IPRange: cidr("10.0.0.0/16"), ExposeRoutesToVSwitch: false})
	must(t, n, resp, err)
	a, resp, err := w.Network.AddSubnet(ctx, n, sdk.NetworkAddSubnetOpts{Subnet: sdk.NetworkSubnet{Type: sdk.NetworkSubnetTypeCloud, IPRange: cidr("10.0.1.0/24"), NetworkZone: "sim-1"}})
	w.wait(t, a, resp, err)
	n, resp, err = w.Network.Update(ctx, n, sdk.NetworkUpdateOpts{Labels: map[string]string{"a": "b"}, ExposeRoutesToVSwitch: sdk.Ptr(false)})
	must(t, n, resp, err)
	n, resp, err = w.Network.Get(ctx, "net")
	must(t, n, resp, err)

	// hcloud_server
	st, resp, err := w.ServerType.Get(ctx, "small")
	must(t, st, resp, err)
	img, resp, err := w.Image.GetForArchitecture(ctx, "ubuntu-24.04", st.Architecture)
	must(t, img, resp, err)
	one, resp, err := w.SSHKey.Get(ctx, "me")
	must(t, one, resp, err)
	in, resp, err := w.PlacementGroup.GetByID(ctx, group.ID)
	must(t, in, resp, err)
	made, resp, err := w.Server.Create(ctx, sdk.ServerCreateOpts{
		Name: "web-1", ServerType: st, Image: img, UserData: "#!/bin/sh\n", Location: &sdk.Location{Name: "sim-1a"}, SSHKeys: []*sdk.SSHKey{one},
		Labels: map[string]string{"role": "web"}, PlacementGroup: in,
		PublicNet: &sdk.ServerCreatePublicNet{EnableIPv4: true, EnableIPv6: true},
	})
	s := must(t, made, resp, err).Server
	w.wait(t, made.Action, nil, nil)
	for _, next := range made.NextActions {
		w.wait(t, next, nil, nil)
	}
	// Terraform's provider makes this call if a resource hcloud_server contains a block "network".
	// It also makes this call if a resource hcloud_server_network contains a network_id.
	a, resp, err = w.Server.AttachToNetwork(ctx, s, sdk.ServerAttachToNetworkOpts{Network: n, IP: net.ParseIP("10.0.1.7"), AliasIPs: []net.IP{}})
	w.wait(t, a, resp, err)
	s, resp, err = w.Server.GetByID(ctx, s.ID)
	if must(t, s, resp, err); len(s.PrivateNet) != 1 || s.PrivateNet[0].Network.ID != n.ID || s.PrivateNet[0].IP.String() != "10.0.1.7" {
		t.Fatalf("private networks: got %+v, want only the network of the block", s.PrivateNet)
	}
	a, resp, err = w.Server.ChangeProtection(ctx, s, sdk.ServerChangeProtectionOpts{Delete: sdk.Ptr(true), Rebuild: sdk.Ptr(true)})
	w.wait(t, a, resp, err)
	s, resp, err = w.Server.Update(ctx, s, sdk.ServerUpdateOpts{Labels: map[string]string{"role": "db"}})
	must(t, s, resp, err)
	a, resp, err = w.Server.Poweroff(ctx, s)
	w.wait(t, a, resp, err)
	a, resp, err = w.Server.RemoveFromPlacementGroup(ctx, s)
	w.wait(t, a, resp, err)
	a, resp, err = w.Server.AddToPlacementGroup(ctx, s, in)
	w.wait(t, a, resp, err)
	a, resp, err = w.Server.Poweron(ctx, s)
	w.wait(t, a, resp, err)

	// hcloud_network_route
	route := sdk.NetworkRoute{Destination: cidr("192.168.0.0/24"), Gateway: s.PrivateNet[0].IP}
	a, resp, err = w.Network.AddRoute(ctx, n, sdk.NetworkAddRouteOpts{Route: route})
	w.wait(t, a, resp, err)

	// hcloud_volume, hcloud_volume_attachment
	disk, resp, err := w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "data", Size: 10, Location: &sdk.Location{Name: "sim-1a"}})
	v := must(t, disk, resp, err).Volume
	w.wait(t, disk.Action, nil, nil)
	a, resp, err = w.Volume.AttachWithOpts(ctx, v, sdk.VolumeAttachOpts{Server: s, Automount: sdk.Ptr(false)})
	w.wait(t, a, resp, err)
	v, resp, err = w.Volume.Update(ctx, v, sdk.VolumeUpdateOpts{Labels: map[string]string{"a": "b"}})
	must(t, v, resp, err)
	a, resp, err = w.Volume.Resize(ctx, v, 20)
	w.wait(t, a, resp, err)

	// These calls create Terraform's resources hcloud_load_balancer, hcloud_load_balancer_network,
	// hcloud_load_balancer_target and hcloud_load_balancer_service.
	lb, resp, err := w.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{
		Name: "front", LoadBalancerType: &sdk.LoadBalancerType{Name: "lb11"}, NetworkZone: "sim-1", Algorithm: &sdk.LoadBalancerAlgorithm{Type: sdk.LoadBalancerAlgorithmTypeRoundRobin},
	})
	l := must(t, lb, resp, err).LoadBalancer
	w.wait(t, lb.Action, nil, nil)
	a, resp, err = w.LoadBalancer.AttachToNetwork(ctx, l, sdk.LoadBalancerAttachToNetworkOpts{Network: n})
	w.wait(t, a, resp, err)
	a, resp, err = w.LoadBalancer.AddServerTarget(ctx, l, sdk.LoadBalancerAddServerTargetOpts{Server: s, UsePrivateIP: sdk.Ptr(true)})
	w.wait(t, a, resp, err)
	a, resp, err = w.LoadBalancer.AddService(ctx, l, sdk.LoadBalancerAddServiceOpts{Protocol: sdk.LoadBalancerServiceProtocolTCP, ListenPort: sdk.Ptr(80), DestinationPort: sdk.Ptr(8080)})
	w.wait(t, a, resp, err)
	a, resp, err = w.LoadBalancer.UpdateService(ctx, l, 80, sdk.LoadBalancerUpdateServiceOpts{Protocol: sdk.LoadBalancerServiceProtocolTCP, DestinationPort: sdk.Ptr(8081)})
	w.wait(t, a, resp, err)
	a, resp, err = w.LoadBalancer.ChangeType(ctx, l, sdk.LoadBalancerChangeTypeOpts{LoadBalancerType: &sdk.LoadBalancerType{Name: "lb21"}})
	w.wait(t, a, resp, err)

	// destroy
	a, resp, err = w.LoadBalancer.DeleteService(ctx, l, 80)
	w.wait(t, a, resp, err)
	a, resp, err = w.LoadBalancer.RemoveServerTarget(ctx, l, s)
	w.wait(t, a, resp, err)
	a, resp, err = w.LoadBalancer.DetachFromNetwork(ctx, l, sdk.LoadBalancerDetachFromNetworkOpts{Network: n})
	w.wait(t, a, resp, err)
	_, err = w.LoadBalancer.Delete(ctx, l)
	must(t, 0, nil, err)
	a, resp, err = w.Volume.Detach(ctx, v)
	w.wait(t, a, resp, err)
	_, err = w.Volume.Delete(ctx, v)
	must(t, 0, nil, err)
	a, resp, err = w.Network.DeleteRoute(ctx, n, sdk.NetworkDeleteRouteOpts{Route: route})
	w.wait(t, a, resp, err)
	a, resp, err = w.Server.ChangeProtection(ctx, s, sdk.ServerChangeProtectionOpts{Delete: sdk.Ptr(false), Rebuild: sdk.Ptr(false)})
	w.wait(t, a, resp, err)
	a, resp, err = w.Server.DetachFromNetwork(ctx, s, sdk.ServerDetachFromNetworkOpts{Network: n}) // hcloud_server_network
	w.wait(t, a, resp, err)
	gone, resp, err := w.Server.DeleteWithResult(ctx, s)
	w.wait(t, must(t, gone, resp, err).Action, nil, nil)
	a, resp, err = w.Network.DeleteSubnet(ctx, n, sdk.NetworkDeleteSubnetOpts{Subnet: sdk.NetworkSubnet{IPRange: cidr("10.0.1.0/24")}})
	w.wait(t, a, resp, err)
	_, err = w.Network.Delete(ctx, n)
	must(t, 0, nil, err)
	_, err = w.PlacementGroup.Delete(ctx, in)
	must(t, 0, nil, err)
	_, err = w.SSHKey.Delete(ctx, k)
	must(t, 0, nil, err)
	if n := w.unsupported.Load(); n != 0 {
		t.Errorf("got %d answers with the status 501, want none", n)
	}
}
