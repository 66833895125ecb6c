package hcloud

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// serverStatus maps the states of an instance to Hetzner's statuses. Hetzner has no
// status for a reboot, so a server has the status running during a reboot.
var serverStatus = map[cloudsim.InstanceState]string{
	cloudsim.InstanceProvisioning: "initializing", cloudsim.InstanceRunning: "running", cloudsim.InstanceStopping: "stopping",
	cloudsim.InstanceStopped: "off", cloudsim.InstanceStarting: "starting", cloudsim.InstanceRebooting: "running",
	cloudsim.InstanceTerminating: "deleting", cloudsim.InstanceTerminated: "deleting",
}

func instanceBusy(s cloudsim.InstanceState) bool {
	return s != cloudsim.InstanceRunning && s != cloudsim.InstanceStopped
}

const labelImage = dialect.LabelPrefix + "image"

// serverOf returns an instance in the format of Hetzner's servers. The public IPv4 address of the
// server is the external address of the instance. If the instance has no external address, the
// public IPv4 address of the server is the internal address. The addresses in the private networks
// are always internal addresses.
func serverOf(i cloudsim.Instance, t cloudsim.InstanceType, volumes []int64, group *placementGroup) server {
	s := server{
		ID: dialect.Number(i.ID), Name: dialect.OtherName(i.Meta), Status: serverStatus[i.State], Created: i.CreatedAt,
		PublicNet:  serverPublicNet{FloatingIPs: []int64{}, Firewalls: []struct{}{}},
		PrivateNet: []serverPrivateNet{}, ServerType: serverTypeOf(t), Locked: instanceBusy(i.State),
		Location: locationOf(i.Zone, i.Region), Labels: dialect.Visible(i.Labels), Volumes: volumes,
		PlacementGroup: group, LoadBalancers: []int64{},
		Protection: serverProtection{Delete: protected(i.Meta), Rebuild: protected(i.Meta)},
	}
	if volumes == nil {
		s.Volumes = []int64{}
	}
	public := i.InternalIP()
	for _, a := range i.Addresses {
		six := strings.Contains(a.Address, ":")
		if a.Type == cloudsim.AddressExternal && !six {
			public = a.Address
		}
		if six && a.Type != cloudsim.AddressHostname && s.PublicNet.IPv6 == nil {
			s.PublicNet.IPv6 = &serverIPv6{ID: s.ID, IP: a.Address + "/128", DNSPtr: []struct{}{}}
		}
	}
	if public != "" && !strings.Contains(public, ":") {
		s.PublicNet.IPv4 = &serverIPv4{ID: s.ID, IP: public}
	}
	for _, n := range privateNetworks(i) {
		s.PrivateNet = append(s.PrivateNet, serverPrivateNet{Network: dialect.Number(n), IP: addressIn(i, n), AliasIPs: []string{}})
	}
	if name := i.Labels[labelImage]; name != "" {
		for _, img := range systemImages() {
			if *img.Name == name {
				s.Image = &img
			}
		}
	}
	return s
}

func statusOfServer(i cloudsim.Instance) string { return serverStatus[i.State] }

// serversOf returns the instances on one page in the format of Hetzner's servers. It reads the
// disks of all instances with one filter. Therefore the parameter all must contain at most
// cloudsim.MaxInstancesInFilter instances. A page never exceeds this limit, because maxPerPage is
// lower.
func (a *api) serversOf(r *dialect.Request, all []cloudsim.Instance) ([]server, error) {
	if len(all) == 0 {
		return nil, nil
	}
	types, err := a.types.get(r)
	if err != nil {
		return nil, err
	}
	var attached cloudsim.ListOptions
	for _, i := range all {
		attached.Instances = append(attached.Instances, i.ID)
	}
	disks, _, err := cloudsim.All(r.Context(), r.Cloud.ListDisks, attached)
	if err != nil {
		return nil, err
	}
	volumes := map[cloudsim.InstanceID][]int64{}
	for _, d := range disks {
		for _, at := range d.Attachments {
			volumes[at.Instance] = append(volumes[at.Instance], dialect.Number(d.ID))
		}
	}
	groups, err := groupsOf(r, all)
	if err != nil {
		return nil, err
	}
	out := make([]server, 0, len(all))
	for _, i := range all {
		t, ok := types[i.Type]
		if !ok {
			t.Name = i.Type // the cache does not contain this new type yet
		}
		out = append(out, serverOf(i, t, volumes[i.ID], groups[i.Labels[labelPlacementGroup]]))
	}
	return out, nil
}

func getInstance(r *dialect.Request) (cloudsim.Instance, error) {
	id, err := id[cloudsim.InstanceID](r, prefixInstance)
	if err != nil {
		return cloudsim.Instance{}, err
	}
	return r.Cloud.GetInstance(r.Context(), id)
}

