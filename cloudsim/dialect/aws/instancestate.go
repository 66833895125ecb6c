package aws

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// transition is a call that changes the states of instances.
type transition struct {
	verb string                   // for error messages
	from []cloudsim.InstanceState // states in which the call changes an instance
	same []cloudsim.InstanceState // states in which the call succeeds and changes nothing
	do   func(*client.Client, context.Context, cloudsim.InstanceID) (cloudsim.Instance, error)
}

var (
	starting = transition{
		verb: "start", do: (*client.Client).StartInstance,
		from: []cloudsim.InstanceState{cloudsim.InstanceStopped},
		same: []cloudsim.InstanceState{cloudsim.InstanceProvisioning, cloudsim.InstanceStarting, cloudsim.InstanceRunning, cloudsim.InstanceRebooting},
	}
	stopping = transition{
		verb: "stop", do: (*client.Client).StopInstance,
		from: []cloudsim.InstanceState{cloudsim.InstanceRunning, cloudsim.InstanceRebooting},
		same: []cloudsim.InstanceState{cloudsim.InstanceStopping, cloudsim.InstanceStopped},
	}
	rebooting = transition{
		verb: "reboot", do: (*client.Client).RebootInstance,
		from: []cloudsim.InstanceState{cloudsim.InstanceRunning},
		same: []cloudsim.InstanceState{cloudsim.InstanceRebooting},
	}
	terminating = transition{
		verb: "terminate", do: (*client.Client).DeleteInstance,
		from: []cloudsim.InstanceState{
			cloudsim.InstanceProvisioning, cloudsim.InstanceStarting, cloudsim.InstanceRunning, cloudsim.InstanceRebooting, cloudsim.InstanceStopping, cloudsim.InstanceStopped,
		},
		same: []cloudsim.InstanceState{cloudsim.InstanceTerminating, cloudsim.InstanceTerminated},
	}
)

type stateChange struct {
	ID       string        `xml:"instanceId"`
	Current  instanceState `xml:"currentState"`
	Previous instanceState `xml:"previousState"`
}

type stateChangesAnswer struct {
	ec2Answer
	Instances items[stateChange] `xml:"instancesSet"`
}

// apply changes the states of the instances in the parameter InstanceId. It checks all instances
// before it changes the first one. So if one id is wrong, or one instance is in a wrong state, the
// request changes nothing.
func (t transition) apply(q *query) (*stateChangesAnswer, error) {
	ids := q.textList("InstanceId")
	q.checkPresent(len(ids) > 0, "InstanceId")
	if err := q.finish(); err != nil {
		return nil, err
	}
	found, err := readByIDs(q, instancesWithTerminated(), ids, inRegionOf(q))
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		if !slices.Contains(t.from, i.State) && !slices.Contains(t.same, i.State) {
			return nil, coded(http.StatusBadRequest, "IncorrectInstanceState", "cannot "+t.verb+" the instance "+idOf(prefixInstance, i.ID)+": its state is "+instanceStates[i.State].Name)
		}
	}
	out := &stateChangesAnswer{}
	for _, was := range found {
		now := was
		if slices.Contains(t.from, was.State) {
			now, err = t.do(q.Cloud, q.Context(), was.ID)
		}
		if errors.Is(err, cloudsim.NotFound) {
			err = instances.errNotFound(idOf(prefixInstance, was.ID)) // another caller has terminated the instance
		}
		if err != nil {
			return nil, translateKind(err, map[cloudsim.Kind]string{cloudsim.Conflict: "IncorrectInstanceState"})
		}
		out.Instances.Items = append(out.Instances.Items, stateChange{ID: idOf(prefixInstance, was.ID), Current: instanceStates[now.State], Previous: instanceStates[was.State]})
	}
	return out, nil
}

func startInstances(q *query) (any, error) { return starting.apply(q) }

// noForce is the advice to a client that tries to stop an instance by force.
const noForce = "stop the instance without it, or cut its power with 'allinone cloud instances crash'"

func stopInstances(q *query) (any, error) {
	q.refuseTrue(noForce, "Force", "SkipOsShutdown")
	q.refuseTrue("stop the instance without it", "Hibernate")
	return stopping.apply(q)
}

func terminateInstances(q *query) (any, error) {
	q.refuseTrue("terminate the instance without it", "Force", "SkipOsShutdown")
	return terminating.apply(q)
}

func rebootInstances(q *query) (any, error) {
	_, err := rebooting.apply(q)
	return &returnAnswer{Return: true}, err
}

type instanceStatus struct {
	ID       string                     `xml:"instanceId"`
	Zone     string                     `xml:"availabilityZone"`
	State    instanceState              `xml:"instanceState"`
	Instance statusSummary              `xml:"instanceStatus"`
	System   statusSummary              `xml:"systemStatus"`
	Events   items[instanceStatusEvent] `xml:"eventsSet"`
}

type statusSummary struct {
	Status  string              `xml:"status"`
	Details items[statusDetail] `xml:"details"`
}

type statusDetail struct {
	Name   string `xml:"name"`
	Status string `xml:"status"`
}

type instanceStatusEvent struct {
	Code        string `xml:"code"`
	Description string `xml:"description"`
	NotBefore   string `xml:"notBefore"`
}

type describeStatusAnswer struct {
	ec2Answer
	Statuses items[instanceStatus] `xml:"instanceStatusSet"`
	Next     string                `xml:"nextToken,omitempty"`
}

// noticeEvents maps the types of notices to EC2's events. With a notice, the cloud announces that
// it will reboot or terminate an instance.
var noticeEvents = map[cloudsim.NoticeType]instanceStatusEvent{
	cloudsim.NoticeMaintenance: {Code: "instance-reboot", Description: "the cloud will reboot the instance"},
	cloudsim.NoticePreemption:  {Code: "instance-retirement", Description: "the cloud will terminate the instance"},
}

// summaryOf returns the result of a status check in EC2's format. If the instance is running, the
// result depends on checkPassed. Otherwise it depends only on the state of the instance.
func summaryOf(i cloudsim.Instance, checkPassed bool) statusSummary {
	var status, detail string
	switch name := instanceStates[i.State].Name; {
	case name == "pending":
		status, detail = "initializing", "initializing"
	case name != "running":
		return statusSummary{Status: "not-applicable"}
	case checkPassed:
		status, detail = "ok", "passed"
	default:
		status, detail = "impaired", "failed"
	}
	return statusSummary{Status: status, Details: items[statusDetail]{Items: []statusDetail{{Name: "reachability", Status: detail}}}}
}

// describeStatus lists instances with the results of two status checks. If IncludeAllInstances is
// true, it lists all instances. Otherwise it lists only running instances. The instance check fails
// if the instance has lost its power. The system check never fails.
func describeStatus(q *query) (any, error) {
	all := q.flag("IncludeAllInstances")
	found, next, err := listMatching(q, instancesWithTerminated(), inRegionOf(q))
	if err != nil {
		return nil, err
	}
	out := &describeStatusAnswer{Next: next}
	for _, i := range found {
		state := instanceStates[i.State]
		if !all && state.Name != "running" {
			continue
		}
		s := instanceStatus{ID: idOf(prefixInstance, i.ID), Zone: i.Zone, State: state, Instance: summaryOf(i, i.Crashed == nil), System: summaryOf(i, true)}
		for _, n := range i.Notices {
			e := noticeEvents[n.Type]
			e.NotBefore = formatTime(n.At)
			s.Events.Items = append(s.Events.Items, e)
		}
		out.Statuses.Items = append(out.Statuses.Items, s)
	}
	return out, nil
}
