package hcloud_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/hcloud"
)

// TestOtherProject proves that a caller cannot see, change, delete or use the resources of another
// project. Calls with the ids of these resources have the same result as calls with ids that do not
// exist.
func TestOtherProject(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	// The configuration of this dialect contains no project. Therefore each call is for the project
	// to which the caller's token belongs.
	srv := httptest.NewServer(dialect.New(slog.New(slog.DiscardHandler), hcloud.New(), dialect.Config{URL: w.cloud.URL, Transport: w.cloud.HTTP.Transport}))
	defer srv.Close()
	w.url = srv.URL
	p, err := w.cloud.CreateProject(ctx, cloudsim.CreateProject{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	otherCloud := *w.cloud
	otherCloud.Project = p.ID
	owner, other := w.clientOf(t, cloudtest.As(t, w.cloud, "owner", cloudsim.RoleWriter)), cloudtest.As(t, &otherCloud, "someone", cloudsim.RoleWriter)
	stranger := w.clientOf(t, other)
	secret, err := other.Token()
	if err != nil {
		t.Fatal(err)
	}

	st, img, at := &sdk.ServerType{Name: "small"}, &sdk.Image{Name: "debian-13"}, &sdk.Location{Name: "sim-1a"}
	lb11 := &sdk.LoadBalancerType{Name: "lb11"}
	server, resp, err := owner.Server.Create(ctx, sdk.ServerCreateOpts{Name: "node-1", ServerType: st, Image: img, Location: at})
	s := must(t, server, resp, err).Server
	created := server.Action.ID
	disk, resp, err := owner.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "data", Size: 10, Location: at})
	v := must(t, disk, resp, err).Volume
	n, resp, err := owner.Network.Create(ctx, sdk.NetworkCreateOpts{Name: "net", IPRange: cidr("10.20.0.0/16")})
	must(t, n, resp, err)
	lb, resp, err := owner.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{Name: "front", LoadBalancerType: lb11, Location: at})
	l := must(t, lb, resp, err).LoadBalancer
	k, resp, err := owner.SSHKey.Create(ctx, sdk.SSHKeyCreateOpts{Name: "me", PublicKey: publicKey})
	must(t, k, resp, err)
	group, resp, err := owner.PlacementGroup.Create(ctx, sdk.PlacementGroupCreateOpts{Name: "spread", Type: sdk.PlacementGroupTypeSpread})
	g := must(t, group, resp, err).PlacementGroup
	ids := map[string]int64{"servers": s.ID, "volumes": v.ID, "networks": n.ID, "load_balancers": l.ID, "ssh_keys": k.ID, "placement_groups": g.ID}

	server, resp, err = stranger.Server.Create(ctx, sdk.ServerCreateOpts{Name: "node-1", ServerType: st, Image: img, Location: at})
	ownServer := must(t, server, resp, err).Server
	disk, resp, err = stranger.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "data", Size: 10, Location: at})
	ownVolume := must(t, disk, resp, err).Volume
	lb, resp, err = stranger.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{Name: "front", LoadBalancerType: lb11, Location: at})
	ownBalancer := must(t, lb, resp, err).LoadBalancer

	check := func(status int, method, path, body string) {
		t.Helper()
		if a := w.sendRaw(t, method, path, secret, body); a.Status != status {
			t.Errorf("%s %s: got answer %+v, want status %d", method, path, a, status)
		}
	}
	for resource, id := range ids {
		path := fmt.Sprintf("/v1/%s/%d", resource, id)
		check(404, "GET", path, "")
		check(404, "PUT", path, `{"labels":{"a":"b"}}`)
		check(404, "DELETE", path, "")
	}
	for path, body := range map[string]string{
		fmt.Sprintf("servers/%d/actions/poweroff", s.ID):                       "",
		fmt.Sprintf("servers/%d/actions/change_protection", s.ID):              `{"delete":true,"rebuild":true}`,
		fmt.Sprintf("servers/%d/actions/attach_to_network", s.ID):              fmt.Sprintf(`{"network":%d}`, n.ID),
		fmt.Sprintf("volumes/%d/actions/attach", v.ID):                         fmt.Sprintf(`{"server":%d}`, ownServer.ID),
		fmt.Sprintf("volumes/%d/actions/resize", v.ID):                         `{"size":20}`,
		fmt.Sprintf("volumes/%d/actions/attach", ownVolume.ID):                 fmt.Sprintf(`{"server":%d}`, s.ID),
		fmt.Sprintf("networks/%d/actions/add_subnet", n.ID):                    `{"type":"cloud","ip_range":"10.20.1.0/24","network_zone":"sim-1"}`,
		fmt.Sprintf("load_balancers/%d/actions/add_service", l.ID):             `{"protocol":"tcp","listen_port":80,"destination_port":80}`,
		fmt.Sprintf("load_balancers/%d/actions/add_target", l.ID):              fmt.Sprintf(`{"type":"server","server":{"id":%d}}`, ownServer.ID),
		fmt.Sprintf("load_balancers/%d/actions/enable_public_interface", l.ID): "",
	} {
		check(404, "POST", "/v1/"+path, body)
	}
	check(404, "GET", fmt.Sprintf("/v1/actions/%d", created), "")
	create := `{"name":"x","server_type":"small","image":"debian-13","location":"sim-1a",`
	for body, path := range map[string]string{
		fmt.Sprintf(`{"type":"server","server":{"id":%d}}`, s.ID): fmt.Sprintf("load_balancers/%d/actions/add_target", ownBalancer.ID),
		fmt.Sprintf(`{"network":%d}`, n.ID):                       fmt.Sprintf("load_balancers/%d/actions/attach_to_network", ownBalancer.ID),
		fmt.Sprintf(`{"network":%d,"ip":""}`, n.ID):               fmt.Sprintf("servers/%d/actions/attach_to_network", ownServer.ID),
		create + fmt.Sprintf(`"networks":[%d]}`, n.ID):            "servers",
		create + fmt.Sprintf(`"placement_group":%d}`, g.ID):       "servers",
		create + fmt.Sprintf(`"ssh_keys":[%d]}`, k.ID):            "servers",
		fmt.Sprintf(`{"name":"x","size":10,"server":%d}`, s.ID):   "volumes",
	} {
		check(422, "POST", "/v1/"+path, body)
	}

	for kind, list := range map[string]func(c *sdk.Client) (int, error){
		"servers":          func(c *sdk.Client) (int, error) { all, err := c.Server.All(ctx); return len(all), err },
		"volumes":          func(c *sdk.Client) (int, error) { all, err := c.Volume.All(ctx); return len(all), err },
		"load_balancers":   func(c *sdk.Client) (int, error) { all, err := c.LoadBalancer.All(ctx); return len(all), err },
		"networks":         func(c *sdk.Client) (int, error) { all, err := c.Network.All(ctx); return len(all) - 1, err },
		"ssh_keys":         func(c *sdk.Client) (int, error) { all, err := c.SSHKey.All(ctx); return len(all), err },
		"placement_groups": func(c *sdk.Client) (int, error) { all, err := c.PlacementGroup.All(ctx); return len(all), err },
	} {
		want := 0
		if kind == "servers" || kind == "volumes" || kind == "load_balancers" {
			want = 1
		}
		if got, err := list(stranger); err != nil || got != want {
			t.Errorf("%s of the other project: got %d, error %v; want %d", kind, got, err, want)
		}
		if got, err := list(owner); err != nil || got != 1 {
			t.Errorf("%s of the owner: got %d, error %v; want 1", kind, got, err)
		}
	}
	if s, resp, err = owner.Server.GetByID(ctx, s.ID); must(t, s, resp, err).Status != sdk.ServerStatusRunning || len(s.Labels) != 0 || s.Protection.Delete || len(s.Volumes) != 0 {
		t.Errorf("server of the owner: got %+v, want no change", s)
	}
}