func (a *api) showServer(r *dialect.Request, i cloudsim.Instance) (int, any, error) {
	all, err := a.serversOf(r, []cloudsim.Instance{i})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"server": all[0]}, nil
}

func (a *api) getServer(r *dialect.Request) (int, any, error) {
	i, err := getInstance(r)
	if err != nil {
		return 0, nil, err
	}
	return a.showServer(r, i)
}

type createServer struct {
	Name             string             `json:"name"`
	ServerType       idOrName           `json:"server_type"`
	Image            idOrName           `json:"image"`
	Location         string             `json:"location"`
	Datacenter       string             `json:"datacenter"`
	SSHKeys          []idOrName         `json:"ssh_keys"`
	UserData         string             `json:"user_data"`
	StartAfterCreate *bool              `json:"start_after_create"`
	Labels           *map[string]string `json:"labels"`
	Automount        *bool              `json:"automount"`
	Volumes          []int64            `json:"volumes"`
	Networks         []int64            `json:"networks"`
	Firewalls        []struct {
		Firewall int64 `json:"firewall"`
	} `json:"firewalls"`
	PlacementGroup *int64           `json:"placement_group"`
	PublicNet      *createPublicNet `json:"public_net"`
}

type createPublicNet struct {
	EnableIPv4 *bool  `json:"enable_ipv4"`
	EnableIPv6 *bool  `json:"enable_ipv6"`
	IPv4       *int64 `json:"ipv4"`
	IPv6       *int64 `json:"ipv6"`
}

func (c createServer) checkSupported() error {
	off := func(b *bool) bool { return b != nil && !*b }
	for _, f := range []struct {
		given        bool
		feature, why string
	}{
		{off(c.StartAfterCreate), "start_after_create with the value false", "stop the server after its creation"},
		{len(c.Volumes) > 0, "the field volumes", "attach volumes after the creation of the server"},
		{len(c.Firewalls) > 0, "the field firewalls", noFirewalls},
		{len(c.Networks) > 1, "a new server with more than one network", "attach the server to the other networks after its creation"},
		{c.PublicNet != nil && off(c.PublicNet.EnableIPv4), "public_net without IPv4", "each server has an IPv4 address"},
		{c.PublicNet != nil && (c.PublicNet.IPv4 != nil && *c.PublicNet.IPv4 != 0 || c.PublicNet.IPv6 != nil && *c.PublicNet.IPv6 != 0), "a choice of primary IPs", "the cloud chooses the addresses"},
	} {
		if f.given {
			return dialect.Unsupported{What: f.feature, Why: f.why}
		}
	}
	return nil
}

func (a *api) createServer(r *dialect.Request) (int, any, error) {
	in, err := listZones(r)
	if err != nil {
		return 0, nil, err
	}
	var c createServer
	if err := r.Decode(&c); err != nil {
		return 0, nil, err
	}
	if err := c.checkSupported(); err != nil {
		return 0, nil, err
	}
	types, err := a.types.get(r)
	if err != nil {
		return 0, nil, err
	}
	req, group, err := newServer(r, c, in, types)
	if err != nil {
		return 0, nil, err
	}
	i, err := r.Cloud.CreateInstance(r.Context(), req)
	if err != nil {
		return 0, nil, err
	}
	// After the creation, the dialect must not call the cloud. If a call failed, the client would
	// not get the id of the new server.
	if group != nil {
		group.Servers = append(group.Servers, dialect.Number(i.ID))
	}
	s := serverOf(i, types[i.Type], nil, group)
	return http.StatusCreated, map[string]any{
		"server": s, "action": lastAction(i.Meta, "create_server", instanceBusy(i.State), resource{s.ID, "server"}),
		"next_actions": []action{}, "root_password": nil,
	}, nil
}

// newServer returns the request to this cloud for a new instance. It also returns the placement
// group of the server, or nil if the server joins no group.
func newServer(r *dialect.Request, c createServer, allZones []cloudsim.Zone, types map[string]cloudsim.InstanceType) (req cloudsim.CreateInstance, group *placementGroup, err error) {
	req.UserData = c.UserData
	if req.Name, req.Labels, err = newName(r, c.Name, c.Labels); err != nil {
		return req, nil, err
	}
	if errs := validation.IsDNS1123Subdomain(strings.ToLower(c.Name)); len(errs) > 0 {
		return req, nil, cloudsim.InvalidField("name", fmt.Sprintf("must be a host name of letters, digits, hyphens and dots, got %.80q", c.Name))
	}
	for name := range types {
		if c.ServerType.refersTo(idOf(name), name) {
			req.Type = name
		}
	}
	if req.Type == "" {
		return req, nil, errUnknown("server_type", c.ServerType)
	}
	image := slices.IndexFunc(systemImages(), func(i image) bool { return c.Image.refersTo(i.ID, *i.Name) })
	if image < 0 {
		return req, nil, errUnknown("image", c.Image)
	}
	req.Labels[labelImage] = *systemImages()[image].Name
	if req.Zone, err = c.zone(allZones); err != nil {
		return req, nil, err
	}
	if len(c.Networks) > 0 {
		req.Network = dialect.ID[cloudsim.NetworkID](prefixNetwork, c.Networks[0])
	} else {
		req.Labels[labelPublicOnly] = "true"
	}
	if c.PlacementGroup != nil && *c.PlacementGroup != 0 {
		var g placementGroup
		if req.Labels[labelPlacementGroup], g, err = joinPlacementGroup(r, "placement_group", *c.PlacementGroup); err != nil {
			return req, nil, err
		}
		group = &g
	}
	return req, group, findSSHKeys(r, c.SSHKeys)
}

