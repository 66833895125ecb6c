// Package cloudsimdriver is the driver of the conformance checks for the simulated cloud. It uses
// only the public API of the cloud. So it also works for a CCM that calls the cloud through a
// dialect. A dialect is a server that translates the API of another provider.
package cloudsimdriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/conform"
)

const faultPrefix = "conform-"

// Driver implements conform.Driver.
type Driver struct {
	// Cloud is the client with which the driver calls the cloud. The client's token must have the
	// permissions of an administrator, and must not be the token of the CCM.
	Cloud *client.Client
	// Caller is the name of the CCM's service account. Faults disturb only the calls of this
	// account. If Caller is empty, SetFault returns an error.
	Caller string
	// Dialect contains the values that depend on the CCM, such as the format of its provider IDs.
	// If the CCM uses the cloud's own API, only the field Claims is set.
	Dialect
}

var (
	_ conform.Driver   = (*Driver)(nil)
	_ conform.Recorder = (*Driver)(nil)
)

// Capabilities implements conform.Driver. It returns d.Claims together with the capabilities of the
// cloud. If the cloud does not answer, Capabilities returns an error.
func (d *Driver) Capabilities(ctx context.Context) (conform.Capabilities, error) {
	if _, err := d.Cloud.ListZones(ctx, cloudsim.ListOptions{Limit: 1}); err != nil {
		return conform.Capabilities{}, err
	}
	c := d.Claims
	c.Faults = []conform.FaultKind{conform.FaultError, conform.FaultUnauthorized, conform.FaultTimeout, conform.FaultLoseReply, conform.FaultThrottle}
	c.Calls = true
	return c, nil
}

// CreateMachine implements conform.Machines. The default zone is the first zone that the cloud
// lists, and the default type is the first instance type that the cloud lists.
func (d *Driver) CreateMachine(ctx context.Context, m conform.Machine) (conform.Machine, error) {
	if m.Zone == "" {
		zones, err := d.Cloud.ListZones(ctx, cloudsim.ListOptions{Limit: 1})
		if err != nil || len(zones.Items) == 0 {
			return m, errors.Join(err, errors.New("found no zone in the cloud for the new machine"))
		}
		m.Zone = zones.Items[0].Name
	}
	if m.Type == "" {
		types, err := d.Cloud.ListInstanceTypes(ctx, cloudsim.ListOptions{Limit: 1})
		if err != nil || len(types.Items) == 0 {
			return m, errors.Join(err, errors.New("found no instance type in the cloud for the new machine"))
		}
		m.Type = types.Items[0].Name
	}
	labels := map[string]string{conform.LabelRun: m.Run}
	maps.Copy(labels, d.Labels)
	i, err := d.Cloud.CreateInstance(ctx, cloudsim.CreateInstance{Name: m.Name, Zone: m.Zone, Type: m.Type, Labels: labels})
	if err == nil {
		i, err = d.awaitSettled(ctx, i)
	}
	if err != nil {
		return m, err
	}
	return d.machine(i), nil
}

// awaitSettled waits until the last operation on the instance has ended, and returns the
// instance.
func (d *Driver) awaitSettled(ctx context.Context, i cloudsim.Instance) (cloudsim.Instance, error) {
	op, err := d.Cloud.WaitOperation(ctx, i.Operation)
	if err != nil {
		return i, err
	}
	if op.Error != nil {
		return i, fmt.Errorf("operation %s: %s", op.ID, op.Error.Detail)
	}
	return d.Cloud.GetInstance(ctx, i.ID)
}

func (d *Driver) machine(i cloudsim.Instance) conform.Machine {
	m := conform.Machine{Name: i.Name, Zone: i.Zone, Region: i.Region, Type: i.Type, ProviderID: i.ProviderID, Running: i.State == cloudsim.InstanceRunning, Run: i.Labels[conform.LabelRun]}
	if d.ProviderID != nil {
		m.ProviderID = d.ProviderID(i)
	}
	types := map[cloudsim.InstanceAddressType]string{cloudsim.AddressInternal: "InternalIP", cloudsim.AddressExternal: "ExternalIP"}
	for _, a := range i.Addresses {
		if t := types[a.Type]; t != "" {
			m.Addresses = append(m.Addresses, conform.Address{Type: t, Address: a.Address})
		}
	}
	return m
}

// ListMachines implements conform.Machines.
func (d *Driver) ListMachines(ctx context.Context) ([]conform.Machine, error) {
	all, _, err := cloudsim.All(ctx, d.Cloud.ListInstances, cloudsim.ListOptions{})
	machines := []conform.Machine{}
	for _, i := range all {
		if m := d.machine(i); m.Run != "" {
			machines = append(machines, m)
		}
	}
	return machines, err
}

func (d *Driver) instance(ctx context.Context, name string) (cloudsim.Instance, error) {
	all, err := d.Cloud.ListInstances(ctx, cloudsim.ListOptions{Name: name})
	if err != nil {
		return cloudsim.Instance{}, err
	}
	if len(all.Items) == 0 {
		return cloudsim.Instance{}, fmt.Errorf("instance %q: %w", name, conform.ErrNotFound)
	}
	return all.Items[0], nil
}

