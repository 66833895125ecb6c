package cloudsim

import (
	"regexp"
	"time"
)

// State is the whole cloud as it was at a time: its resources with their ids,
// addresses and open operations, its journal, clock, faults and holds, and the
// data of disks and snapshots, unless it was saved without; see SaveState.
type State struct {
	Name     string    `json:"name" example:"before-upgrade"`
	SavedAt  time.Time `json:"savedAt" doc:"RFC 3339, on the machine's clock"`
	Bytes    int64     `json:"bytes" doc:"What it takes on the machine"`
	Revision uint64    `json:"revision" doc:"The journal revision that it was saved at"`
	DiskData bool      `json:"diskData,omitempty" doc:"The data of disks and snapshots is in it"`
	Damage   string    `json:"damage,omitempty" doc:"Why its file cannot be read; absent for one that seems whole. All of it is checked when it is loaded"`
}

// States is every state that was saved, sorted by name.
type States struct {
	Items []State `json:"items"`
}

// SaveState asks for a state to be saved. A name that is taken is Exists.
type SaveState struct {
	Name string `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"before-upgrade"`
	// RecordsOnly leaves out the data of disks and snapshots. After a load a
	// disk has the data that its file has then, or has lost it. Without it all
	// of them are saved as they are at one instant, as a power cut would leave
	// them, and it is a Conflict if they hold more than MaxStateData, or if one
	// is written to all the time.
	RecordsOnly bool `json:"recordsOnly,omitempty" doc:"Leave out the data of disks and snapshots"`
}

// LoadState says how a state is loaded.
type LoadState struct {
	// RecordsOnly leaves the data of disks as it is. Without it the data of the
	// state takes its place, and it is a Conflict while a disk is attached: who
	// has it mounted would go on with the data of before.
	RecordsOnly bool
}

const (
	// MaxStateData bounds the data in a state, in bytes; holes do not count.
	MaxStateData = 4 << 30
	// StateBlock is the size of the pieces that data is kept and sent in.
	StateBlock = 4 << 10
	// StateDataList is the file, in a folder of data, that says what is in it.
	StateDataList = "data.json"
)

// StateData says which data of disks and snapshots is in a state.
type StateData struct {
	Files []StateFile `json:"files"`
}

// StateFile is the data of one disk or snapshot.
type StateFile struct {
	ID        string `json:"id"`
	SizeBytes int64  `json:"sizeBytes"`
	Blocks    int64  `json:"blocks"` // of StateBlock bytes that are not all zero
	SHA256    string `json:"sha256"` // of those blocks, each with its offset before it, 8 bytes, big endian
}

// DataSize is how much data a disk or snapshot has that is about to be saved.
type DataSize struct {
	Bytes int64
	// Unsaid is set while the data plane has not said that there is a file.
	// Without one nobody wrote to the disk yet, and nothing is saved of it.
	Unsaid bool
}

var stateFileID = regexp.MustCompile(`^(disk|snap)-[0-9a-f]{6,16}$`)

// Validate reports, as Invalid, what no saved state says.
func (d StateData) Validate() error {
	seen, bytes := map[string]bool{}, int64(0)
	for _, f := range d.Files {
		if !stateFileID.MatchString(f.ID) || seen[f.ID] {
			return Errorf(Invalid, "the state is damaged: it has data of %.40q", f.ID)
		}
		seen[f.ID] = true
		if f.SizeBytes < 0 || f.SizeBytes%StateBlock != 0 || f.SizeBytes > MaxDiskGiB<<30 || f.Blocks < 0 || f.Blocks > f.SizeBytes/StateBlock {
			return Errorf(Invalid, "the state is damaged: %s has %d blocks of %d bytes", f.ID, f.Blocks, f.SizeBytes)
		}
		if bytes += f.Blocks * StateBlock; bytes > MaxStateData {
			return Errorf(Invalid, "the state has more than %d GiB of data", MaxStateData>>30)
		}
	}
	return nil
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