// zone returns the zone for a new server. If the request contains neither a location nor a
// datacenter, the server gets the first zone. Hetzner's API also chooses a location in this case.
func (c createServer) zone(allZones []cloudsim.Zone) (zone string, err error) {
	switch {
	case c.Datacenter != "" && c.Location != "":
		return "", cloudsim.InvalidField("datacenter", "must be absent if the request has a location")
	case c.Datacenter != "":
		for _, z := range allZones {
			if id, name := datacenterOf(z.Name, z.Region).key(); c.Datacenter == name || c.Datacenter == fmt.Sprint(id) {
				return z.Name, nil
			}
		}
		return "", errUnknown("datacenter", c.Datacenter)
	case c.Location == "" && len(allZones) > 0:
		return allZones[0].Name, nil
	}
	zone, _, err = findLocation(allZones, c.Location)
	return zone, err
}

func findLocation(allZones []cloudsim.Zone, locationRef string) (zone, region string, err error) {
	for _, z := range allZones {
		if z.Name == locationRef || fmt.Sprint(idOf(z.Name)) == locationRef {
			return z.Name, z.Region, nil
		}
	}
	return "", "", errUnknown("location", locationRef)
}

func (a *api) updateServer(r *dialect.Request) (int, any, error) {
	i, err := getInstance(r)
	if err != nil {
		return 0, nil, err
	}
	var u updateResource
	if err := r.Decode(&u); err != nil {
		return 0, nil, err
	}
	all, err := u.newLabels(i.Meta)
	if err != nil {
		return 0, nil, err
	}
	if i, err = r.Cloud.UpdateInstance(r.Context(), i.ID, cloudsim.UpdateInstance{Labels: all}, i.Revision); err != nil {
		return 0, nil, err
	}
	return a.showServer(r, i)
}

func (a *api) deleteServer(r *dialect.Request) (int, any, error) {
	i, err := getInstance(r)
	if err != nil {
		return 0, nil, err
	}
	if err := checkDeletable(i.Meta); err != nil {
		return 0, nil, err
	}
	if i, err = r.Cloud.DeleteInstance(r.Context(), i.ID); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, actionReply{lastAction(i.Meta, "delete_server", i.State != cloudsim.InstanceTerminated, resource{dialect.Number(i.ID), "server"})}, nil
}

// serverCall returns a call that changes the labels of an instance and answers with an action. The
// call decodes the body into a value of type T, and runs fn on a copy of the labels.
func serverCall[T any](command string, fn func(*dialect.Request, cloudsim.Instance, map[string]string, T) error) call {
	return func(r *dialect.Request) (int, any, error) {
		i, err := getInstance(r)
		if err != nil {
			return 0, nil, err
		}
		var in T
		if err := r.Decode(&in); err != nil {
			return 0, nil, err
		}
		labels := dialect.CloneLabels(i.Labels)
		if err := fn(r, i, labels, in); err != nil {
			return 0, nil, err
		}
		if i, err = r.Cloud.UpdateInstance(r.Context(), i.ID, cloudsim.UpdateInstance{Labels: labels}, i.Revision); err != nil {
			return 0, nil, err
		}
		return actionStarted(lastAction(i.Meta, command, instanceBusy(i.State), resource{dialect.Number(i.ID), "server"}))
	}
}

// powerCall returns a call that changes the state of an instance with changeState. If the instance
// is already in the wanted state, the call changes nothing. While another action runs on the
// instance, the call returns Conflict (see errLocked).
func powerCall(command string, wanted cloudsim.InstanceState, changeState func(*client.Client, context.Context, cloudsim.InstanceID) (cloudsim.Instance, error)) call {
	return func(r *dialect.Request) (int, any, error) {
		i, err := getInstance(r)
		if err != nil {
			return 0, nil, err
		}
		if instanceBusy(i.State) {
			return 0, nil, errLocked("server", serverStatus[i.State])
		}
		if i.State != wanted {
			if i, err = changeState(r.Cloud, r.Context(), i.ID); err != nil {
				return 0, nil, err
			}
		}
		return actionStarted(lastAction(i.Meta, command, instanceBusy(i.State), resource{dialect.Number(i.ID), "server"}))
	}
}
