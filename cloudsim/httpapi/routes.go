package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// registerRoutes registers all routes of the API. The handlers for a kind of resource, such as
// disks, are in this file or in a Go file of their own, such as disk.go.
func (a *api) registerRoutes() {
	e := a.engine

	handle(a, op{id: "projects.create", method: post, path: "/v1/projects", summary: "Create a project", status: http.StatusCreated, access: engine.Admin, idemKey: true}, a.createProject)
	lists(a, "projects", "/v1/projects", "projects", engine.Read, e.ListProjects)
	gets(a, "projects", "/v1/projects/{id}", "a project", engine.Read, e.GetProject, revOf[cloudsim.Project])
	deletes(a, "projects", "/v1/projects/{id}", "Delete a project and its default network, service accounts, access keys, role bindings, workload trusts, tokens and quotas. The call fails if the project owns other resources", engine.Admin, e.DeleteProject)

	handle(a, op{id: "tokens.create", method: post, path: "/v1/tokens", summary: "Create a token. Only this response contains the secret", status: http.StatusCreated, access: engine.Manage}, a.createToken)
	lists(a, "tokens", "/v1/tokens", "tokens, without their secrets", engine.Manage, e.ListTokens)
	gets(a, "tokens", "/v1/tokens/{id}", "a token, without its secret", engine.Manage, e.GetToken, revOf[cloudsim.Token])
	deletes(a, "tokens", "/v1/tokens/{id}", "Revoke a token at once", engine.Manage, e.DeleteToken)
	a.serviceAccountRoutes()
	a.accessKeyRoutes()
	a.roleRoutes()
	a.quotaRoutes()
	a.billRoutes()

	lists(a, "regions", "/v1/regions", "regions", engine.Read, e.ListRegions)
	gets(a, "regions", "/v1/regions/{id}", "a region by name", engine.Read, e.GetRegion, revOf[cloudsim.Region])
	lists(a, "zones", "/v1/zones", "zones", engine.Read, e.ListZones)
	gets(a, "zones", "/v1/zones/{id}", "a zone by name", engine.Read, e.GetZone, revOf[cloudsim.Zone])
	lists(a, "instanceTypes", "/v1/instance-types", "instance types", engine.Read, e.ListInstanceTypes)
	gets(a, "instanceTypes", "/v1/instance-types/{id}", "an instance type by name", engine.Read, e.GetInstanceType, revOf[cloudsim.InstanceType])

	handle(a, op{id: "instances.create", method: post, path: "/v1/instances", summary: "Create an instance", status: http.StatusCreated, access: engine.Write, idemKey: true}, a.createInstance)
	lists(a, "instances", "/v1/instances", "instances", engine.Read, e.ListInstances)
	gets(a, "instances", "/v1/instances/{id}", "an instance", engine.Read, e.GetInstance, revOf[cloudsim.Instance])
	handle(a, op{id: "instances.update", method: http.MethodPut, path: "/v1/instances/{id}", summary: "Replace an instance's labels", access: engine.Write}, a.updateInstance)
	act(a, "instances.start", post, "/v1/instances/{id}/start", "Begin to start a stopped instance", e.StartInstance)
	act(a, "instances.stop", post, "/v1/instances/{id}/stop", "Begin to stop an instance. The instance keeps its addresses", e.StopInstance)
	act(a, "instances.reboot", post, "/v1/instances/{id}/reboot", "Begin to reboot an instance", e.RebootInstance)
	handle(a, op{id: "instances.crash", method: post, path: "/v1/instances/{id}/crash", summary: "Cut the power of a running instance. The instance keeps the state running, but is off until its next operation, such as a reboot", access: engine.Write},
		func(ctx context.Context, in *ByID) (*body[cloudsim.Instance], error) {
			v, err := e.CrashInstance(ctx, cloudsim.InstanceID(in.ID))
			return answer(v, v.Revision, err)
		})
	handle(a, op{id: "instances.attachNetwork", method: post, path: "/v1/instances/{id}/attach-network", summary: "Give an instance addresses in an additional network", access: engine.Write},
		func(ctx context.Context, in *askInput[cloudsim.AttachNetwork]) (*body[cloudsim.Instance], error) {
			v, err := e.AttachNetwork(ctx, cloudsim.InstanceID(in.ID), in.Body)
			return answer(v, v.Revision, err)
		})
	handle(a, op{id: "instances.detachNetwork", method: post, path: "/v1/instances/{id}/detach-network", summary: "Release the addresses of an instance in an additional network", access: engine.Write},
		func(ctx context.Context, in *askInput[cloudsim.DetachNetwork]) (*body[cloudsim.Instance], error) {
			v, err := e.DetachNetwork(ctx, cloudsim.InstanceID(in.ID), in.Body)
			return answer(v, v.Revision, err)
		})
	handle(a, op{id: "instances.reportDevices", method: http.MethodPut, path: "/v1/instances/{id}/devices", summary: "Report the devices that the machine of an instance has; for the hypervisor that runs the machine", access: engine.Write},
		func(ctx context.Context, in *askInput[cloudsim.ReportDevices]) (*body[cloudsim.Instance], error) {
			v, err := e.ReportDevices(ctx, cloudsim.InstanceID(in.ID), in.Body)
			return answer(v, v.Revision, err)
		})
	handle(a, op{id: "instances.forgetDevices", method: http.MethodDelete, path: "/v1/instances/{id}/devices", summary: "End the reports about the devices of an instance's machine, and complete the work that waits for them", access: engine.Write},
		func(ctx context.Context, in *ByID) (*body[cloudsim.Instance], error) {
			v, err := e.ForgetDevices(ctx, cloudsim.InstanceID(in.ID))
			return answer(v, v.Revision, err)
		})
	act(a, "instances.delete", http.MethodDelete, "/v1/instances/{id}", "Begin to terminate an instance. The instance exists until the operation ends", e.DeleteInstance)

	a.noticeRoutes()
	a.identityRoutes()
	a.signingKeyRoutes()
	a.registryRoutes()
	a.workloadTrustRoutes()
	a.networkRoutes()
	a.routeRoutes()
	a.diskRoutes()
	a.snapshotRoutes()
	a.recordRoutes()
	a.metadataTreeRoutes()

	handle(a, op{id: "addresses.create", method: post, path: "/v1/addresses", summary: "Reserve an address for load balancers", status: http.StatusCreated, access: engine.Write, idemKey: true}, a.createAddress)
	lists(a, "addresses", "/v1/addresses", "addresses", engine.Read, e.ListAddresses)
	gets(a, "addresses", "/v1/addresses/{id}", "an address", engine.Read, e.GetAddress, revOf[cloudsim.Address])
	deletes(a, "addresses", "/v1/addresses/{id}", "Release an unused address", engine.Write, e.DeleteAddress)

	handle(a, op{id: "loadBalancers.create", method: post, path: "/v1/load-balancers", summary: "Create a load balancer", status: http.StatusCreated, access: engine.Write, idemKey: true}, a.createLoadBalancer)
	lists(a, "loadBalancers", "/v1/load-balancers", "load balancers", engine.Read, e.ListLoadBalancers)
	a.loadBalancerStatsRoute()
	gets(a, "loadBalancers", "/v1/load-balancers/{id}", "a load balancer", engine.Read, e.GetLoadBalancer, revOf[cloudsim.LoadBalancer])
	handle(a, op{id: "loadBalancers.update", method: http.MethodPut, path: "/v1/load-balancers/{id}", summary: "Replace a load balancer's labels, listeners, targets, health check and rules, and change IP families and reserved addresses", status: http.StatusAccepted, access: engine.Write}, a.updateLoadBalancer)
	handle(a, op{id: "loadBalancers.setTargets", method: http.MethodPut, path: "/v1/load-balancers/{id}/targets", summary: "Replace the targets of a load balancer. Listeners with their own targets do not change", status: http.StatusAccepted, access: engine.Write}, a.setTargets)
	handle(a, op{id: "loadBalancers.stats", method: http.MethodGet, path: "/v1/load-balancers/{id}/stats", summary: "Read the traffic counters of a load balancer, by listener and by target", access: engine.Read}, a.loadBalancerStats)
	act(a, "loadBalancers.delete", http.MethodDelete, "/v1/load-balancers/{id}", "Begin to delete a load balancer", e.DeleteLoadBalancer)

	lists(a, "operations", "/v1/operations", "operations; the cloud keeps finished operations for a day", engine.Read, e.ListOperations)
	handle(a, op{id: "operations.get", method: http.MethodGet, path: "/v1/operations/{id}", summary: "Read an operation, or wait for its end", access: engine.Read}, a.getOperation)
	act(a, "operations.cancel", post, "/v1/operations/{id}/cancel", "Cancel an operation that has not ended. Not all operations can be cancelled: for example, a deletion cannot", e.CancelOperation)

	a.clockRoutes()
	a.holdRoutes()
	a.whyRoutes()
	a.stateRoutes()

	handle(a, op{id: "faults.create", method: post, path: "/v1/faults", summary: "Create a fault, which changes matching calls", status: http.StatusCreated, access: engine.Admin, idemKey: true}, a.createFault)
	lists(a, "faults", "/v1/faults", "faults with their counters", engine.Admin, e.ListFaults)
	handle(a, op{id: "faults.targets", method: http.MethodGet, path: "/v1/faults/targets", summary: "List the operations that faults can change", access: engine.Admin}, a.faultTargets)
	handle(a, op{id: "faults.presets", method: http.MethodGet, path: "/v1/faults/presets", summary: "List the fault presets, least severe first", access: engine.Read}, a.faultPresets)
	gets(a, "faults", "/v1/faults/{id}", "a fault with its counters", engine.Admin, e.GetFault, revOf[cloudsim.Fault])
	deletes(a, "faults", "/v1/faults/{id}", "Delete a fault", engine.Admin, e.DeleteFault)

	handle(a, op{id: "events.list", method: http.MethodGet, path: "/v1/events", summary: "List a page of events after a revision", access: engine.Read}, a.listEvents)
	handle(a, op{id: "events.newest", method: http.MethodGet, path: "/v1/events/newest", summary: "List a page of the newest events, newest first", access: engine.Read}, a.listNewestEvents)
	handle(a, op{id: "events.watch", method: http.MethodGet, path: watchPath, summary: "Stream the events after a revision, one JSON document per line", access: engine.Read}, a.watchEvents)
}

