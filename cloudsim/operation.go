package cloudsim

import "time"

// OperationID names an operation, e.g. "op-000001".
type OperationID string

// OperationState is where a piece of slow work is.
type OperationState string

const (
	OperationPending OperationState = "pending" // accepted, not begun
	OperationRunning OperationState = "running"
	OperationDone    OperationState = "done"
	OperationFailed  OperationState = "failed" // Error says why

	OperationCancelled OperationState = "cancelled" // called off; Error says by whom
)

// Verb is what happens to a resource.
type Verb string

const (
	Create    Verb = "create"
	Update    Verb = "update"
	Delete    Verb = "delete"
	Start     Verb = "start"
	Stop      Verb = "stop"
	Reboot    Verb = "reboot"
	Crash     Verb = "crash" // the power is cut, and nobody was asked
	Terminate Verb = "terminate"
	Attach    Verb = "attach"
	Detach    Verb = "detach"
	Resize    Verb = "resize"
	Modify    Verb = "modify"
	Copy      Verb = "copy"   // its time is over, its data not whole
	Vacate    Verb = "vacate" // nothing is attached any more
	Lose      Verb = "lose"   // the next hop does not run any more
	Regain    Verb = "regain" // it runs again
	Retire    Verb = "retire" // a newer one took its place
	Settle    Verb = "settle" // the simulated hardware finished
	Fail      Verb = "fail"   // the simulated hardware gave up
	Cancel    Verb = "cancel" // called off before it settled
)

// operationMoves is the whole life of an operation.
var operationMoves = map[OperationState]map[Verb]OperationState{
	OperationPending: {Start: OperationRunning, Fail: OperationFailed},
	OperationRunning: {Settle: OperationDone, Fail: OperationFailed, Cancel: OperationCancelled},
}

// Operation is slow work that was accepted: who asked for it, on what, and how
// far it is. Operations outlive a restart of the cloud.
type Operation struct {
	ID OperationID `json:"id" example:"op-000001"`
	Meta
	Verb      Verb            `json:"verb" doc:"What is being done" example:"stop"`
	Kind      ResourceKind    `json:"kind" doc:"Kind of the resource it works on" example:"instance"`
	Target    string          `json:"target" doc:"Id of the resource it works on" example:"i-000001"`
	State     OperationState  `json:"state" enum:"pending,running,done,failed,cancelled"`
	RequestID string          `json:"requestId" doc:"The request that asked for it"`
	Caller    string          `json:"caller" doc:"Name of the token that asked for it"`
	EndedAt   *time.Time      `json:"endedAt,omitempty" doc:"RFC 3339; absent while it is not over"`
	Error     *OperationError `json:"error,omitempty" doc:"Why it failed, or who called it off"`

	DueAt    *time.Time `json:"dueAt,omitempty" doc:"RFC 3339; when it is due to be over. Absent for what takes no time"`
	Percent  int        `json:"percent" doc:"How much of its time has passed; 100 only when it is done" example:"40"`
	HeldBy   string     `json:"heldBy,omitempty" doc:"Id of the hold, or fault, that keeps it from ending though it is due" example:"hold-000001"`
	Released bool       `json:"released,omitempty" doc:"It was released: no hold keeps it any more"`
}

// OperationError says why an operation failed.
type OperationError struct {
	Kind   Kind   `json:"kind" doc:"Class of the failure, as in error replies"`
	Detail string `json:"detail"`
}

// Over reports whether o has ended, well or not.
func (o Operation) Over() bool {
	return o.State == OperationDone || o.State == OperationFailed || o.State == OperationCancelled
}

// PercentAt is how much of o's time has passed at now: 100 is done, and
// nothing else is. It is the truth, because time is all that work takes.
func (o Operation) PercentAt(now time.Time) int {
	switch {
	case o.State == OperationDone:
		return 100
	case o.Over():
		return o.Percent // where it was called off
	case o.DueAt == nil || !now.Before(*o.DueAt):
		return 99
	}
	all := o.DueAt.Sub(o.CreatedAt)
	return min(99, max(0, int(100*float64(now.Sub(o.CreatedAt))/float64(all))))
}

// Move applies verb, or returns Conflict and leaves o as it was.
func (o *Operation) Move(verb Verb) error {
	return move(&o.State, operationMoves, verb, KindOperation, string(o.ID))
}

// move is the one reader of the tables of moves.
func move[S ~string](state *S, moves map[S]map[Verb]S, verb Verb, kind ResourceKind, id string) error {
	next, ok := moves[*state][verb]
	if !ok {
		return Errorf(Conflict, "cannot %s %s %s: it is %s", verb, kind, id, *state)
	}
	*state = next
	return nil
}
