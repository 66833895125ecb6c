package aws

import (
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

type registeredInstance struct {
	ID string `xml:"InstanceId"`
}

func instancesOf(l cloudsim.LoadBalancer) (out members[registeredInstance]) {
	for _, t := range l.Targets {
		out.Items = append(out.Items, registeredInstance{idOf(prefixInstance, t.Instance)})
	}
	return out
}

func (q *query) decodeInstances() (ids []string) {
	q.forEach("Instances.member", func(prefix string) { ids = append(ids, q.requiredText(prefix+"InstanceId")) })
	return ids
}

func (q *query) decodeRequiredInstances() []string {
	ids := q.decodeInstances()
	q.checkPresent(len(ids) > 0, "Instances")
	return ids
}

type registerResult struct {
	XMLName   struct{}                    `xml:"RegisterInstancesWithLoadBalancerResult"`
	Instances members[registeredInstance] `xml:"Instances"`
}

type deregisterResult struct {
	XMLName   struct{}                    `xml:"DeregisterInstancesFromLoadBalancerResult"`
	Instances members[registeredInstance] `xml:"Instances"`
}

// registerInstances adds instances to the targets of a load balancer. It ignores instances that are
// already targets.
func registerInstances(q *query) (any, error) {
	name, ids := q.requiredText("LoadBalancerName"), q.decodeRequiredInstances()
	if err := q.finish(); err != nil {
		return nil, err
	}
	l, err := changeLoadBalancer(q, name, func(l *cloudsim.LoadBalancer) error {
		found, err := readByIDs(q, instances, ids, func(i cloudsim.Instance) bool { return i.Region == l.Region })
		if err != nil {
			return recode(err, "InvalidInstance")
		}
		for _, i := range found {
			if !slices.ContainsFunc(l.Targets, func(t cloudsim.Target) bool { return t.Instance == i.ID }) {
				l.Targets = append(l.Targets, cloudsim.Target{Instance: i.ID})
			}
		}
		return nil
	})
	return &queryAnswer{Result: registerResult{Instances: instancesOf(l)}}, err
}

// deregisterInstances removes instances from the targets of a load balancer. If an instance is
// deleted, the cloud removes it from the targets. A later request can still contain this instance,
// so deregisterInstances ignores instances that are not targets.
func deregisterInstances(q *query) (any, error) {
	name, ids := q.requiredText("LoadBalancerName"), q.decodeRequiredInstances()
	if err := q.finish(); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if _, err := instances.ownID(id); err != nil {
			return nil, recode(err, "InvalidInstance")
		}
	}
	l, err := changeLoadBalancer(q, name, func(l *cloudsim.LoadBalancer) error {
		l.Targets = slices.DeleteFunc(l.Targets, func(t cloudsim.Target) bool { return slices.Contains(ids, idOf(prefixInstance, t.Instance)) })
		return nil
	})
	return &queryAnswer{Result: deregisterResult{Instances: instancesOf(l)}}, err
}

type instanceHealth struct {
	ID          string `xml:"InstanceId"`
	State       string `xml:"State"`
	Reason      string `xml:"ReasonCode"`
	Description string `xml:"Description"`
}

type instanceHealthResult struct {
	XMLName struct{}                `xml:"DescribeInstanceHealthResult"`
	States  members[instanceHealth] `xml:"InstanceStates"`
}

func describeHealth(q *query) (any, error) {
	name, ids := q.requiredText("LoadBalancerName"), q.decodeInstances()
	if err := q.finish(); err != nil {
		return nil, err
	}
	l, err := findLoadBalancer(q, name)
	if err != nil {
		return nil, err
	}
	wanted := newRequestedNames(ids)
	out := instanceHealthResult{}
	for _, t := range l.Targets {
		if id := idOf(prefixInstance, t.Instance); wanted.match(id) {
			out.States.Items = append(out.States.Items, healthOf(id, t, l.Status.Targets))
		}
	}
	return &queryAnswer{Result: out}, wanted.checkFound("InvalidInstance", "registration of the instance")
}

// healthOf returns the health of a target in AWS's format. If statuses has no status of the target,
// the result is OutOfService. For example, there is no status while all listeners of the load
// balancer refuse connections.
func healthOf(id string, t cloudsim.Target, statuses []cloudsim.TargetStatus) instanceHealth {
	at := slices.IndexFunc(statuses, func(s cloudsim.TargetStatus) bool { return s.Key() == t.Key() && s.Health != cloudsim.TargetDraining })
	switch {
	case at < 0 || statuses[at].Health == cloudsim.TargetInitial:
		return instanceHealth{id, "OutOfService", "ELB", "Instance registration is still in progress, or no security group rule permits connections to the listeners."}
	case statuses[at].Health == cloudsim.TargetHealthy:
		return instanceHealth{id, "InService", "N/A", "N/A"}
	}
	return instanceHealth{id, "OutOfService", "Instance", statuses[at].Reason}
}
