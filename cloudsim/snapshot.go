package cloudsim

import "regexp"

// SnapshotID names a snapshot, e.g. "snap-000001". The cloud reuses an id only after a user has
// loaded a saved state or reset the cloud.
type SnapshotID string

// SnapshotState is the lifecycle state of a snapshot or of a snapshot group.
type SnapshotState string

const (
	SnapshotCreating SnapshotState = "creating"
	SnapshotCopying  SnapshotState = "copying" // the planned time of the creation has passed, but the cloud has not copied all data
	SnapshotReady    SnapshotState = "ready"
	SnapshotFailed   SnapshotState = "failed" // the copy of the data failed permanently
	SnapshotDeleting SnapshotState = "deleting"
	// SnapshotDeleted is the final state of a snapshot. Only the event of the
	// deletion contains this state. After the deletion the API answers
	// NotFound for the snapshot.
	SnapshotDeleted SnapshotState = "deleted"
)

// snapshotMoves lists every allowed transition of a snapshot and of a snapshot
// group. Move returns Conflict for a verb that is not listed for the current
// state.
var snapshotMoves = map[SnapshotState]map[Verb]SnapshotState{
	SnapshotCreating: {Settle: SnapshotReady, Cancel: SnapshotDeleting, Copy: SnapshotCopying, Delete: SnapshotDeleting},
	SnapshotCopying:  {Settle: SnapshotReady, Cancel: SnapshotDeleting, Fail: SnapshotFailed, Delete: SnapshotDeleting},
	SnapshotReady:    {Delete: SnapshotDeleting},
	SnapshotFailed:   {Delete: SnapshotDeleting},
	SnapshotDeleting: {Settle: SnapshotDeleted},
}

// SnapshotStates lists every state.
func SnapshotStates() []SnapshotState {
	return []SnapshotState{
		SnapshotCreating, SnapshotCopying, SnapshotReady, SnapshotFailed, SnapshotDeleting, SnapshotDeleted,
	}
}

// Snapshot is the content of a disk at one instant. This instant is after the request for the
// snapshot, and before the snapshot reaches the state ready. The content is crash-consistent, as
// after a power cut. A snapshot in the state ready does not depend on the disk.
type Snapshot struct {
	ID SnapshotID `json:"id" example:"snap-000001"`
	Meta
	Disk       DiskID          `json:"disk" doc:"Id of the source disk. This disk may no longer exist" example:"disk-000001"`
	Region     string          `json:"region" doc:"Region. Disks can be created from the snapshot in all zones of this region" example:"sim-1"`
	SizeGiB    int             `json:"sizeGiB" doc:"Size of the source disk in GiB when the snapshot was created. A disk from this snapshot has at least this size" example:"10"`
	State      SnapshotState   `json:"state" enum:"creating,copying,ready,failed,deleting,deleted"`
	ReadyToUse bool            `json:"readyToUse" doc:"Whether disks can be created from the snapshot"`
	Group      SnapshotGroupID `json:"group,omitempty" doc:"Id of the snapshot's group. The group is created and deleted as a whole"`
	Status     DiskStatus      `json:"status" doc:"State of the data, as the data plane reports it"`
}

// Move applies verb to s and updates ReadyToUse. If s's state does not allow verb, Move returns
// Conflict and does not change s.
func (s *Snapshot) Move(verb Verb) error {
	err := changeState(&s.State, snapshotMoves, verb, KindSnapshot, string(s.ID))
	s.ReadyToUse = s.State == SnapshotReady
	return err
}

// snapshotNameRE matches the names that the cloud itself gives to the snapshots of a
// snapshot group.
var snapshotNameRE = regexp.MustCompile(`^snap-[0-9a-f]{6,}$`)

// CreateSnapshot requests a snapshot. The call is idempotent: the same request
// with the same name returns the existing snapshot. A different request with
// the same name returns Exists.
type CreateSnapshot struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"before-upgrade"`
	Disk   DiskID            `json:"disk" maxLength:"128" doc:"Id of the source disk, attached or not" example:"disk-000001"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateSnapshot) Validate() error {
	var c checks
	c.name("name", r.Name)
	if snapshotNameRE.MatchString(r.Name) {
		c.addf("name", "must not have the form of a snapshot id: the cloud uses such names for the snapshots of a group")
	}
	c.reference("disk", string(r.Disk))
	c.labels(r.Labels)
	return c.err()
}

// SnapshotReport is the data plane's report about one snapshot.
type SnapshotReport struct {
	ID     SnapshotID
	Status DiskStatus
}
