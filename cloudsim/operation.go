package cloudsim

import "time"

// OperationID names an operation, e.g. "op-000001".
type OperationID string

// OperationState is the lifecycle state of an operation.
type OperationState string

const (
	OperationPending OperationState = "pending" // accepted, not started
	OperationRunning OperationState = "running"
	OperationDone    OperationState = "done"
	OperationFailed  OperationState = "failed" // Error holds the reason

	OperationCancelled OperationState = "cancelled" // Error names the caller that cancelled the operation
)

// OperationStates lists every state.
func OperationStates() []OperationState {
	return []OperationState{OperationPending, OperationRunning, OperationDone, OperationFailed, OperationCancelled}
}

// Verb is an action on a resource.
type Verb string

const (
	Create    Verb = "create"
	Update    Verb = "update"
	Delete    Verb = "delete"
	Start     Verb = "start"
	Stop      Verb = "stop"
	Reboot    Verb = "reboot"
	Crash     Verb = "crash" // the machine of an instance loses its power
	Terminate Verb = "terminate"
	Attach    Verb = "attach"
	Detach    Verb = "detach"
	Resize    Verb = "resize"
	Modify    Verb = "modify"
	Copy      Verb = "copy"   // the planned time of the work has passed, but the cloud has not copied all data
	Vacate    Verb = "vacate" // the last attachment has ended
	Lose      Verb = "lose"   // the next hop of a route does not run any more
	Regain    Verb = "regain" // the next hop of a route runs again
	Retire    Verb = "retire" // a newer signing key replaces this signing key
	Settle    Verb = "settle" // the simulated hardware has finished the work
	Fail      Verb = "fail"   // the simulated hardware has failed to do the work
	Cancel    Verb = "cancel" // a caller has cancelled the operation before its end
)

// operationMoves lists every allowed transition of an operation. Move returns
// Conflict for a verb that is not listed for the current state.
var operationMoves = map[OperationState]map[Verb]OperationState{
	OperationPending: {Start: OperationRunning, Fail: OperationFailed},
	OperationRunning: {Settle: OperationDone, Fail: OperationFailed, Cancel: OperationCancelled},
}

// Operation describes slow work that the cloud has accepted. It contains the caller, the
// target and the progress. Operations continue after a restart of the cloud.
type Operation struct {
	ID OperationID `json:"id" example:"op-000001"`
	Meta
	Verb      Verb            `json:"verb" doc:"Verb of the operation" example:"stop"`
	Kind      ResourceKind    `json:"kind" doc:"Kind of the operation's resource" example:"instance"`
	Target    string          `json:"target" doc:"Id of the operation's resource" example:"i-000001"`
	State     OperationState  `json:"state" enum:"pending,running,done,failed,cancelled"`
	RequestID string          `json:"requestId" doc:"Id of the request that began the operation"`
	Caller    string          `json:"caller" doc:"Name of the caller that began the operation: a service account, or a token without a service account; cloud if the cloud itself began it"`
	EndedAt   *time.Time      `json:"endedAt,omitempty" doc:"RFC 3339; absent until the operation is over"`
	Error     *OperationError `json:"error,omitempty" doc:"Reason of the failure or the cancellation"`

	DueAt    *time.Time `json:"dueAt,omitempty" doc:"RFC 3339; expected end. Absent for operations without a duration"`
	Percent  int        `json:"percent" doc:"Share of the duration that has passed, in percent; 100 only if the operation is done" example:"40"`
	HeldBy   string     `json:"heldBy,omitempty" doc:"Id of the hold or fault that keeps the operation unfinished. The id of a hold is absent until the operation is due" example:"hold-000001"`
	Released bool       `json:"released,omitempty" doc:"Whether the operation was released. Holds and faults do not keep a released operation unfinished"`
}

// OperationError is the reason why an operation failed or was cancelled.
type OperationError struct {
	Kind   Kind   `json:"kind" doc:"Class of the failure, as in error replies"`
	Detail string `json:"detail"`
}

// Over reports whether o has ended, with or without success.
func (o Operation) Over() bool {
	return o.State == OperationDone || o.State == OperationFailed || o.State == OperationCancelled
}

// PercentAt returns the progress of o at the time now, in percent. It returns 100 only for an
// operation that is done. For an operation that failed or was cancelled, it returns the progress at
// the end of the operation. For an unfinished operation that is due or has no duration, it returns
// 99.
func (o Operation) PercentAt(now time.Time) int {
	switch {
	case o.State == OperationDone:
		return 100
	case o.Over():
		return o.Percent // the progress at the end of the operation
	case o.DueAt == nil || !now.Before(*o.DueAt):
		return 99
	}
	all := o.DueAt.Sub(o.CreatedAt)
	return min(99, max(0, int(100*float64(now.Sub(o.CreatedAt))/float64(all))))
}

// Move applies verb to o. If o's state does not allow verb, Move returns Conflict and does not
// change o.
func (o *Operation) Move(verb Verb) error {
	return changeState(&o.State, operationMoves, verb, KindOperation, string(o.ID))
}

// changeState implements the Move methods. It returns Conflict if the map moves has no transition
// for the verb in the current state.
func changeState[S ~string](state *S, moves map[S]map[Verb]S, verb Verb, kind ResourceKind, id string) error {
	next, ok := moves[*state][verb]
	if !ok {
		return Errorf(Conflict, "cannot %s %s %s: it is %s", verb, kind, id, *state)
	}
	*state = next
	return nil
}
