package aws

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// routing contains the listeners and the target groups of network load balancers. The dialect
// stores them in records of the cloud.
type routing struct {
	listeners []networkListener                         // sorted by their ids
	groups    []targetGroup                             // sorted by their ids; without targets that are deleted instances
	instances map[cloudsim.InstanceID]cloudsim.Instance // all instances; nil if no target group has targets
}

// readRouting reads the records of all listeners and target groups. If a target group has targets,
// readRouting also reads all instances, and removes deleted instances from the targets.
func readRouting(q *query) (r routing, err error) {
	if r.listeners, err = listObjects[listenerDocument](q, listenerRecords); err != nil {
		return r, err
	}
	if r.groups, err = listObjects[targetGroupDocument](q, targetGroupRecords); err != nil {
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

func (r routing) getTargetGroup(id cloudsim.RecordID) (targetGroup, bool) {
	n := slices.IndexFunc(r.groups, func(g targetGroup) bool { return g.ID == id })
	if n < 0 {
		return targetGroup{}, false
	}
	return r.groups[n], true
}

func put[D any](list []storedObject[D], s storedObject[D]) []storedObject[D] {
	if n := slices.IndexFunc(list, func(have storedObject[D]) bool { return have.ID == s.ID }); n >= 0 {
		list[n] = s
		return list
	}
	return append(list, s)
}

// findUsers returns the ids of the load balancers that have a listener for the target group with
// the given id. The result can contain ids of deleted load balancers, because a client of the
// cloud's own API can delete a load balancer and leave the records of its listeners.
func (r routing) findUsers(id cloudsim.RecordID) (all []cloudsim.LoadBalancerID) {
	for _, li := range r.listeners {
		if li.Doc.TargetGroup == id && !slices.Contains(all, li.Doc.LoadBalancer) {
			all = append(all, li.Doc.LoadBalancer)
		}
	}
	return all
}

// findLiveUsers returns the elements of loadBalancers that have a listener for the target group
// with the given id.
func (r routing) findLiveUsers(loadBalancers []cloudsim.LoadBalancer, id cloudsim.RecordID) (all []cloudsim.LoadBalancer) {
	users := r.findUsers(id)
	for _, l := range loadBalancers {
		if slices.Contains(users, l.ID) {
			all = append(all, l)
		}
	}
	return all
}

// computeListeners computes the listeners of the network load balancer l from the records of
// listeners and target groups. Each listener gets the targets, the health check and the PROXY
// setting of its target group. The drain timeout of l is the longest drain timeout of its target
// groups. If l has security groups, computeListeners then applies their rules. Otherwise it calls
// permitTargets.
//
// The parameters g and changeRouting contain changes that the cloud has not stored yet. If the
// security group g is not nil, computeListeners uses the rules in g instead of the stored rules of
// this group. If changeRouting is not nil, computeListeners calls it to change a copy of the
// records in memory, and uses this copy.
//
// A caller must read l, call computeListeners, and write l with the revision of this read. If the
// cloud returns Stale, the caller must repeat these three steps. After a caller has stored a
// changed record, it must do the three steps for each load balancer that uses the record. So the
// last write of l uses the records of all callers, even if several callers store records at the
// same time.
func computeListeners(q *query, l *cloudsim.LoadBalancer, g *group, changeRouting func(*routing)) error {
	r, err := readRouting(q)
	if err != nil {
		return err
	}
	if changeRouting != nil {
		changeRouting(&r)
	}
	l.Listeners, l.DrainTimeoutSeconds = []cloudsim.Listener{}, 0
	for _, li := range r.listeners {
		if li.Doc.LoadBalancer != l.ID {
			continue
		}
		group, ok := r.getTargetGroup(li.Doc.TargetGroup)
		if !ok {
			continue // another client has deleted the record of the target group
		}
		for _, p := range transports[li.Doc.Protocol] {
			one := cloudsim.Listener{Protocol: p, Port: li.Doc.Port, TargetPort: group.Doc.Port, HealthCheck: new(group.Doc.healthCheck()), Targets: []cloudsim.Target{}}
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
	groupIDs := idsInLabel(*l, labelGroups)
	if len(groupIDs) == 0 {
		return r.permitTargets(q, &l.LoadBalancerSpec, g)
	}
	rules, err := rulesOf(q, groupIDs, g)
	if err != nil {
		return err
	}
	permit(&l.LoadBalancerSpec, rules)
	return nil
}

// permitTargets sets the source ranges and the targets of a load balancer without security groups.
// In AWS, this load balancer preserves the IP addresses of its clients by default. So the rules of
// each target's security groups must permit the addresses of the clients.
//
// If no rule of a target permits connections, permitTargets removes the target from the listener.
// The source ranges contain an address only if the rules of each remaining target permit
// connections from this address. The parameter g is the same as in computeListeners.
func (r routing) permitTargets(q *query, l *cloudsim.LoadBalancerSpec, g *group) error {
	known := map[string][]rule{} // rules of lists of security groups
	var open [][]netip.Prefix    // permitted ranges of each remaining target, without duplicates
	for n := range l.Listeners {
		li, permitted := &l.Listeners[n], []cloudsim.Target{}
		for _, t := range li.Targets {
			ids := groupIDsOf(r.instances[t.Instance])
			key := strings.Join(ids, ",")
			if _, ok := known[key]; !ok {
				rules, err := rulesOf(q, ids, g)
				if err != nil {
					return err
				}
				known[key] = rules
			}
			ranges := permittedRanges(known[key], string(li.Protocol), li.TargetPort)
			if len(ranges) == 0 {
				continue
			}
			permitted = append(permitted, t)
			if !slices.ContainsFunc(open, func(have []netip.Prefix) bool { return slices.Equal(have, ranges) }) {
				open = append(open, ranges)
			}
		}
		li.Targets = permitted
	}
	setSourceRanges(l, open)
	return nil
}

// hasNoGroups returns a function that reports whether a load balancer is a network load balancer of
// the given VPC and has no security groups.
func hasNoGroups(network cloudsim.NetworkID) func(cloudsim.LoadBalancer) bool {
	return func(l cloudsim.LoadBalancer) bool {
		return isNLB(l) && l.Labels[labelNetwork] == string(network) && l.Labels[labelGroups] == ""
	}
}

// applyGroupsOfTargets updates the network load balancers of a VPC that have no security groups.
// For these load balancers, the rules of the targets' security groups apply.
func applyGroupsOfTargets(q *query, network cloudsim.NetworkID) error {
	all, err := listLoadBalancers(q, hasNoGroups(network))
	if err != nil {
		return err
	}
	var ids []cloudsim.LoadBalancerID
	for _, l := range all {
		ids = append(ids, l.ID)
	}
	return applyRecords(q, ids, nil)
}

// applyRecords calls computeListeners for the load balancers with the given ids, and writes the
// load balancers to the cloud. It skips deleted load balancers. The parameter changeRouting is the
// same as in computeListeners.
//
// A caller must change a record in these steps:
//  1. It calls applyRecords with the change. If this call fails, it must not store the record, so
//     that a repeated request makes the whole change again. The failed call may already have
//     changed some load balancers.
//  2. It tries to store the record.
//  3. If step 2 has failed, it calls undoRecords. Otherwise it calls applyRecords without the
//     change. This call applies the stored record, and the records that other callers have stored
//     since step 1.
func applyRecords(q *query, ids []cloudsim.LoadBalancerID, changeRouting func(*routing)) error {
	for _, id := range ids {
		l, err := q.Cloud.GetLoadBalancer(q.Context(), id)
		if err == nil && l.State != cloudsim.LoadBalancerDeleting {
			_, err = dialect.ChangeLoadBalancer(q.Request, l, func(l *cloudsim.LoadBalancer) error {
				if l.State == cloudsim.LoadBalancerDeleting {
					return cloudsim.Errorf(cloudsim.NotFound, "the load balancer %s is deleted", l.ID)
				}
				return computeListeners(q, l, nil, changeRouting)
			})
		}
		if err != nil && !errors.Is(err, cloudsim.NotFound) {
			return err
		}
	}
	return nil
}

// undoRecords undoes a change of load balancers after a record could not be stored; see
// applyRecords. It also works after the client has disconnected.
func undoRecords(q *query, ids []cloudsim.LoadBalancerID) {
	q, cancel := q.detached()
	defer cancel()
	_ = applyRecords(q, ids, nil) // if this fails, the next change of a record does the same
}
