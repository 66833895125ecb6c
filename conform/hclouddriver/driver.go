// Package hclouddriver is the driver of the conformance checks for Hetzner Cloud. It uses Hetzner's
// own client, and also works with compatible APIs. The driver cannot inject faults, but a recording
// proxy between the CCM and the API can. So the checks with faults need this proxy.
package hclouddriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/cloudsim-dev/allinone/conform"
)

// Driver implements conform.Driver. A machine is a server of Hetzner Cloud.
type Driver struct {
	Client *hcloud.Client
	// Network is the name or the ID of the network that the CCM uses (HCLOUD_NETWORK). If Network
	// is empty, servers have no private addresses, and the driver does not claim the capability
	// Routes.
	Network string
	// Image is the name of a system image for new servers. The default is the first system image
	// for the architecture of the server type.
	Image string
	// ClusterCIDR is the value of the flag --cluster-cidr of the CCM. If ClusterCIDR is empty, the
	// driver does not claim the capability Routes.
	ClusterCIDR string
}

var _ conform.Driver = (*Driver)(nil)

// Capabilities implements conform.Driver. Load balancers of Hetzner Cloud forward no UDP, and have
// no source ranges.
func (d *Driver) Capabilities(context.Context) (conform.Capabilities, error) {
	return conform.Capabilities{
		Provider: "hcloud", ProviderIDPrefix: "hcloud://", Zones: true, Shutdown: true, LoadBalancers: true,
		Routes: d.Network != "" && d.ClusterCIDR != "", ClusterCIDR: d.ClusterCIDR,
	}, nil
}

func (d *Driver) network(ctx context.Context) (*hcloud.Network, error) {
	if d.Network == "" {
		return nil, fmt.Errorf("the driver has no network: %w", conform.ErrUnsupported)
	}
	n, _, err := d.Client.Network.Get(ctx, d.Network)
	if err == nil && n == nil {
		err = fmt.Errorf("network %q: %w", d.Network, conform.ErrNotFound)
	}
	return n, err
}

// serverType returns the server type with the given name. If name is "", serverType returns the
// first type that is not deprecated.
func (d *Driver) serverType(ctx context.Context, name string) (*hcloud.ServerType, error) {
	all, err := d.Client.ServerType.All(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if name == t.Name || name == "" && !t.IsDeprecated() {
			return t, nil
		}
	}
	return nil, fmt.Errorf("server type %q: %w", name, conform.ErrNotFound)
}

