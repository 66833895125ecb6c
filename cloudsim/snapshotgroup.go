package cloudsim

import "slices"

// SnapshotGroupID names a group of snapshots, e.g. "sgrp-000001". The cloud reuses an id only after
// a user has loaded a saved state or reset the cloud.
type SnapshotGroupID string

// SnapshotGroup is a set of snapshots of several disks. All snapshots of a group contain
// the data of the same instant. Either all these snapshots become ready together, or
// none of them becomes ready. The cloud deletes all snapshots of a group together.
type SnapshotGroup struct {
	ID SnapshotGroupID `json:"id" example:"sgrp-000001"`
	Meta
	Disks      []DiskID      `json:"disks" doc:"Ids of the source disks, sorted"`
	Snapshots  []SnapshotID  `json:"snapshots" doc:"Ids of the group's snapshots, in the order of disks"`
	State      SnapshotState `json:"state" enum:"creating,copying,ready,failed,deleting,deleted"`
	ReadyToUse bool          `json:"readyToUse" doc:"Whether disks can be created from all snapshots of the group"`
}

// Move applies verb to g and updates ReadyToUse. If g's state does not allow verb, Move returns
// Conflict and does not change g.
func (g *SnapshotGroup) Move(verb Verb) error {
	err := changeState(&g.State, snapshotMoves, verb, KindSnapshotGroup, string(g.ID))
	g.ReadyToUse = g.State == SnapshotReady
	return err
}

// MaxGroupDisks is the largest number of disks in a group.
const MaxGroupDisks = 32

// CreateSnapshotGroup requests snapshots of several disks at one instant. The
// call is idempotent: the same request with the same name returns the existing
// group. The order of the disks does not matter. A different request with the
// same name returns Exists.
type CreateSnapshotGroup struct {
	Name   string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"nightly"`
	Disks  []DiskID          `json:"disks" maxItems:"32" doc:"Ids of the source disks, attached or not, without duplicates" example:"[\"disk-000001\",\"disk-000002\"]"`
	Labels map[string]string `json:"labels,omitempty" doc:"Labels of the group and of its snapshots"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateSnapshotGroup) Validate() error {
	var c checks
	c.name("name", r.Name)
	if len(r.Disks) < 1 || len(r.Disks) > MaxGroupDisks {
		c.addf("disks", "must have 1 to %d entries, got %d", MaxGroupDisks, len(r.Disks))
		return c.err()
	}
	for i, d := range r.Disks {
		switch {
		case d == "":
			c.addf("disks", "has an empty id at index %d", i)
		case slices.Contains(r.Disks[:i], d):
			c.addf("disks", "has the duplicate %s", Clip(string(d)))
		}
	}
	c.labels(r.Labels)
	return c.err()
}