const post = http.MethodPost

func tagOf(id string) string { noun, _, _ := strings.Cut(id, "."); return noun }

// ByID is a request for one resource. ByID is exported because huma reads only exported
// embedded structs.
type ByID struct {
	ID string `path:"id" maxLength:"128" doc:"Id of the resource"`
}

func (b ByID) target() string { return b.ID }

type listInput struct {
	Name     string   `query:"name" maxLength:"255" doc:"Only the resource with exactly this name"`
	Label    []string `query:"label,explode" maxItems:"16" doc:"Only resources with this label, as key=value; may be repeated"`
	Zone     string   `query:"zone" maxLength:"63" doc:"Only resources in this zone"`
	Source   string   `query:"source" maxLength:"128" doc:"Only resources created from the disk or snapshot with this id"`
	Network  string   `query:"network" maxLength:"128" doc:"Only resources in the network of this id"`
	Instance []string `query:"instance,explode" maxItems:"100" doc:"Only disks that are attached to the instance of this id; may be repeated"`
	Kind     string   `query:"kind" maxLength:"63" doc:"Only records of this kind"`
	Target   string   `query:"target" maxLength:"128" doc:"Only operations on the resource with this id"`
	State    string   `query:"state" maxLength:"63" doc:"Only operations in this state"`
	After    string   `query:"after" maxLength:"128" doc:"Value of next in the previous page"`
	Limit    int      `query:"limit" minimum:"0" maximum:"5000" doc:"Page size; 0 or absent for 500"`
}

