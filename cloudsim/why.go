package cloudsim

import "time"

// WhyOfRequest is the value of Why.Kind if the Why explains a request. No event has this kind.
const WhyOfRequest ResourceKind = "request"

// Why explains the state of an object or the effects of a request. For an object, it contains the
// past changes, and the conditions for which the object waits. For a request, it contains the calls
// of the request, the changes that these calls caused, and the faults that changed the calls.
//
// For a request, Name is the operation id of the call, for example instances.stop, and State is the
// outcome of the call. If the client repeated the request with the same request id, Why contains
// several calls. Name and State then describe the last call.
type Why struct {
	Kind  ResourceKind `json:"kind" doc:"Kind of the object, or the word request if the answer explains a request" example:"instance"`
	ID    string       `json:"id" example:"i-000001"`
	Name  string       `json:"name" example:"node-1"`
	State string       `json:"state,omitempty" doc:"Current state of the object, or the last state of a deleted object. For a request: the outcome of its last call" example:"stopping"`
	Gone  bool         `json:"gone,omitempty" doc:"Whether the object was deleted. The journal still has its events"`
	// Since is the revision up to which the cloud has deleted events from the
	// journal. Steps up to this revision are missing.
	Since uint64       `json:"since" doc:"Revision after which the journal begins. Earlier events were deleted"`
	Steps []WhyStep    `json:"steps" doc:"Last 500 events, oldest first"`
	Calls []AuditEntry `json:"calls,omitempty" doc:"Calls of the explained request, oldest first; several if the client repeated the request with the same id. Absent for an object, for a caller who may not read the audit trail, and if the calls are no longer in memory"`
	Waits []WhyWait    `json:"waits" doc:"Reasons for which the object waits, and faults that can change the next call about the object"`
}

// MaxWhySteps is the largest number of steps in a value of type Why.
const MaxWhySteps = 500

// WhyStep is one event about the explained object. The event reports a change of the object, a
// change of an operation on the object, or a fault that affected an API call for the object.
type WhyStep struct {
	Rev       uint64       `json:"rev" doc:"Position in the journal"`
	Time      time.Time    `json:"time" doc:"RFC 3339, on the cloud's clock"`
	Caller    string       `json:"caller,omitempty" doc:"Caller that caused the event; cloud if the cloud itself acted"`
	Cause     string       `json:"cause,omitempty" doc:"Cause of the event" example:"instances.stop"`
	RequestID string       `json:"requestId,omitempty"`
	Kind      ResourceKind `json:"kind" doc:"Kind of the changed object: the object itself, an operation on the object, or a fault that changed a call about the object"`
	ID        string       `json:"id" doc:"Id of the changed object"`
	Text      string       `json:"text" doc:"Description of the event, for people" example:"running → stopping"`
}

// WhyWait is one condition for which an object waits.
type WhyWait struct {
	ID    string     `json:"id,omitempty" doc:"Id of the operation, hold or fault" example:"hold-000001"`
	Until *time.Time `json:"until,omitempty" doc:"Time at which the wait ends; RFC 3339, on the cloud's clock. Absent if this time is not known, for example while a hold prevents the end"`
	Text  string     `json:"text" doc:"Description, for people" example:"hold slow-stop prevents the end of operation op-000002 (stop): release the operation, or delete the hold"`
}
