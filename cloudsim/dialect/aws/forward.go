package aws

import (
	"errors"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// routing contains the records of network load balancers.
type routing struct {
	listeners []networkListener                         // sorted by their ids
	groups    []targetGroup                             // sorted by their ids, without the targets of deleted instances
	instances map[cloudsim.InstanceID]cloudsim.Instance // nil if no target group has targets
}

// readRouting reads all records of network load balancers.
func readRouting(q *query) (r routing, err error) {
	if r.listeners, err = listStored[listenerDocument](q, listenerRecords); err != nil {
		return r, err
	}
	if r.groups, err = listStored[targetGroupDocument](q, targetGroupRecords); err != nil {
		return r, err
	}
	if !slices.ContainsFunc(r.groups, func(g targetGroup) bool { return len(g.Doc.Targets) > 0 }) {
		return r, nil
	}
	all, err := listAll(q, instances)
	r.instances = map[cloudsim.InstanceID]cloudsim.Instance{}
	for _, i := range all {
		r.instances[i.ID] = i
	}
	for n := range r.groups {
		r.groups[n].Doc.Targets = slices.DeleteFunc(r.groups[n].Doc.Targets, func(id cloudsim.InstanceID) bool { return r.instances[id].ID == "" })
	}
	return r, err
}

// The method group returns the target group with an id, and whether it exists.
func (r routing) group(id cloudsim.RecordID) (targetGroup, bool) {
	n := slices.IndexFunc(r.groups, func(g targetGroup) bool { return g.ID == id })
	if n < 0 {
		return targetGroup{}, false
	}
	return r.groups[n], true
}

// put replaces the element with the same id, or appends the new element.
func put[D any](all []stored[D], s stored[D]) []stored[D] {
	if n := slices.IndexFunc(all, func(have stored[D]) bool { return have.ID == s.ID }); n >= 0 {
		all[n] = s
		return all
	}
	return append(all, s)
}

// users returns the ids of the load balancers with a listener that forwards to a target group. A
// load balancer can be deleted already.
func (r routing) users(id cloudsim.RecordID) (all []cloudsim.LoadBalancerID) {
	for _, li := range r.listeners {
		if li.Doc.TargetGroup == id && !slices.Contains(all, li.Doc.LoadBalancer) {
			all = append(all, li.Doc.LoadBalancer)
		}
	}
	return all
}

// liveUsers returns the load balancers in the list live that have a listener for a target group.
func (r routing) liveUsers(live []cloudsim.LoadBalancer, id cloudsim.RecordID) (all []cloudsim.LoadBalancer) {
	users := r.users(id)
	for _, l := range live {
		if slices.Contains(users, l.ID) {
			all = append(all, l)
		}
	}
	return all
}

// forward sets the listeners of a network load balancer. It derives them from the records: each
// listener has the targets, the health check and the attributes of its target group. It also applies
// the rules of the security groups. The parameters contain changes that are not stored yet: g is a
// security group or nil, and change is a function that changes the records or nil.
//
// The caller must have read the load balancer before the call, and must write it only if its
// revision is still the same. Then the last write contains all records of all callers.
func forward(q *query, l *cloudsim.LoadBalancer, g *group, change func(*routing)) error {
	r, err := readRouting(q)
	if err != nil {
		return err
	}
	if change != nil {
		change(&r)
	}
	groupIDs, port := idsIn(*l, labelGroups), listenerPort
	if len(groupIDs) == 0 {
		groupIDs, port = r.inherited(l.ID), targetPort
	}
	rules, err := rulesOf(q, groupIDs, g)
	if err != nil {
		return err
	}
	l.Listeners, l.DrainTimeoutSeconds = []cloudsim.Listener{}, 0
	for _, li := range r.listeners {
		if li.Doc.LoadBalancer != l.ID {
			continue
		}
		group, ok := r.group(li.Doc.TargetGroup)
		if !ok {
			continue // another client has deleted the record
		}
		for _, p := range transports[li.Doc.Protocol] {
			one := cloudsim.Listener{Protocol: p, Port: li.Doc.Port, TargetPort: group.Doc.Port, HealthCheck: new(group.Doc.check()), Targets: []cloudsim.Target{}}
			if group.Doc.ProxyProtocol {
				one.ProxyProtocol = cloudsim.ProxyV2
			}
			for _, id := range group.Doc.Targets {
				one.Targets = append(one.Targets, cloudsim.Target{Instance: id})
			}
			l.Listeners = append(l.Listeners, one)
		}
		l.DrainTimeoutSeconds = max(l.DrainTimeoutSeconds, group.Doc.DrainSeconds)
	}
	if len(l.Listeners) > 0 && l.DrainTimeoutSeconds == 0 {
		l.DrainTimeoutSeconds = -1
	} else if len(l.Listeners) == 0 {
		l.DrainTimeoutSeconds = defaultDrain
	}
	permit(&l.LoadBalancerSpec, rules, port)
	return nil
}

// inherited returns the security groups of all targets of a load balancer. In AWS, a network load
// balancer without security groups keeps the addresses of its clients, so the rules of these groups
// apply to the clients.
func (r routing) inherited(id cloudsim.LoadBalancerID) (all []string) {
	for _, li := range r.listeners {
		if li.Doc.LoadBalancer != id {
			continue
		}
		g, _ := r.group(li.Doc.TargetGroup)
		for _, target := range g.Doc.Targets {
			for _, id := range groupIDs(r.instances[target]) {
				if !slices.Contains(all, id) {
					all = append(all, id)
				}
			}
		}
	}
	return all
}

// inheriting returns a function that reports whether a load balancer is a network load balancer of a
// VPC without security groups.
func inheriting(network cloudsim.NetworkID) func(cloudsim.LoadBalancer) bool {
	return func(l cloudsim.LoadBalancer) bool {
		return l.Labels[labelNetwork] == string(network) && l.Labels[labelGroups] == ""
	}
}

// forwardInheriting applies the groups of targets to the network load balancers of a VPC without
// security groups.
func forwardInheriting(q *query, network cloudsim.NetworkID) error {
	all, err := loadBalancers(q, inheriting(network))
	if err != nil {
		return err
	}
	var ids []cloudsim.LoadBalancerID
	for _, l := range all {
		ids = append(ids, l.ID)
	}
	return forwardAll(q, ids, nil)
}

// forwardAll applies the records to network load balancers, with a change that is not stored yet.
// It skips deleted load balancers.
//
// Each change of a record calls forwardAll before and after the record is stored. So if a call
// fails, the record is old, and the next attempt of the caller changes the load balancers again. The
// second call applies the changes of other callers at the same time.
func forwardAll(q *query, ids []cloudsim.LoadBalancerID, change func(*routing)) error {
	for _, id := range ids {
		l, err := q.Cloud.GetLoadBalancer(q.Context(), id)
		if err == nil && l.State != cloudsim.LoadBalancerDeleting {
			_, err = dialect.ChangeLoadBalancer(q.Request, l, func(l *cloudsim.LoadBalancer) error {
				if l.State == cloudsim.LoadBalancerDeleting {
					return cloudsim.Errorf(cloudsim.NotFound, "the load balancer %s is deleted", l.ID)
				}
				return forward(q, l, nil, change)
			})
		}
		if err != nil && !errors.Is(err, cloudsim.NotFound) {
			return err
		}
	}
	return nil
}
