package cloudsim

import "time"

// State is the whole cloud as it was at a time: its resources with their ids,
// addresses and open operations, its journal, clock, faults and holds. The
// data of disks is not in it; see SaveState.
type State struct {
	Name     string    `json:"name" example:"before-upgrade"`
	SavedAt  time.Time `json:"savedAt" doc:"RFC 3339, on the machine's clock"`
	Bytes    int64     `json:"bytes" doc:"What it takes on the machine"`
	Revision uint64    `json:"revision" doc:"The journal revision that it was saved at"`
	Damage   string    `json:"damage,omitempty" doc:"Why its file cannot be read; absent for one that seems whole. All of it is checked when it is loaded"`
}

// States is every state that was saved, sorted by name.
type States struct {
	Items []State `json:"items"`
}

// SaveState asks for a state to be saved. A name that is taken is Exists.
type SaveState struct {
	Name string `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"before-upgrade"`
	// RecordsOnly agrees that the data of disks is not saved: without it, a
	// cloud with disks is a Conflict. After a load a disk has the data that
	// its file has then, or has lost it.
	RecordsOnly bool `json:"recordsOnly,omitempty" doc:"Agree that the data of disks is not in the state; required when there are disks"`
}

// Validate checks what needs no other state.
func (r SaveState) Validate() error {
	var c checks
	c.name("name", r.Name)
	return c.err()
}

// StateChange is one difference between two states.
type StateChange struct {
	Kind   ResourceKind `json:"kind" example:"instance"`
	ID     string       `json:"id" example:"i-000001"`
	Name   string       `json:"name" example:"node-1"`
	Change string       `json:"change" enum:"added,removed,changed" doc:"What the second state has of it that the first has not"`
	Fields []string     `json:"fields,omitempty" doc:"The members that differ, for changed"`
}

// StateDiff is every difference between two states, by kind and id.
type StateDiff struct {
	Items []StateChange `json:"items"`
}