// GetMachine implements conform.Machines.
func (d *Driver) GetMachine(ctx context.Context, name string) (conform.Machine, error) {
	i, err := d.instance(ctx, name)
	return d.machine(i), err
}

// runOperation calls the function verb with the ID of the named instance. It then waits for the
// end of the operation.
func (d *Driver) runOperation(ctx context.Context, name string, verb func(context.Context, cloudsim.InstanceID) (cloudsim.Instance, error)) error {
	i, err := d.instance(ctx, name)
	if err != nil {
		return err
	}
	if i, err = verb(ctx, i.ID); err == nil {
		_, err = d.awaitSettled(ctx, i)
	}
	return err
}

// StopMachine implements conform.Machines.
func (d *Driver) StopMachine(ctx context.Context, name string) error {
	return d.runOperation(ctx, name, d.Cloud.StopInstance)
}

// StartMachine implements conform.Machines.
func (d *Driver) StartMachine(ctx context.Context, name string) error {
	return d.runOperation(ctx, name, d.Cloud.StartInstance)
}

// DeleteMachine implements conform.Machines. It returns when the instance does not exist any more.
func (d *Driver) DeleteMachine(ctx context.Context, name string) error {
	err := d.runOperation(ctx, name, d.Cloud.DeleteInstance)
	if errors.Is(err, conform.ErrNotFound) || errors.Is(err, cloudsim.NotFound) {
		return nil
	}
	return err
}

func (d *Driver) instanceNames(ctx context.Context) (map[cloudsim.InstanceID]string, error) {
	all, _, err := cloudsim.All(ctx, d.Cloud.ListInstances, cloudsim.ListOptions{})
	names := map[cloudsim.InstanceID]string{}
	for _, i := range all {
		names[i.ID] = i.Name
	}
	return names, err
}

