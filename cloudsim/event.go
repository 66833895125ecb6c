package cloudsim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// EventType describes the change of a resource.
type EventType string

const (
	EventPut    EventType = "put"    // created or changed; Object is the new value
	EventDelete EventType = "delete" // deleted; Object is the last value
	// EventBookmark reports no change. Its Rev is the revision of the last event that the
	// watch has read from the journal, even if the watch's filter left out this event. A
	// watcher can resume after this revision. The cloud sends bookmarks only to watchers
	// that request them.
	EventBookmark EventType = "bookmark"
)

// Event reports a change of a resource. Rev is the position of the event in the journal,
// which contains the events of all kinds and projects. A watcher stores the last Rev that
// it handled and resumes after this revision.
type Event struct {
	Rev  uint64    `json:"rev" doc:"Position in the cloud's journal"`
	Time time.Time `json:"time" doc:"RFC 3339, on the cloud's clock"`
	// MachineTime is the time of the event on the machine's clock, for comparisons with the logs of
	// other programs. If the cloud's clock shows the machine's time, MachineTime is zero.
	MachineTime time.Time       `json:"machineTime,omitzero" doc:"RFC 3339, on the computer's clock; absent if the cloud's clock shows the computer's time"`
	Type        EventType       `json:"type" enum:"put,delete,bookmark"`
	Kind        ResourceKind    `json:"kind" doc:"Kind of resource"`
	ID          string          `json:"id" doc:"Id of the resource"`
	Project     ProjectID       `json:"project,omitempty"`
	RequestID   string          `json:"requestId,omitempty" doc:"Id of the request that caused the event; absent if the cloud itself acted"`
	Caller      string          `json:"caller,omitempty" doc:"Caller that caused the event; cloud if the cloud itself acted"`
	Cause       string          `json:"cause,omitempty" doc:"Cause of the event: the id of the API operation, or the scheduled work with the id of its operation, such as settle op-000004. For a fault that changed a call: the API operation and its target" example:"instances.stop"`
	Object      json.RawMessage `json:"object,omitempty" doc:"The resource after the change, or its last value if it was deleted"`
}

// OnMachine returns the time of the event on the machine's clock.
func (e Event) OnMachine() time.Time {
	if e.MachineTime.IsZero() {
		return e.Time
	}
	return e.MachineTime
}

// ResourceKind names a kind of resource in events and operations.
type ResourceKind string

const (
	KindProject        ResourceKind = "project"
	KindToken          ResourceKind = "token"
	KindServiceAccount ResourceKind = "serviceAccount"
	KindRole           ResourceKind = "role"
	KindRoleBinding    ResourceKind = "roleBinding"
	KindRegion         ResourceKind = "region"
	KindZone           ResourceKind = "zone"
	KindInstanceType   ResourceKind = "instanceType"
	KindInstance       ResourceKind = "instance"
	KindAddress        ResourceKind = "address"
	KindLoadBalancer   ResourceKind = "loadBalancer"
	KindDiskType       ResourceKind = "diskType"
	KindDisk           ResourceKind = "disk"
	KindOperation      ResourceKind = "operation"

	KindNetwork ResourceKind = "network"
	KindSubnet  ResourceKind = "subnet"
	KindRoute   ResourceKind = "route"
)

// These constants are the kinds of disk pools, snapshots and snapshot groups.
const (
	KindDiskPool      ResourceKind = "diskPool"
	KindSnapshot      ResourceKind = "snapshot"
	KindSnapshotGroup ResourceKind = "snapshotGroup"
)

// ResourceKinds lists every kind that appears in events.
func ResourceKinds() []ResourceKind {
	return []ResourceKind{
		KindProject, KindToken, KindServiceAccount, KindRole, KindRoleBinding, KindSigningKey, KindWorkloadTrust, KindAccessKey,
		KindRegion, KindZone, KindInstanceType, KindInstance, KindAddress, KindLoadBalancer,
		KindNetwork, KindSubnet, KindRoute,
		KindDiskType, KindDiskPool, KindDisk, KindSnapshot, KindSnapshotGroup,
		KindRepository, KindRecord, KindMetadataTree, KindOperation, KindFault, KindHold,
	}
}

// CheckKinds returns Invalid if kinds contains a kind that never appears in
// events.
func CheckKinds(kinds []ResourceKind) error {
	all := ResourceKinds()
	for _, k := range kinds {
		if !slices.Contains(all, k) {
			return InvalidField("kind", fmt.Sprintf("%q is not a kind of resource: use one of %q", Clip(string(k)), all))
		}
	}
	return nil
}

// EventOptions select events for a list that begins with the newest event. The zero value
// selects the last DefaultPageSize events that the caller may see.
type EventOptions struct {
	Kinds     []ResourceKind // only these kinds; empty means all
	ID        string         // only events of the resource with this id
	RequestID string         // only events that the request with this id caused
	Before    uint64         // only events before this revision; 0 means all events
	Limit     int            // page size, at most MaxPageSize; 0 means DefaultPageSize
}

// WatchOptions select the events of a watch. The zero value selects all events
// that the caller may see and that are still in the journal.
type WatchOptions struct {
	Since uint64         // only events after this revision; 0 means all events in the journal
	Kinds []ResourceKind // only these kinds; empty means all
	ID    string         // only events of the resource with this id; empty means all
	// Bookmark is the interval between two bookmarks. The value 0 means no bookmarks. The watch
	// sends a bookmark when it has read the whole journal. After that, the watch sends one bookmark
	// per interval. For a client of the HTTP API, the cloud chooses the interval.
	Bookmark time.Duration
}
