package cloudsim

import "time"

// State describes a saved state of the cloud. The file of the state contains the resources
// with their ids, addresses and open operations. It also contains the journal, the clock,
// the faults and the holds. The file contains the data of disks and snapshots only if
// SaveState.RecordsOnly was false.
type State struct {
	Name     string    `json:"name" example:"before-upgrade"`
	SavedAt  time.Time `json:"savedAt" doc:"RFC 3339, on the computer's clock"`
	Bytes    int64     `json:"bytes" doc:"Size of the state's file"`
	Revision uint64    `json:"revision" doc:"Journal revision of the saved cloud"`
	DiskData bool      `json:"diskData,omitempty" doc:"Whether the state contains the data of disks and snapshots"`
	Damage   string    `json:"damage,omitempty" doc:"Reason why the header of the state's file is unreadable. Only a load checks the whole file"`
}

// States is a list of all saved states, sorted by name.
type States struct {
	Items []State `json:"items"`
}

// SaveState is a request to save the current state of the cloud. The call returns Exists if
// a saved state with the same name exists.
type SaveState struct {
	Name string `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"before-upgrade"`
	// If RecordsOnly is true, the saved state does not contain the data of disks and snapshots.
	// After the cloud has loaded this state, a disk has the data of its current file. If the disk
	// has no file, the disk is empty.
	//
	// If RecordsOnly is false, the saved state contains the data of all disks at one instant. This
	// data is like the data of disks after a power cut. The call returns Conflict if the data is
	// larger than MaxStateData. It also returns Conflict if instances write so often that the cloud
	// cannot read all disks between two writes.
	RecordsOnly bool `json:"recordsOnly,omitempty" doc:"Leave out the data of disks and snapshots"`
}

// LoadState is a request to load a saved state.
type LoadState struct {
	// If RecordsOnly is true, the call does not change the data of the disks. If RecordsOnly is
	// false, the call replaces this data with the data in the saved state. In this case the call
	// returns Conflict while a disk is attached. Without this rule, an instance with a mounted disk
	// would continue to use the file that the call replaces.
	RecordsOnly bool
}

// MaxStateData is the largest total size of disk and snapshot data in a saved
// state, in bytes. Blocks of zeros do not count.
const MaxStateData = 4 << 30

// DataSize describes the data of one disk or one snapshot in a saved state.
type DataSize struct {
	Bytes int64
	// Optional is true if the data plane has not yet reported the creation of the disk's file. If
	// Optional is true and the file is missing, the saved state contains no data for the disk. If
	// Optional is false and the file is missing, the cloud cannot save the data and returns
	// NotFound.
	Optional bool
}

// StagedData describes the disk data of a saved state that the cloud is loading.
type StagedData struct {
	Folder string   // path of the new files, relative to the folder of disks; "" if there are no new files
	Keep   []string // ids of all disks and snapshots that have a file after the load
}

// Validate checks only the name. If the name is not valid, it returns an error of kind
// Invalid.
func (r SaveState) Validate() error {
	var c checks
	c.name("name", r.Name)
	return c.err()
}

// StateChange is one difference between two saved states.
type StateChange struct {
	Kind   ResourceKind `json:"kind" example:"instance"`
	ID     string       `json:"id" example:"i-000001"`
	Name   string       `json:"name" example:"node-1"`
	Change string       `json:"change" enum:"added,removed,changed" doc:"Change of the object from the first state to the second state"`
	Fields []string     `json:"fields,omitempty" doc:"The fields that differ; absent for added and removed objects"`
}

// StateDiff contains all differences between two saved states, sorted by kind and id.
type StateDiff struct {
	Items []StateChange `json:"items"`
}
