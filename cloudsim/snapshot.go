package cloudsim

import "regexp"

// SnapshotID names a snapshot, e.g. "snap-000001". It is never used again.
type SnapshotID string

// SnapshotState is where a snapshot, or a group of them, is in its life.
type SnapshotState string

const (
	SnapshotCreating SnapshotState = "creating"
	SnapshotCopying  SnapshotState = "copying" // its time is over, its data is not whole yet
	SnapshotReady    SnapshotState = "ready"
	SnapshotFailed   SnapshotState = "failed" // its data was never whole and cannot become so
	SnapshotDeleting SnapshotState = "deleting"
	// SnapshotDeleted is the last value of a snapshot, in the event that says
	// it is gone; the API answers NotFound for it.
	SnapshotDeleted SnapshotState = "deleted"
)

// snapshotMoves is the whole life of a snapshot and of a group.
var snapshotMoves = map[SnapshotState]map[Verb]SnapshotState{
	SnapshotCreating: {Settle: SnapshotReady, Cancel: SnapshotDeleting, Copy: SnapshotCopying, Delete: SnapshotDeleting},
	SnapshotCopying:  {Settle: SnapshotReady, Cancel: SnapshotDeleting, Fail: SnapshotFailed, Delete: SnapshotDeleting},
	SnapshotReady:    {Delete: SnapshotDeleting},
	SnapshotFailed:   {Delete: SnapshotDeleting},
	SnapshotDeleting: {Settle: SnapshotDeleted},
}

// SnapshotStates lists every state, for tests and help.
func SnapshotStates() []SnapshotState {
	return []SnapshotState{
		SnapshotCreating, SnapshotCopying, SnapshotReady, SnapshotFailed, SnapshotDeleting, SnapshotDeleted,
	}
}

// Snapshot is what a disk held at one instant between the request for it and
// its being ready: what an instance had written by then, as after a power cut.
// It needs the disk no more once it is ready.
type Snapshot struct {
	ID SnapshotID `json:"id" example:"snap-000001"`
	Meta
	Disk       DiskID          `json:"disk" doc:"The disk it was taken of, which may be gone" example:"disk-000001"`
	Region     string          `json:"region" doc:"Disks can be made from it in all zones of this region" example:"sim-1"`
	SizeGiB    int             `json:"sizeGiB" doc:"Size of the disk then: the least that a disk made from it has, in GiB" example:"10"`
	State      SnapshotState   `json:"state" enum:"creating,copying,ready,failed,deleting,deleted"`
	ReadyToUse bool            `json:"readyToUse" doc:"Whether disks can be made from it"`
	Group      SnapshotGroupID `json:"group,omitempty" doc:"The group that it was taken with and is deleted with"`
	Status     DiskStatus      `json:"status" doc:"What the data plane made of it"`
}

// Move applies verb, or returns Conflict and leaves s as it was.
func (s *Snapshot) Move(verb Verb) error {
	err := move(&s.State, snapshotMoves, verb, KindSnapshot, string(s.ID))
	s.ReadyToUse = s.State == SnapshotReady
	return err
}

// snapshotNameRE is how the cloud itself names the members of a group.
var snapshotNameRE = regexp.MustCompile(`^snap-[0-9a-f]{6,}$`)

// CreateSnapshot asks for a snapshot. Asking again with the same name and the
// same words returns the first one; with other words it is Exists.
type CreateSnapshot struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"before-upgrade"`
	Disk   DiskID            `json:"disk" maxLength:"128" doc:"The disk to take it of, attached or not" example:"disk-000001"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Validate checks what needs no other state.
func (r CreateSnapshot) Validate() error {
	var c checks
	c.name("name", r.Name)
	if snapshotNameRE.MatchString(r.Name) {
		c.addf("name", "must not look like an id: the cloud names the members of groups so")
	}
	c.reference("disk", string(r.Disk))
	c.labels(r.Labels)
	return c.err()
}

// SnapshotReport is what the data plane found of one snapshot.
type SnapshotReport struct {
	ID     SnapshotID
	Status DiskStatus
}