// ListLoadBalancers implements conform.Network.
func (d *Driver) ListLoadBalancers(ctx context.Context) ([]conform.LoadBalancer, error) {
	names, err := d.instanceNames(ctx)
	if err != nil {
		return nil, err
	}
	all, _, err := cloudsim.All(ctx, d.Cloud.ListLoadBalancers, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	result := []conform.LoadBalancer{}
	for _, lb := range all {
		c := conform.LoadBalancer{
			ID: string(lb.ID), SourceRanges: lb.SourceRanges, ClientIPAffinity: lb.Affinity == cloudsim.AffinityClientIP, Internal: lb.Scheme == cloudsim.SchemeInternal,
		}
		if h := lb.Check(); h.Protocol == cloudsim.HealthHTTP || h.Protocol == cloudsim.HealthHTTPS {
			c.HealthCheckPort = int32(h.Port) //nolint:gosec // the cloud limits ports to 65535
		}
		for _, a := range lb.Addresses {
			c.Addresses = append(c.Addresses, a.IP)
		}
		if d.HostName != nil {
			c.Addresses = append(c.Addresses, d.HostName(lb))
		}
		for _, l := range lb.Listeners {
			c.Ports = append(c.Ports, conform.Port{Protocol: strings.ToUpper(string(l.Protocol)), Port: int32(l.Port), NodePort: int32(l.TargetPort)}) //nolint:gosec // the cloud limits ports to 65535
		}
		for _, t := range lb.Targets {
			c.Machines = append(c.Machines, names[t.Instance])
		}
		result = append(result, c)
	}
	return result, nil
}

// DeleteLoadBalancer implements conform.Network. It returns when the load balancer is deleted.
func (d *Driver) DeleteLoadBalancer(ctx context.Context, id string) error {
	lb, err := d.Cloud.DeleteLoadBalancer(ctx, cloudsim.LoadBalancerID(id))
	if err != nil {
		return notFound(err)
	}
	_, err = d.Cloud.WaitOperation(ctx, lb.Operation)
	return notFound(err)
}

func notFound(err error) error {
	if errors.Is(err, cloudsim.NotFound) {
		return fmt.Errorf("%w: %w", conform.ErrNotFound, err)
	}
	return err
}

// ListRoutes implements conform.Network. It omits routes that the cloud is deleting.
func (d *Driver) ListRoutes(ctx context.Context) ([]conform.Route, error) {
	names, err := d.instanceNames(ctx)
	if err != nil {
		return nil, err
	}
	all, _, err := cloudsim.All(ctx, d.Cloud.ListRoutes, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	result := []conform.Route{}
	for _, r := range all {
		if r.State != cloudsim.RouteDeleting {
			result = append(result, conform.Route{ID: string(r.ID), CIDR: r.Destination, Machine: names[r.NextHop]})
		}
	}
	return result, nil
}

// CreateRoute implements conform.Network.
func (d *Driver) CreateRoute(ctx context.Context, r conform.Route) (conform.Route, error) {
	hop, err := d.instance(ctx, r.Machine)
	if err != nil {
		return r, err
	}
	made, err := d.Cloud.CreateRoute(ctx, cloudsim.CreateRoute{Name: r.Machine + "-conform", Destination: r.CIDR, NextHop: hop.ID})
	r.ID = string(made.ID)
	return r, err
}

// DeleteRoute implements conform.Network. It returns when the route is deleted.
func (d *Driver) DeleteRoute(ctx context.Context, id string) error {
	r, err := d.Cloud.DeleteRoute(ctx, cloudsim.RouteID(id))
	if err != nil {
		return notFound(err)
	}
	_, err = d.Cloud.WaitOperation(ctx, r.Operation)
	return notFound(err)
}

// effectOf contains the effect in the cloud for each kind of fault that the driver can inject.
var effectOf = map[conform.FaultKind]cloudsim.FaultEffect{
	conform.FaultError:        {Type: cloudsim.FaultError, Kind: "internal"},
	conform.FaultUnauthorized: {Type: cloudsim.FaultError, Kind: "unauthenticated"},
	conform.FaultTimeout:      {Type: cloudsim.FaultHang},
	conform.FaultLoseReply:    {Type: cloudsim.FaultLoseReply},
	conform.FaultThrottle:     {Type: cloudsim.FaultThrottle},
}

// SetFault implements conform.Faults.
func (d *Driver) SetFault(ctx context.Context, f conform.Fault) error {
	effect, ok := effectOf[f.Kind]
	if !ok {
		return fmt.Errorf("fault %q: %w", f.Kind, conform.ErrUnsupported)
	}
	if d.Caller == "" {
		return errors.New("the driver needs the name of the CCM's service account, so that a fault does not disturb the driver itself: set --ccm-account")
	}
	if err := d.ClearFault(ctx); err != nil {
		return err
	}
	operations := []string{"*"}
	if f.Call != "" {
		operations = []string{f.Call}
	} else if f.Writes {
		targets, err := d.Cloud.FaultTargets(ctx)
		if err != nil {
			return err
		}
		operations = nil
		for _, t := range targets {
			if isWrite(t.Operation) {
				operations = append(operations, t.Operation)
			}
		}
	}
	for _, o := range operations {
		if _, err := d.Cloud.CreateFault(ctx, cloudsim.CreateFault{
			Name: faultPrefix + strings.ToLower(strings.NewReplacer("*", "all", ".", "-").Replace(o)),
			FaultSpec: cloudsim.FaultSpec{
				Match:  cloudsim.FaultMatch{Operation: o, Caller: d.Caller},
				When:   cloudsim.FaultWhen{Max: uint64(max(f.Count, 0)), Skip: uint64(max(f.Skip, 0))}, //nolint:gosec // not negative
				Effect: effect,
			},
		}); err != nil {
			return err
		}
	}
	return nil
}

// ClearFault implements conform.Faults.
func (d *Driver) ClearFault(ctx context.Context) error {
	all, _, err := cloudsim.All(ctx, d.Cloud.ListFaults, cloudsim.ListOptions{})
	for _, f := range all {
		if strings.HasPrefix(f.Name, faultPrefix) {
			err = errors.Join(err, d.Cloud.DeleteFault(ctx, f.ID))
		}
	}
	return err
}

// isWrite reports whether an operation changes the objects that a CCM manages.
func isWrite(operation string) bool {
	noun, verb, _ := strings.Cut(operation, ".")
	return (noun == "loadBalancers" || noun == "routes" || noun == "addresses") && !reads[verb]
}

// reads contains the verbs of operations that do not change the cloud. For example, the operation
// routes.list has the verb list.
var reads = map[string]bool{"get": true, "list": true, "watch": true, "stats": true, "whoami": true}

// Calls implements conform.Faults.
func (d *Driver) Calls(ctx context.Context) (map[string]conform.Count, error) {
	bill, err := d.Cloud.Bill(ctx, cloudsim.AuditOptions{Caller: d.Caller})
	if err != nil {
		return nil, err
	}
	all := map[string]conform.Count{}
	for _, r := range bill.Rows {
		all[r.Operation] = conform.Count{Calls: int(r.Calls), Writes: isWrite(r.Operation)} //nolint:gosec // far below the limit
	}
	return all, nil
}

const maxRecording = 1000

// Recording implements conform.Recorder. It returns the newest calls in the cloud's audit trail.
// If a fault disturbed a call, Call.Fault contains the ID of this fault in the cloud.
func (d *Driver) Recording(ctx context.Context, after time.Time) ([]conform.Call, error) {
	trail, err := d.Cloud.Audit(ctx, cloudsim.AuditOptions{Caller: d.Caller, Since: after, Limit: maxRecording})
	all := []conform.Call{}
	for _, a := range trail.Items {
		c := conform.Call{
			At: a.Time, Name: a.Operation, Request: a.Target, Result: a.Outcome, Fault: conform.FaultKind(a.Fault),
			Took: time.Duration(a.Millis * float64(time.Millisecond)),
		}
		if a.DialectCall != "" {
			c.Name = a.DialectCall
		}
		all = append(all, c)
	}
	return all, err
}
