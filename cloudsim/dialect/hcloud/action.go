package hcloud

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

const maxActionIDs = 50

var actionTypes = map[cloudsim.ResourceKind]string{
	cloudsim.KindInstance: "server", cloudsim.KindDisk: "volume", cloudsim.KindLoadBalancer: "load_balancer",
	cloudsim.KindNetwork: "network", cloudsim.KindSubnet: "network", cloudsim.KindRoute: "network",
}

var commandOf = map[cloudsim.ResourceKind]map[cloudsim.Verb]string{
	cloudsim.KindInstance: {
		cloudsim.Create: "create_server", cloudsim.Start: "start_server", cloudsim.Stop: "stop_server",
		cloudsim.Reboot: "reboot_server", cloudsim.Terminate: "delete_server",
	},
	cloudsim.KindDisk: {
		cloudsim.Create: "create_volume", cloudsim.Attach: "attach_volume", cloudsim.Detach: "detach_volume",
		cloudsim.Resize: "resize_volume", cloudsim.Delete: "delete_volume",
	},
	cloudsim.KindLoadBalancer: {
		cloudsim.Create: "create_load_balancer", cloudsim.Update: "update_load_balancer", cloudsim.Delete: "delete_load_balancer",
	},
	cloudsim.KindRoute:  {cloudsim.Create: "add_route", cloudsim.Delete: "delete_route"},
	cloudsim.KindSubnet: {cloudsim.Create: "add_subnet", cloudsim.Delete: "delete_subnet"},
}

func actionOf(r *dialect.Request, o cloudsim.Operation) (a action, err error) {
	a = action{
		ID: dialect.Number(o.ID), Command: commandOf[o.Kind][o.Verb], Status: "running", Progress: o.Percent, Started: o.CreatedAt,
	}
	if a.Command == "" {
		a.Command = string(o.Verb) + "_" + actionTypes[o.Kind]
	}
	if a.Resources, err = resourcesOf(r, o); err != nil || !o.Over() {
		return a, err
	}
	a.Status, a.Progress, a.Finished = "success", 100, o.EndedAt
	if o.State != cloudsim.OperationDone {
		a.Status = "error"
		a.Error = &actionError{Code: "action_failed", Message: "the action has failed"}
		if o.Error != nil {
			a.Error.Message = o.Error.Detail
		}
	}
	return a, nil
}

// resourcesOf returns the resource of an operation. The resource of a subnet or a route is its
// network, because subnets and routes have no ids in Hetzner's API. If the subnet or the route is
// deleted, or the token has no permission to read it, the dialect cannot find the network, and the
// result is empty.
func resourcesOf(r *dialect.Request, o cloudsim.Operation) (all []resource, err error) {
	id := dialect.Number(o.Target)
	switch o.Kind {
	case cloudsim.KindSubnet:
		var s cloudsim.Subnet
		s, err = r.Cloud.GetSubnet(r.Context(), cloudsim.SubnetID(o.Target))
		id = dialect.Number(s.Network)
	case cloudsim.KindRoute:
		var t cloudsim.Route
		t, err = r.Cloud.GetRoute(r.Context(), cloudsim.RouteID(o.Target))
		id = dialect.Number(t.Network)
	}
	switch {
	case errors.Is(err, cloudsim.NotFound) || errors.Is(err, cloudsim.Denied) || actionTypes[o.Kind] == "":
		return []resource{}, nil
	case err != nil:
		return nil, err
	}
	return []resource{{id, actionTypes[o.Kind]}}, nil
}

// lastAction returns the action with which the dialect answers a call that changes a resource. The
// action has the id of the last operation of the resource. If busy is true, this operation still
// runs, and the status of the action is running. Otherwise the status is success, even if the call
// has changed nothing.
func lastAction(m cloudsim.Meta, command string, busy bool, resources ...resource) action {
	a := action{ID: dialect.Number(m.Operation), Command: command, Status: "running", Started: m.UpdatedAt, Resources: resources}
	if !busy {
		return done(a, m.UpdatedAt)
	}
	return a
}

func done(a action, at time.Time) action {
	a.Status, a.Progress, a.Finished = "success", 100, &at
	return a
}

func actionStarted(a action) (int, any, error) { return http.StatusCreated, actionReply{a}, nil }

func errLocked(resource string, state string) error {
	return cloudsim.Errorf(cloudsim.Conflict, "the %s is locked, because an action is running on it; its status is %s", resource, state)
}

func (a *api) getAction(r *dialect.Request) (int, any, error) {
	id, err := id[cloudsim.OperationID](r, prefixOperation)
	if err != nil {
		return 0, nil, err
	}
	o, err := r.Cloud.GetOperation(r.Context(), id)
	if err != nil {
		return 0, nil, err
	}
	act, err := actionOf(r, o)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, actionReply{act}, nil
}

// listActions returns the actions with the ids in the query. It ignores an id if there is no action
// with this id. If the query contains statuses, listActions returns only actions with these
// statuses. As in Hetzner's API, the query must contain at least one id.
func (a *api) listActions(r *dialect.Request) (int, any, error) {
	q, err := parseQuery(r.URL.Query(), "command", "status", "progress", "started", "finished")
	if err != nil {
		return 0, nil, err
	}
	ids := r.URL.Query()["id"]
	if len(ids) == 0 || len(ids) > maxActionIDs {
		return 0, nil, cloudsim.InvalidField("id", "must be given 1 to "+strconv.Itoa(maxActionIDs)+" times")
	}
	states := r.URL.Query()["status"]
	var all []action
	for _, s := range ids {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, nil, cloudsim.InvalidField("id", "must be a number, got "+strconv.Quote(cloudsim.Clip(s)))
		}
		o, err := r.Cloud.GetOperation(r.Context(), dialect.ID[cloudsim.OperationID](prefixOperation, n))
		if errors.Is(err, cloudsim.NotFound) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		act, err := actionOf(r, o)
		if err != nil {
			return 0, nil, err
		}
		if len(states) == 0 || slices.Contains(states, act.Status) {
			all = append(all, act)
		}
	}
	slices.SortStableFunc(all, func(x, y action) int {
		return q.compare(func(field string) int { return compareActions(x, y, field) })
	})
	items, m := slicePage(all, q)
	return reply("actions", items, m)
}

// compareActions compares two actions by the given field. For the field "finished", an action that
// has not finished comes before all finished actions.
func compareActions(a, b action, field string) int {
	switch field {
	case "command":
		return strings.Compare(a.Command, b.Command)
	case "status":
		return strings.Compare(a.Status, b.Status)
	case "progress":
		return cmp.Compare(a.Progress, b.Progress)
	case "started":
		return a.Started.Compare(b.Started)
	case "finished":
		return cmp.Or(a.Finished, &time.Time{}).Compare(*cmp.Or(b.Finished, &time.Time{}))
	}
	return cmp.Compare(a.ID, b.ID)
}
