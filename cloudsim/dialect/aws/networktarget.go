package aws

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// maxGroupTargets is the largest number of targets of a target group. AWS has the same limit.
const maxGroupTargets = 1000

// targetParameter is an element of the list Targets in a request.
type targetParameter struct {
	id   string
	port int // 0 means the port of the target group
}

func (q *query) decodeTargets() (all []targetParameter) {
	q.forEach("Targets.member", func(prefix string) {
		all = append(all, targetParameter{q.requiredText(prefix + "Id"), q.integer(prefix+"Port", 1, 65535, 0)})
	})
	return all
}

func (q *query) decodeRequiredTargets() []targetParameter {
	all := q.decodeTargets()
	q.checkPresent(len(all) > 0, "Targets")
	return all
}

// registerTargets adds instances to the targets of a target group. It ignores instances that are
// already targets.
func registerTargets(q *query) (any, error) {
	wanted, given := q.requiredText("TargetGroupArn"), q.decodeRequiredTargets()
	if err := q.finish(); err != nil {
		return nil, err
	}
	_, _, err := changeTargetGroup(q, wanted, func(g *targetGroup) error {
		var ids []string
		for _, t := range given {
			if t.port != 0 && t.port != g.Doc.Port {
				return dialect.Unsupported{What: fmt.Sprintf("a target with the port %d in a target group with the port %d", t.port, g.Doc.Port), Why: "all targets of a listener have the same port: create another target group"}
			}
			ids = append(ids, t.id)
		}
		found, err := readByIDs(q, instances, ids, func(i cloudsim.Instance) bool { return i.Region == g.Doc.Region })
		if err != nil {
			return recode(err, "InvalidTarget")
		}
		for _, i := range found {
			if i.Network != g.Doc.Network {
				return coded(http.StatusBadRequest, "InvalidTarget", "the instance "+idOf(prefixInstance, i.ID)+" is not in the VPC of the target group")
			}
			if !slices.Contains(g.Doc.Targets, i.ID) {
				g.Doc.Targets = append(g.Doc.Targets, i.ID)
			}
		}
		if len(g.Doc.Targets) > maxGroupTargets {
			return coded(http.StatusBadRequest, "TooManyTargets", fmt.Sprintf("a target group has at most %d targets", maxGroupTargets))
		}
		return nil
	})
	return emptyAnswer(q), err
}

// deregisterTargets removes instances from the targets of a target group. It ignores instances that
// are not targets, as AWS does.
func deregisterTargets(q *query) (any, error) {
	wanted, given := q.requiredText("TargetGroupArn"), q.decodeRequiredTargets()
	if err := q.finish(); err != nil {
		return nil, err
	}
	_, _, err := changeTargetGroup(q, wanted, func(g *targetGroup) error {
		for _, t := range given {
			id, err := instances.ownID(t.id)
			if err != nil {
				return recode(err, "InvalidTarget")
			}
			if t.port == 0 || t.port == g.Doc.Port {
				g.Doc.Targets = slices.DeleteFunc(g.Doc.Targets, func(have cloudsim.InstanceID) bool { return have == id })
			}
		}
		return nil
	})
	return emptyAnswer(q), err
}

type targetHealthDescription struct {
	CheckPort string       `xml:"HealthCheckPort"`
	ID        string       `xml:"Target>Id"`
	Port      int          `xml:"Target>Port"`
	Health    targetHealth `xml:"TargetHealth"`
}

type targetHealth struct {
	State       string `xml:"State"`
	Reason      string `xml:"Reason,omitempty"`
	Description string `xml:"Description,omitempty"`
}

// describeTargetHealth returns the health of the targets of a target group. The answer also
// contains removed targets that still have connections.
func describeTargetHealth(q *query) (any, error) {
	wanted, given := q.requiredText("TargetGroupArn"), q.decodeTargets()
	if err := q.finish(); err != nil {
		return nil, err
	}
	r, err := readRouting(q)
	if err != nil {
		return nil, err
	}
	g, err := r.findTargetGroup(q, wanted)
	if err != nil {
		return nil, err
	}
	used, statuses, err := r.readTargetStatuses(q, g.ID)
	if err != nil {
		return nil, err
	}
	out := &members[targetHealthDescription]{}
	add := func(id cloudsim.InstanceID, h targetHealth) {
		if len(given) > 0 && !slices.ContainsFunc(given, func(t targetParameter) bool {
			return t.id == idOf(prefixInstance, id) && (t.port == 0 || t.port == g.Doc.Port)
		}) {
			return
		}
		out.Items = append(out.Items, targetHealthDescription{CheckPort: strconv.Itoa(g.Doc.healthCheck().Port), ID: idOf(prefixInstance, id), Port: g.Doc.Port, Health: h})
	}
	for _, id := range g.Doc.Targets {
		at := slices.IndexFunc(statuses, func(s cloudsim.TargetStatus) bool { return s.Instance == id && s.Health != cloudsim.TargetDraining })
		switch {
		case !used:
			add(id, targetHealth{"unused", "Target.NotInUse", "no listener forwards to the target group"})
		case at < 0: // the data plane has not reported the health yet, or no rule permits connections to the target
			add(id, targetHealth{"initial", "Elb.RegistrationInProgress", "Target registration is in progress, or no security group rule permits connections to the target"})
		case statuses[at].Health == cloudsim.TargetInitial:
			add(id, targetHealth{"initial", "Elb.InitialHealthChecking", "Initial health checks in progress"})
		case statuses[at].Health == cloudsim.TargetHealthy:
			add(id, targetHealth{State: "healthy"})
		default:
			add(id, targetHealth{"unhealthy", "Target.FailedHealthChecks", statuses[at].Reason})
		}
	}
	var draining []cloudsim.InstanceID
	for _, s := range statuses {
		if s.Health == cloudsim.TargetDraining && !slices.Contains(g.Doc.Targets, s.Instance) && !slices.Contains(draining, s.Instance) {
			draining = append(draining, s.Instance)
			add(s.Instance, targetHealth{"draining", "Target.DeregistrationInProgress", "Target deregistration is in progress"})
		}
	}
	for _, t := range given {
		id, err := instances.ownID(t.id)
		if err != nil {
			return nil, recode(err, "InvalidTarget")
		}
		if !slices.Contains(g.Doc.Targets, id) && !slices.Contains(draining, id) {
			add(id, targetHealth{"unused", "Target.NotRegistered", "Target is not registered to the target group"})
		}
	}
	return networkAnswer(q, networkResult{Health: out}), nil
}

// readTargetStatuses finds the listeners that forward to the target group with the given id, and
// returns the statuses of their targets. If a target belongs to several listeners of this cloud,
// the result contains one status for each of them. The result isUsed is true if at least one
// listener forwards to the target group.
func (r routing) readTargetStatuses(q *query, id cloudsim.RecordID) (isUsed bool, all []cloudsim.TargetStatus, err error) {
	live, err := listNetworkLoadBalancers(q)
	if err != nil {
		return false, nil, err
	}
	for _, l := range live {
		for _, li := range r.listeners {
			if li.Doc.LoadBalancer != l.ID || li.Doc.TargetGroup != id {
				continue
			}
			isUsed = true
			for _, s := range l.Status.Targets {
				if slices.ContainsFunc(transports[li.Doc.Protocol], func(p cloudsim.Protocol) bool {
					return s.Listener == cloudsim.Listener{Protocol: p, Port: li.Doc.Port}.Key()
				}) {
					all = append(all, s)
				}
			}
		}
	}
	return isUsed, all, nil
}
