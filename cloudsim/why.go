package cloudsim

import "time"

// Why explains the state of an object: the past changes, and the conditions for
// which the object waits.
type Why struct {
	Kind  ResourceKind `json:"kind" example:"instance"`
	ID    string       `json:"id" example:"i-000001"`
	Name  string       `json:"name" example:"node-1"`
	State string       `json:"state,omitempty" doc:"Its state now, or its last one" example:"stopping"`
	Gone  bool         `json:"gone,omitempty" doc:"It is no more; the journal still has its life"`
	// Since is the revision up to which the cloud has deleted events from the
	// journal. Steps of that time are missing.
	Since uint64    `json:"since" doc:"The revision after which the journal begins; what was before is forgotten"`
	Steps []WhyStep `json:"steps" doc:"What happened, oldest first; the last 500"`
	Waits []WhyWait `json:"waits" doc:"What it waits for now, and what would meet the next call about it"`
}

// MaxWhySteps is the largest number of steps in a Why.
const MaxWhySteps = 500

// WhyStep is one change of an object, or a change that the object caused.
type WhyStep struct {
	Rev       uint64       `json:"rev" doc:"Position in the journal"`
	Time      time.Time    `json:"time" doc:"RFC 3339, on the cloud's clock"`
	Caller    string       `json:"caller,omitempty" doc:"Caller that caused the event; cloud if the cloud itself acted"`
	Cause     string       `json:"cause,omitempty" doc:"What caused it" example:"instances.stop"`
	RequestID string       `json:"requestId,omitempty"`
	Kind      ResourceKind `json:"kind" doc:"Of what changed: the object itself, an operation on it, a fault that struck a call about it"`
	ID        string       `json:"id" doc:"Of what changed"`
	Text      string       `json:"text" doc:"What happened, for a person" example:"running → stopping"`
}

// WhyWait is one condition for which an object waits.
type WhyWait struct {
	ID    string     `json:"id,omitempty" doc:"Of the operation, hold or fault" example:"hold-000001"`
	Until *time.Time `json:"until,omitempty" doc:"RFC 3339, on the cloud's clock; absent when nothing but a person ends it"`
	Text  string     `json:"text" doc:"For a person" example:"hold slow-stop keeps its stop from settling"`
}