func (d *Driver) image(ctx context.Context, t *hcloud.ServerType) (*hcloud.Image, error) {
	all, err := d.Client.Image.AllWithOpts(ctx, hcloud.ImageListOpts{
		Name: d.Image, Type: []hcloud.ImageType{hcloud.ImageTypeSystem}, Architecture: []hcloud.Architecture{t.Architecture},
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("image %q for %s: %w", d.Image, t.Architecture, conform.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// CreateMachine implements conform.Machines. The field Zone is the name of a location.
func (d *Driver) CreateMachine(ctx context.Context, m conform.Machine) (conform.Machine, error) {
	t, err := d.serverType(ctx, m.Type)
	if err != nil {
		return m, err
	}
	image, err := d.image(ctx, t)
	if err != nil {
		return m, err
	}
	opts := hcloud.ServerCreateOpts{Name: m.Name, ServerType: t, Image: image, Labels: map[string]string{conform.LabelRun: m.Run}}
	if m.Zone != "" {
		opts.Location = &hcloud.Location{Name: m.Zone}
	}
	if d.Network != "" {
		n, err := d.network(ctx)
		if err != nil {
			return m, err
		}
		opts.Networks = []*hcloud.Network{n}
	}
	made, _, err := d.Client.Server.Create(ctx, opts)
	if err == nil {
		err = d.Client.Action.WaitFor(ctx, append(made.NextActions, made.Action)...)
	}
	if err != nil {
		return m, err
	}
	return d.GetMachine(ctx, m.Name)
}

func (d *Driver) machine(s *hcloud.Server) conform.Machine {
	m := conform.Machine{
		Name: s.Name, Type: s.ServerType.Name, ProviderID: fmt.Sprintf("hcloud://%d", s.ID), Running: s.Status == hcloud.ServerStatusRunning,
		Run: s.Labels[conform.LabelRun],
	}
	if s.Location != nil {
		m.Region, m.Zone = s.Location.Name, s.Location.Name
	}
	for _, p := range s.PrivateNet {
		m.Addresses = append(m.Addresses, conform.Address{Type: "InternalIP", Address: p.IP.String()})
	}
	if ip := s.PublicNet.IPv4.IP; len(ip) > 0 && !ip.IsUnspecified() {
		m.Addresses = append(m.Addresses, conform.Address{Type: "ExternalIP", Address: ip.String()})
	}
	return m
}

func (d *Driver) server(ctx context.Context, name string) (*hcloud.Server, error) {
	s, _, err := d.Client.Server.GetByName(ctx, name)
	if err == nil && s == nil {
		err = fmt.Errorf("server %q: %w", name, conform.ErrNotFound)
	}
	return s, err
}

// ListMachines implements conform.Machines.
func (d *Driver) ListMachines(ctx context.Context) ([]conform.Machine, error) {
	all, err := d.Client.Server.AllWithOpts(ctx, hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: conform.LabelRun}})
	machines := []conform.Machine{}
	for _, s := range all {
		machines = append(machines, d.machine(s))
	}
	return machines, err
}

// GetMachine implements conform.Machines.
func (d *Driver) GetMachine(ctx context.Context, name string) (conform.Machine, error) {
	s, err := d.server(ctx, name)
	if err != nil {
		return conform.Machine{}, err
	}
	return d.machine(s), nil
}

// runAction starts an action on the server with the given name, and waits for the end of the
// action. It calls the function verb to start the action.
func (d *Driver) runAction(ctx context.Context, name string, verb func(context.Context, *hcloud.Server) (*hcloud.Action, *hcloud.Response, error)) error {
	s, err := d.server(ctx, name)
	if err != nil {
		return err
	}
	return d.wait(ctx)(verb(ctx, s))
}

// wait returns a function that waits for the end of an action.
func (d *Driver) wait(ctx context.Context) func(*hcloud.Action, *hcloud.Response, error) error {
	return func(a *hcloud.Action, _ *hcloud.Response, err error) error {
		if err == nil && a != nil {
			err = d.Client.Action.WaitFor(ctx, a)
		}
		return notFound(err)
	}
}

func notFound(err error) error {
	if hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return fmt.Errorf("%w: %w", conform.ErrNotFound, err)
	}
	return err
}

// StopMachine implements conform.Machines.
func (d *Driver) StopMachine(ctx context.Context, name string) error {
	return d.runAction(ctx, name, d.Client.Server.Poweroff)
}

// StartMachine implements conform.Machines.
func (d *Driver) StartMachine(ctx context.Context, name string) error {
	return d.runAction(ctx, name, d.Client.Server.Poweron)
}

// DeleteMachine implements conform.Machines. It returns when the server is deleted.
func (d *Driver) DeleteMachine(ctx context.Context, name string) error {
	err := d.runAction(ctx, name, func(ctx context.Context, s *hcloud.Server) (*hcloud.Action, *hcloud.Response, error) {
		result, resp, err := d.Client.Server.DeleteWithResult(ctx, s)
		if err != nil {
			return nil, resp, err
		}
		return result.Action, resp, nil
	})
	if errors.Is(err, conform.ErrNotFound) {
		return nil
	}
	return err
}

func (d *Driver) serverNames(ctx context.Context) (map[int64]string, error) {
	all, err := d.Client.Server.All(ctx)
	names := map[int64]string{}
	for _, s := range all {
		names[s.ID] = s.Name
	}
	return names, err
}

// ListLoadBalancers implements conform.Network.
func (d *Driver) ListLoadBalancers(ctx context.Context) ([]conform.LoadBalancer, error) {
	names, err := d.serverNames(ctx)
	if err != nil {
		return nil, err
	}
	all, err := d.Client.LoadBalancer.All(ctx)
	if err != nil {
		return nil, err
	}
	result := []conform.LoadBalancer{}
	for _, lb := range all {
		c := conform.LoadBalancer{ID: strconv.FormatInt(lb.ID, 10)}
		ips := []net.IP{lb.PublicNet.IPv4.IP, lb.PublicNet.IPv6.IP}
		for _, p := range lb.PrivateNet {
			ips = append(ips, p.IP)
		}
		for _, ip := range ips {
			if len(ip) > 0 {
				c.Addresses = append(c.Addresses, ip.String())
			}
		}
		for _, s := range lb.Services {
			// The protocols http and https are TCP for Kubernetes.
			c.Ports = append(c.Ports, conform.Port{Protocol: "TCP", Port: int32(s.ListenPort), NodePort: int32(s.DestinationPort)}) //nolint:gosec // ports are at most 65535
		}
		for _, t := range lb.Targets {
			if t.Server != nil {
				c.Machines = append(c.Machines, names[t.Server.Server.ID])
			}
		}
		result = append(result, c)
	}
	return result, nil
}

// DeleteLoadBalancer implements conform.Network.
func (d *Driver) DeleteLoadBalancer(ctx context.Context, id string) error {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return fmt.Errorf("load balancer %q: %w", id, conform.ErrNotFound)
	}
	_, err = d.Client.LoadBalancer.Delete(ctx, &hcloud.LoadBalancer{ID: n})
	return notFound(err)
}