func (in listInput) options() (cloudsim.ListOptions, error) {
	o := cloudsim.ListOptions{Name: in.Name, Zone: in.Zone, Source: in.Source, Network: cloudsim.NetworkID(in.Network), Kind: in.Kind, Target: in.Target, State: in.State, After: in.After, Limit: in.Limit}
	for _, id := range in.Instance {
		o.Instances = append(o.Instances, cloudsim.InstanceID(id))
	}
	for _, l := range in.Label {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return o, cloudsim.InvalidField("query.label", "must be key=value")
		}
		if other, ok := o.Labels[k]; ok && other != v {
			return o, cloudsim.InvalidField("query.label", fmt.Sprintf("has two values for the key %q", k[:min(len(k), 80)]))
		}
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[k] = v
	}
	return o, nil
}

func lists[T any](a *api, noun, path, object string, access engine.Access, page func(context.Context, cloudsim.ListOptions) (cloudsim.List[T], error)) {
	handle(a, op{id: noun + ".list", method: http.MethodGet, path: path, summary: "List " + object, access: access},
		func(ctx context.Context, in *listInput) (*listed[T], error) {
			o, err := in.options()
			if err != nil {
				return nil, err
			}
			l, err := page(ctx, o)
			if err != nil {
				return nil, err
			}
			return &listed[T]{l}, nil
		})
}

func gets[T any, ID ~string](a *api, noun, path, object string, access engine.Access, get func(context.Context, ID) (T, error), rev func(T) uint64) {
	handle(a, op{id: noun + ".get", method: http.MethodGet, path: path, summary: "Read " + object, access: access},
		func(ctx context.Context, in *ByID) (*body[T], error) {
			v, err := get(ctx, ID(in.ID))
			return answer(v, rev(v), err)
		})
}

func deletes[ID ~string](a *api, noun, path, summary string, access engine.Access, del func(context.Context, ID) error) {
	handle(a, op{id: noun + ".delete", method: http.MethodDelete, path: path, summary: summary, status: http.StatusNoContent, access: access},
		func(ctx context.Context, in *ByID) (*none, error) { return nil, del(ctx, ID(in.ID)) })
}

