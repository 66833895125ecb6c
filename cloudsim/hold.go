package cloudsim

import (
	"fmt"
	"slices"
)

// HoldID names a hold, e.g. "hold-000001".
type HoldID string

// KindHold is the kind of resource in events about holds.
const KindHold ResourceKind = "hold"

// Any stands for every kind or for every verb in a Transition.
const Any = "*"

// Transition describes a type of operation that takes time: a verb for a kind
// of resource, e.g. stop for instances.
type Transition struct {
	Kind ResourceKind `json:"kind" example:"instance" doc:"Kind of resource; * for all"`
	Verb Verb         `json:"verb" example:"stop" doc:"Verb of the operation; * for all verbs"`
}

// Covers reports whether t matches the given kind of resource and the given verb.
func (t Transition) Covers(kind ResourceKind, verb Verb) bool {
	return (t.Kind == Any || t.Kind == kind) && (t.Verb == Any || t.Verb == verb)
}

// Transitions lists all types of operations that take time.
func Transitions() []Transition {
	return []Transition{
		{KindInstance, Create}, {KindInstance, Start}, {KindInstance, Stop}, {KindInstance, Reboot}, {KindInstance, Terminate},
		{KindLoadBalancer, Create}, {KindLoadBalancer, Update}, {KindLoadBalancer, Delete},
		{KindDisk, Create}, {KindDisk, Attach}, {KindDisk, Detach}, {KindDisk, Resize}, {KindDisk, Modify}, {KindDisk, Delete},
		{KindNetwork, Create}, {KindNetwork, Update}, {KindNetwork, Delete},
		{KindSubnet, Create}, {KindSubnet, Delete}, {KindRoute, Create}, {KindRoute, Delete},
		{KindSnapshot, Create}, {KindSnapshot, Delete}, {KindSnapshotGroup, Create}, {KindSnapshotGroup, Delete},
	}
}

// check adds an error to c if t covers none of the operation types that the function Transitions
// returns. The field name in the error begins with the given prefix.
func (t Transition) check(c *checks, prefix string) {
	field := prefix + "kind"
	for _, known := range Transitions() {
		if t.Covers(known.Kind, known.Verb) {
			return
		}
		if t.Covers(known.Kind, t.Verb) {
			field = prefix + "verb"
		}
	}
	c.addf(field, "%q of %q is not an operation that takes time; use one of: %s", Clip(string(t.Verb)), Clip(string(t.Kind)), transitionNames())
}

func transitionNames() (all string) {
	for n, t := range Transitions() {
		if n > 0 {
			all += ", "
		}
		all += string(t.Kind) + " " + string(t.Verb)
	}
	return all
}

// Hold is a rule that delays the end of operations. A delayed operation ends after a caller has
// deleted the hold or released the operation. Until then the resource stays in its intermediate
// state, e.g. "stopping", and the operation stays in the state running. A hold also applies to work
// that began before the hold.
type Hold struct {
	ID HoldID `json:"id" example:"hold-000001"`
	Meta
	HoldSpec
}

// HoldSpec selects the work that a hold delays.
type HoldSpec struct {
	Transition
	Target string `json:"target,omitempty" maxLength:"128" example:"i-000001" doc:"Id of the only resource that the hold covers; absent for all resources"`
}

// Holds reports whether h delays the end of the operation o.
func (h Hold) Holds(o Operation) bool {
	return !o.Released && h.Covers(o.Kind, o.Verb) && (h.Target == "" || h.Target == o.Target)
}

// CreateHold requests a hold. The call is idempotent: the same request with the same name
// returns the existing hold.
type CreateHold struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"slow-stop" doc:"Unique in the cloud"`
	Labels map[string]string `json:"labels,omitempty" doc:"Labels of the hold"`
	HoldSpec
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateHold) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.labels(r.Labels)
	r.check(&c, "")
	c.optionalReference("target", r.Target)
	return c.err()
}

// MaxDuration is the maximum of WorkDuration.Millis.
const MaxDuration = 24 * 3600 * 1000

// WorkDuration sets the duration of new work of one type.
type WorkDuration struct {
	Transition
	Millis int64 `json:"millis" minimum:"0" maximum:"86400000" example:"30000" doc:"Duration in milliseconds; with 0, the work completes at once"`
}

// WorkDurations sets how long operations take. If several entries of Items cover an operation, the
// first of these entries sets the duration of the operation. If no entry covers an operation, the
// cloud's profile sets the duration. New durations do not change the end of running work.
type WorkDurations struct {
	Items []WorkDuration `json:"items" maxItems:"100" doc:"Durations of operations. For an operation, the cloud uses the first entry that matches its kind and verb"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r WorkDurations) Validate() error {
	var c checks
	if len(r.Items) > 100 {
		c.addf("items", "has %d entries, at most 100 are allowed", len(r.Items))
		return c.err()
	}
	for n, d := range r.Items {
		d.check(&c, fmt.Sprintf("items[%d].", n))
		if d.Millis < 0 || d.Millis > MaxDuration {
			c.addf(fmt.Sprintf("items[%d].millis", n), "must be between 0 and %d, got %d", MaxDuration, d.Millis)
		}
		if first := slices.IndexFunc(r.Items, func(o WorkDuration) bool { return o.Transition == d.Transition }); first < n {
			c.addf(fmt.Sprintf("items[%d]", n), "has the same kind and verb as items[%d]", first)
		}
	}
	return c.err()
}