// ListRoutes implements conform.Network. The ID of a route contains its destination and its
// gateway.
func (d *Driver) ListRoutes(ctx context.Context) ([]conform.Route, error) {
	n, err := d.network(ctx)
	if err != nil {
		return nil, err
	}
	servers, err := d.Client.Server.All(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, s := range servers {
		if ip := addressIn(s, n); ip != nil {
			names[ip.String()] = s.Name
		}
	}
	result := []conform.Route{}
	for _, r := range n.Routes {
		result = append(result, conform.Route{ID: routeID(r), CIDR: r.Destination.String(), Machine: names[r.Gateway.String()]})
	}
	return result, nil
}

// addressIn returns the address of a server in a network, or nil.
func addressIn(s *hcloud.Server, n *hcloud.Network) net.IP {
	for _, p := range s.PrivateNet {
		if p.Network.ID == n.ID {
			return p.IP
		}
	}
	return nil
}

func routeID(r hcloud.NetworkRoute) string { return r.Destination.String() + "@" + r.Gateway.String() }

// CreateRoute implements conform.Network.
func (d *Driver) CreateRoute(ctx context.Context, r conform.Route) (conform.Route, error) {
	n, err := d.network(ctx)
	if err != nil {
		return r, err
	}
	s, err := d.server(ctx, r.Machine)
	if err != nil {
		return r, err
	}
	_, destination, err := net.ParseCIDR(r.CIDR)
	if err != nil {
		return r, err
	}
	ip := addressIn(s, n)
	if ip == nil {
		return r, fmt.Errorf("the server %s has no address in the network %s", s.Name, n.Name)
	}
	route := hcloud.NetworkRoute{Destination: destination, Gateway: ip}
	r.ID = routeID(route)
	return r, d.wait(ctx)(d.Client.Network.AddRoute(ctx, n, hcloud.NetworkAddRouteOpts{Route: route}))
}

// DeleteRoute implements conform.Network.
func (d *Driver) DeleteRoute(ctx context.Context, id string) error {
	n, err := d.network(ctx)
	if err != nil {
		return err
	}
	cidr, gateway, _ := strings.Cut(id, "@")
	_, destination, err := net.ParseCIDR(cidr)
	if err != nil {
		return fmt.Errorf("route %q: %w", id, conform.ErrNotFound)
	}
	return d.wait(ctx)(d.Client.Network.DeleteRoute(ctx, n, hcloud.NetworkDeleteRouteOpts{Route: hcloud.NetworkRoute{Destination: destination, Gateway: net.ParseIP(gateway)}}))
}

// SetFault implements conform.Faults.
func (d *Driver) SetFault(context.Context, conform.Fault) error { return conform.ErrUnsupported }

// ClearFault implements conform.Faults.
func (d *Driver) ClearFault(context.Context) error { return nil }

// Calls implements conform.Faults.
func (d *Driver) Calls(context.Context) (map[string]conform.Count, error) {
	return nil, conform.ErrUnsupported
}
