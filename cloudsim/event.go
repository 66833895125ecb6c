package cloudsim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// EventType says what happened to a resource.
type EventType string

const (
	EventPut    EventType = "put"    // created or changed; Object is its new value
	EventDelete EventType = "delete" // gone; Object is its last value
	// EventBookmark is no change: Rev says how far the watch has read, so that
	// who filters may resume from there. Only who asks for bookmarks gets them.
	EventBookmark EventType = "bookmark"
)

// Event says that a resource changed. Rev orders all events of a cloud, across
// kinds and projects; a watcher that remembers the last Rev it handled resumes
// after it.
type Event struct {
	Rev       uint64          `json:"rev" doc:"Position in the cloud's journal"`
	Time      time.Time       `json:"time" doc:"RFC 3339, on the cloud's clock"`
	Type      EventType       `json:"type" enum:"put,delete,bookmark"`
	Kind      ResourceKind    `json:"kind" doc:"Kind of resource"`
	ID        string          `json:"id" doc:"Id of the resource"`
	Project   ProjectID       `json:"project,omitempty"`
	RequestID string          `json:"requestId,omitempty" doc:"The request that caused it; absent when the cloud itself acted"`
	Caller    string          `json:"caller,omitempty" doc:"Who caused it; cloud when the cloud itself acted"`
	Cause     string          `json:"cause,omitempty" doc:"What caused it: the operation of the API and its target, or the work that fell due" example:"instances.stop i-000001"`
	Object    json.RawMessage `json:"object,omitempty" doc:"The resource after the change, or its last value when deleted"`
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

// Kinds of what is made of disks, and of what disks are made of.
const (
	KindDiskPool      ResourceKind = "diskPool"
	KindSnapshot      ResourceKind = "snapshot"
	KindSnapshotGroup ResourceKind = "snapshotGroup"
)

// ResourceKinds are all of them, as events speak of them.
func ResourceKinds() []ResourceKind {
	return []ResourceKind{
		KindProject, KindToken, KindServiceAccount, KindRole, KindRoleBinding, KindSigningKey, KindWorkloadTrust,
		KindRegion, KindZone, KindInstanceType, KindInstance, KindAddress, KindLoadBalancer,
		KindNetwork, KindSubnet, KindRoute,
		KindDiskType, KindDiskPool, KindDisk, KindSnapshot, KindSnapshotGroup,
		KindRepository, KindOperation, KindFault, KindHold,
	}
}

// CheckKinds is Invalid for kinds of which there never is an event.
func CheckKinds(kinds []ResourceKind) error {
	all := ResourceKinds()
	for _, k := range kinds {
		if !slices.Contains(all, k) {
			return InvalidField("kind", fmt.Sprintf("%q is no kind of resource: there are %q", clip(string(k)), all))
		}
	}
	return nil
}

// WatchOptions choose what a watch sees. The zero value sees all that the
// caller may see, from the first event that the journal still has.
type WatchOptions struct {
	Since uint64         // events after this revision; 0 is all that the journal has
	Kinds []ResourceKind // only these kinds; none means all
	// Bookmark asks for a bookmark when the watch has caught up, and whenever
	// that long went by without an event; 0 asks for none. Across the wire the
	// cloud chooses how long.
	Bookmark time.Duration
}