func act[T cloudsim.Resource, ID ~string](a *api, id, method, path, summary string, act func(context.Context, ID) (T, error)) {
	handle(a, op{id: id, method: method, path: path, summary: summary, status: http.StatusAccepted, access: engine.Write},
		func(ctx context.Context, in *ByID) (*body[T], error) {
			v, err := act(ctx, ID(in.ID))
			return answer(v, revOf(v), err)
		})
}

func revOf[T cloudsim.Resource](v T) uint64 { return v.Head().Revision }

func (a *api) createProject(ctx context.Context, in *create[cloudsim.CreateProject]) (*body[cloudsim.Project], error) {
	v, err := a.engine.CreateProject(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) createToken(ctx context.Context, in *create[cloudsim.CreateToken]) (*body[cloudsim.Token], error) {
	v, err := a.engine.CreateToken(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) createInstance(ctx context.Context, in *create[cloudsim.CreateInstance]) (*body[cloudsim.Instance], error) {
	v, err := a.engine.CreateInstance(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) createAddress(ctx context.Context, in *create[cloudsim.CreateAddress]) (*body[cloudsim.Address], error) {
	v, err := a.engine.CreateAddress(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) createLoadBalancer(ctx context.Context, in *create[cloudsim.CreateLoadBalancer]) (*body[cloudsim.LoadBalancer], error) {
	v, err := a.engine.CreateLoadBalancer(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) updateInstance(ctx context.Context, in *struct {
	ByID
	IfMatch string `header:"If-Match" doc:"ETag of the expected revision. The call fails if the resource has another revision"`
	Body    cloudsim.UpdateInstance
}) (*body[cloudsim.Instance], error) {
	rev, err := revision(in.IfMatch)
	if err != nil {
		return nil, err
	}
	v, err := a.engine.UpdateInstance(ctx, cloudsim.InstanceID(in.ID), in.Body, rev)
	return answer(v, v.Revision, err)
}

func (a *api) updateLoadBalancer(ctx context.Context, in *struct {
	ByID
	IfMatch string `header:"If-Match" doc:"ETag of the expected revision. The call fails if the resource has another revision"`
	Body    cloudsim.UpdateLoadBalancer
}) (*body[cloudsim.LoadBalancer], error) {
	rev, err := revision(in.IfMatch)
	if err != nil {
		return nil, err
	}
	v, err := a.engine.UpdateLoadBalancer(ctx, cloudsim.LoadBalancerID(in.ID), in.Body, rev)
	return answer(v, v.Revision, err)
}

func (a *api) setTargets(ctx context.Context, in *struct {
	ByID
	IfMatch string `header:"If-Match" doc:"ETag of the expected revision. The call fails if the resource has another revision"`
	Body    cloudsim.SetTargets
}) (*body[cloudsim.LoadBalancer], error) {
	rev, err := revision(in.IfMatch)
	if err != nil {
		return nil, err
	}
	v, err := a.engine.SetLoadBalancerTargets(ctx, cloudsim.LoadBalancerID(in.ID), in.Body, rev)
	return answer(v, v.Revision, err)
}

// loadBalancerStatsRoute registers the call that lists the counters of all load balancers.
// The API must register this route before /v1/load-balancers/{id}, because the router uses
// the first route that matches the path.
func (a *api) loadBalancerStatsRoute() {
	handle(a, op{id: "loadBalancers.listStats", method: http.MethodGet, path: "/v1/load-balancers/stats", summary: "List the traffic counters of all load balancers that forward connections", access: engine.Read},
		func(ctx context.Context, in *listInput) (*listed[cloudsim.LoadBalancerTraffic], error) {
			o, err := in.options()
			if err != nil {
				return nil, err
			}
			l, err := a.engine.ListLoadBalancerStats(ctx, o)
			if err != nil {
				return nil, err
			}
			return &listed[cloudsim.LoadBalancerTraffic]{l}, nil
		})
}

func (a *api) loadBalancerStats(ctx context.Context, in *ByID) (*struct{ Body cloudsim.LoadBalancerStats }, error) {
	v, err := a.engine.LoadBalancerStats(ctx, cloudsim.LoadBalancerID(in.ID))
	return &struct{ Body cloudsim.LoadBalancerStats }{v}, err
}

func (a *api) getOperation(ctx context.Context, in *struct {
	ByID
	WaitSeconds int `query:"waitSeconds" minimum:"0" maximum:"20" doc:"Maximum number of seconds for which the call waits for the end of the operation"`
}) (*body[cloudsim.Operation], error) {
	v, err := a.engine.AwaitOperation(ctx, cloudsim.OperationID(in.ID), time.Duration(in.WaitSeconds)*time.Second)
	return answer(v, v.Revision, err)
}
