package cloudsim

import "time"

// State is a saved cloud. It contains the resources with their ids, addresses
// and open operations, and the journal, clock, faults and holds. It also
// contains the data of disks and snapshots unless SaveState.RecordsOnly was
// set.
type State struct {
	Name     string    `json:"name" example:"before-upgrade"`
	SavedAt  time.Time `json:"savedAt" doc:"RFC 3339, on the machine's clock"`
	Bytes    int64     `json:"bytes" doc:"Size of the state's file"`
	Revision uint64    `json:"revision" doc:"Journal revision of the saved cloud"`
	DiskData bool      `json:"diskData,omitempty" doc:"The state contains the data of disks and snapshots"`
	Damage   string    `json:"damage,omitempty" doc:"Why the header of the state's file cannot be read. A load checks the whole file"`
}

// States is a list of all saved states, sorted by name.
type States struct {
	Items []State `json:"items"`
}

// SaveState is a request to save a state. It returns Exists if the name is taken.
type SaveState struct {
	Name string `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"before-upgrade"`
	// RecordsOnly leaves out the data of disks and snapshots. After a load a
	// disk has the data of its current file, or none. Without RecordsOnly the
	// state contains the data of all disks at one instant, as after a power
	// cut. The save returns Conflict if the disks hold more than MaxStateData,
	// or if a disk is written to all the time.
	RecordsOnly bool `json:"recordsOnly,omitempty" doc:"Leave out the data of disks and snapshots"`
}

// LoadState holds the options of a load.
type LoadState struct {
	// RecordsOnly leaves the data of disks as it is. Without RecordsOnly the
	// state's data replaces it, and the load returns Conflict while a disk is
	// attached: an instance that has it mounted would continue with the old file.
	RecordsOnly bool
}

// MaxStateData is the most data of disks and snapshots in a state, in bytes.
// Blocks of zeros do not count.
const MaxStateData = 4 << 30

// DataSize describes the data of a disk or snapshot in a save.
type DataSize struct {
	Bytes int64
	// Optional is true until the data plane has reported the file. If there is
	// no file, the save leaves the disk out.
	Optional bool
}

// StagedData is disk data that a load has prepared.
type StagedData struct {
	Folder string   // path of the new files, relative to the folder of disks; "" for none
	Keep   []string // ids of all disks and snapshots that have a file after the load
}

// Validate checks the name.
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
	Change string       `json:"change" enum:"added,removed,changed" doc:"How the second state differs from the first"`
	Fields []string     `json:"fields,omitempty" doc:"The fields that differ, for changed"`
}

// StateDiff is all differences between two states, sorted by kind and id.
type StateDiff struct {
	Items []StateChange `json:"items"`
}
