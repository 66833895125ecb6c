package cloudsim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// DiskID names a disk, e.g. "disk-000001". The cloud reuses an id only after a user has loaded a
// saved state or reset the cloud.
type DiskID string

// DiskLinks is a folder on each machine. For each attached disk, the folder contains a
// symbolic link to the device of the disk.
const DiskLinks = "/dev/disk/by-id"

// Link returns the path of the symbolic link to the disk's device, in the folder DiskLinks.
func (id DiskID) Link() string { return DiskLinks + "/cloudsim-" + string(id) }

// DiskState is the lifecycle state of a disk. Only one operation on a disk, e.g. a resize,
// can run at a time. Each attachment also has its own state.
type DiskState string

const (
	DiskCreating  DiskState = "creating"
	DiskCopying   DiskState = "copying"   // the planned time of the creation has passed, but the cloud has not copied all data of the source
	DiskFailed    DiskState = "failed"    // the copy of the source's data failed permanently
	DiskAvailable DiskState = "available" // no attachments
	DiskAttaching DiskState = "attaching"
	DiskInUse     DiskState = "in-use" // at least one attachment
	DiskDetaching DiskState = "detaching"
	DiskResizing  DiskState = "resizing"  // an attached disk can also be in this state
	DiskModifying DiskState = "modifying" // an attached disk can also be in this state
	DiskDeleting  DiskState = "deleting"
	// DiskDeleted is the final state of a disk. Only the event of the deletion contains
	// this state. After the deletion the API answers NotFound for the disk.
	DiskDeleted DiskState = "deleted"
)

// diskMoves lists every allowed transition of a disk. Move returns Conflict for a verb that is not
// listed for the current state, e.g. Delete for an attached disk. Each attachment, detachment,
// resize and modification ends in the state DiskInUse. If the disk then has no attachments, the
// engine at once applies the verb Vacate, which changes the state to DiskAvailable.
var diskMoves = map[DiskState]map[Verb]DiskState{
	DiskCreating:  {Settle: DiskAvailable, Cancel: DiskDeleting, Copy: DiskCopying, Delete: DiskDeleting},
	DiskCopying:   {Settle: DiskAvailable, Cancel: DiskDeleting, Fail: DiskFailed, Delete: DiskDeleting},
	DiskFailed:    {Delete: DiskDeleting},
	DiskAvailable: {Attach: DiskAttaching, Resize: DiskResizing, Modify: DiskModifying, Delete: DiskDeleting},
	DiskAttaching: {Settle: DiskInUse, Cancel: DiskInUse, Detach: DiskDetaching},
	DiskInUse:     {Attach: DiskAttaching, Detach: DiskDetaching, Resize: DiskResizing, Modify: DiskModifying, Vacate: DiskAvailable},
	DiskDetaching: {Settle: DiskInUse, Cancel: DiskInUse},
	DiskResizing:  {Settle: DiskInUse},
	DiskModifying: {Settle: DiskInUse},
	DiskDeleting:  {Settle: DiskDeleted},
}

// DiskStates lists every state.
func DiskStates() []DiskState {
	return []DiskState{
		DiskCreating, DiskCopying, DiskFailed, DiskAvailable, DiskAttaching, DiskInUse,
		DiskDetaching, DiskResizing, DiskModifying, DiskDeleting, DiskDeleted,
	}
}

// AttachmentState is the lifecycle state of an attachment.
type AttachmentState string

const (
	AttachmentAttaching AttachmentState = "attaching"
	AttachmentAttached  AttachmentState = "attached"
	AttachmentDetaching AttachmentState = "detaching"
)

// Attachment describes a disk's attachment to one instance.
type Attachment struct {
	Instance InstanceID      `json:"instance" example:"i-000001"`
	ReadOnly bool            `json:"readOnly,omitempty" doc:"Whether the attachment is read-only"`
	Device   string          `json:"device" doc:"Device name on the instance: the first free name" example:"vdb"`
	State    AttachmentState `json:"state" enum:"attaching,attached,detaching"`
	Ready    bool            `json:"ready,omitempty" doc:"Whether the machine of the instance has the device. Only attachments to instances whose hypervisor reports devices have this field"`
	Error    string          `json:"error,omitempty" doc:"Reason why the hypervisor could not add or remove the device"`
}

// Disk is a block device that outlives the instances to which it is attached. A
// zonal disk is in one zone. A regional disk is replicated in two zones of one
// region.
type Disk struct {
	ID DiskID `json:"id" example:"disk-000001"`
	Meta
	Zone            string       `json:"zone,omitempty" doc:"Zone of the instances that can attach the disk; absent for a regional disk" example:"sim-1a"`
	ReplicaZones    []string     `json:"replicaZones,omitempty" doc:"The two zones of a regional disk, sorted. Instances of both zones can attach the disk"`
	Region          string       `json:"region" example:"sim-1"`
	Type            string       `json:"type" doc:"Disk type" example:"balanced"`
	SizeGiB         int          `json:"sizeGiB" doc:"Size in GiB. A disk can grow, but not shrink" example:"10"`
	IOPS            int          `json:"iops" doc:"Provisioned I/O operations per second" example:"3000"`
	ThroughputMiBps int          `json:"throughputMiBps" doc:"Provisioned throughput in MiB per second" example:"125"`
	MultiAttach     bool         `json:"multiAttach,omitempty" doc:"Whether the disk can be attached to several instances at once"`
	SourceSnapshot  SnapshotID   `json:"sourceSnapshot,omitempty" doc:"Id of the snapshot from which the disk was created. This snapshot may no longer exist"`
	SourceDisk      DiskID       `json:"sourceDisk,omitempty" doc:"Id of the disk from which the disk was copied. This source may no longer exist"`
	State           DiskState    `json:"state" enum:"creating,copying,failed,available,attaching,in-use,detaching,resizing,modifying,deleting,deleted"`
	Attachments     []Attachment `json:"attachments,omitempty" doc:"Instances that have attached the disk, in the order of attachment"`
	ModifiedAt      *time.Time   `json:"modifiedAt,omitempty" doc:"Time of the last change of type, IOPS or throughput, RFC 3339"`
	Status          DiskStatus   `json:"status" doc:"State of the data, as the data plane reports it"`
}

// DiskStatus describes the data of a disk or a snapshot. The data plane stores this data and
// reports this status.
type DiskStatus struct {
	SizeGiB int    `json:"sizeGiB,omitempty" doc:"Size of the data file of the disk or snapshot in GiB; absent until the file exists"`
	Error   string `json:"error,omitempty" doc:"Reason why the data differs from the record"`
	Lost    bool   `json:"lost,omitempty" doc:"Whether the data of the disk or snapshot, or the data of its source, is lost"`
}

// Zones returns the zones of the instances that can attach d. A zonal disk has one zone. A regional
// disk has two zones.
func (d Disk) Zones() []string { return zonesOf(d.Zone, d.ReplicaZones) }

func zonesOf(zone string, replicas []string) []string {
	if len(replicas) > 0 {
		return replicas
	}
	return []string{zone}
}

// Source returns the id of the snapshot or disk from which d was copied, or "".
func (d Disk) Source() string { return cmp.Or(string(d.SourceSnapshot), string(d.SourceDisk)) }

// HasData reports whether the state of d allows a copy of the disk's data.
func (d Disk) HasData() bool {
	switch d.State {
	case DiskCreating, DiskCopying, DiskFailed, DiskDeleting, DiskDeleted:
		return false
	}
	return true
}

// Attachment returns d's attachment to an instance. It returns false if d is
// not attached to this instance.
func (d Disk) Attachment(instance InstanceID) (Attachment, bool) {
	n := slices.IndexFunc(d.Attachments, func(a Attachment) bool { return a.Instance == instance })
	if n < 0 {
		return Attachment{}, false
	}
	return d.Attachments[n], true
}

// Move applies verb to d. If d's state does not allow verb, Move returns Conflict and does not
// change d.
func (d *Disk) Move(verb Verb) error {
	return changeState(&d.State, diskMoves, verb, KindDisk, string(d.ID))
}

// MaxDisksPerInstance is the maximum number of disks that an instance can attach. It is the number
// of device names from vdb to vdz. An instance type can have a lower maximum.
const MaxDisksPerInstance = 25

// MaxDiskGiB is the largest disk size that a request can contain: one pebibyte. This limit applies
// to every disk type. The file system of the computer on which the cloud runs can have a lower
// limit for the file of a disk.
const MaxDiskGiB = 1 << 20

// CreateDisk requests a disk. The call is idempotent: the same request with the
// same name returns the existing disk. A different request with the same name
// returns Exists.
type CreateDisk struct {
	Name            string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"data-1"`
	Zone            string            `json:"zone,omitempty" doc:"Zone of the disk; absent for a regional disk" example:"sim-1a"`
	ReplicaZones    []string          `json:"replicaZones,omitempty" maxItems:"2" doc:"The two zones of a regional disk, in one region. The disk type must allow regional disks"`
	Type            string            `json:"type" example:"balanced"`
	SizeGiB         int               `json:"sizeGiB,omitempty" doc:"Size in GiB, within the limits of the disk type. If the disk has a source, the source's size is the minimum and the default" example:"10"`
	IOPS            int               `json:"iops,omitempty" doc:"I/O operations per second; 0 or absent for the default of the disk type"`
	ThroughputMiBps int               `json:"throughputMiBps,omitempty" doc:"Throughput in MiB per second; 0 or absent for the default of the disk type"`
	MultiAttach     bool              `json:"multiAttach,omitempty" doc:"Whether the disk can be attached to several instances at once. The disk type must allow this"`
	SourceSnapshot  SnapshotID        `json:"sourceSnapshot,omitempty" maxLength:"128" doc:"Id of a snapshot in the same region that provides the initial data"`
	SourceDisk      DiskID            `json:"sourceDisk,omitempty" maxLength:"128" doc:"Id of a disk to copy. The source must have the same type, and the new disk must be in all zones of the source"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// Zones returns the zones that r requests.
func (r CreateDisk) Zones() []string { return zonesOf(r.Zone, r.ReplicaZones) }

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateDisk) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.diskZones(r)
	c.name("type", r.Type)
	least := 1
	if r.SourceSnapshot != "" || r.SourceDisk != "" {
		least = 0 // 0 selects the size of the source
	}
	c.between("sizeGiB", r.SizeGiB, least, MaxDiskGiB)
	c.optionalReference("sourceSnapshot", string(r.SourceSnapshot))
	c.optionalReference("sourceDisk", string(r.SourceDisk))
	if r.IOPS < 0 {
		c.addf("iops", "must not be negative, got %d", r.IOPS)
	}
	if r.ThroughputMiBps < 0 {
		c.addf("throughputMiBps", "must not be negative, got %d", r.ThroughputMiBps)
	}
	if r.SourceSnapshot != "" && r.SourceDisk != "" {
		c.addf("sourceDisk", "cannot be used with sourceSnapshot: a disk has at most one source")
	}
	c.labels(r.Labels)
	return c.err()
}

func (c *checks) diskZones(r CreateDisk) {
	if len(r.ReplicaZones) == 0 {
		c.name("zone", r.Zone)
		return
	}
	if r.Zone != "" {
		c.addf("zone", "cannot be used with replicaZones")
	}
	if len(r.ReplicaZones) != 2 || r.ReplicaZones[0] == r.ReplicaZones[1] {
		c.addf("replicaZones", "must contain two different zones")
		return
	}
	for i, z := range r.ReplicaZones {
		c.name(fmt.Sprintf("replicaZones[%d]", i), z)
	}
}

// CheckType checks the request r against the limits of the disk type t.
func (r CreateDisk) CheckType(t DiskType) error {
	var c checks
	c.between("sizeGiB", r.SizeGiB, t.MinGiB, t.MaxGiB)
	c.diskPerformance(t, r.IOPS, r.ThroughputMiBps)
	if r.MultiAttach && !t.MultiAttach {
		c.addf("multiAttach", "is not supported by disk type %s", t.Name)
	}
	if len(r.ReplicaZones) > 0 && !t.Regional {
		c.addf("replicaZones", "are not supported by disk type %s", t.Name)
	}
	return c.err()
}

// OfSnapshot checks the request r against the source snapshot s. The parameter
// region is the region of the new disk.
func (r CreateDisk) OfSnapshot(s Snapshot, region string) error {
	var c checks
	c.sizeAtLeast(r.SizeGiB, s.SizeGiB, "snapshot "+string(s.ID))
	if region != s.Region {
		c.addf("sourceSnapshot", "must be a snapshot in region %s, but %s is in region %s", region, s.ID, s.Region)
	}
	return c.err()
}

// OfDisk checks the request r against the source disk d.
func (r CreateDisk) OfDisk(d Disk) error {
	var c checks
	c.sizeAtLeast(r.SizeGiB, d.SizeGiB, "disk "+string(d.ID))
	if r.Type != d.Type {
		c.addf("type", "must be %s, the type of the source disk %s: for another type, create the disk from a snapshot, or modify the copy", d.Type, d.ID)
	}
	for _, z := range d.Zones() {
		if !slices.Contains(r.Zones(), z) {
			c.addf("sourceDisk", "must be a disk in %s, but %s is in %s: a copy must include the zones of its source; for other zones, create the disk from a snapshot", strings.Join(r.Zones(), " and "), d.ID, strings.Join(d.Zones(), " and "))
			break
		}
	}
	return c.err()
}

func (c *checks) sizeAtLeast(size, least int, source string) {
	if size < least {
		c.addf("sizeGiB", "must be at least %d, the size of %s; got %d", least, source, size)
	}
}

// AttachDisk requests the attachment of a disk to an instance. The call is idempotent: a
// repeated request changes nothing.
type AttachDisk struct {
	Instance InstanceID `json:"instance" maxLength:"128" example:"i-000001"`
	ReadOnly bool       `json:"readOnly,omitempty" doc:"Whether the attachment is read-only"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r AttachDisk) Validate() error { return needsInstance(r.Instance) }

// DetachDisk requests the detachment of a disk from an instance. If the disk is not
// attached to this instance, the call changes nothing.
type DetachDisk struct {
	Instance InstanceID `json:"instance" maxLength:"128" example:"i-000001"`
	Force    bool       `json:"force,omitempty" doc:"Detach the disk at once, even if the instance has not released the disk. The instance must be stopped or terminating"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r DetachDisk) Validate() error { return needsInstance(r.Instance) }

func needsInstance(id InstanceID) error {
	var c checks
	c.reference("instance", string(id))
	return c.err()
}

// ResizeDisk requests a larger size for a disk. The request is also valid for an attached disk. A
// request for the current size changes nothing. A request for a smaller size returns Invalid.
type ResizeDisk struct {
	SizeGiB int `json:"sizeGiB" doc:"New size in GiB; at least the current size" example:"20"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r ResizeDisk) Validate() error {
	var c checks
	c.between("sizeGiB", r.SizeGiB, 1, MaxDiskGiB)
	return c.err()
}

// CheckType checks the new size against the disk d and its type t.
func (r ResizeDisk) CheckType(d Disk, t DiskType) error {
	var c checks
	switch {
	case r.SizeGiB < d.SizeGiB:
		c.addf("sizeGiB", "must be at least %d, the size of disk %s: a disk cannot shrink; got %d", d.SizeGiB, d.ID, r.SizeGiB)
	case r.SizeGiB > t.MaxGiB:
		c.addf("sizeGiB", "must be at most %d for type %s, got %d", t.MaxGiB, t.Name, r.SizeGiB)
	}
	return c.err()
}

// UpdateDisk replaces the labels of a disk. An update cannot change other
// fields of the disk.
type UpdateDisk struct {
	Labels map[string]string `json:"labels" doc:"All labels. The cloud removes labels that are not in this list"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r UpdateDisk) Validate() error {
	var c checks
	c.labels(r.Labels)
	return c.err()
}

// ModifyDisk requests a new type for a disk, or new values for IOPS or throughput. The request is
// also valid for an attached disk. A request for the current values changes nothing. The cloud
// returns Conflict while other work on the disk runs, and for a configured time after a
// modification.
type ModifyDisk struct {
	Type            string `json:"type,omitempty" doc:"New disk type; absent for no change" example:"fast"`
	IOPS            int    `json:"iops,omitempty" doc:"I/O operations per second. 0 or absent: no change, or the default of the type if the request changes the type" example:"6000"`
	ThroughputMiBps int    `json:"throughputMiBps,omitempty" doc:"Throughput in MiB per second. 0 or absent: no change, or the default of the type if the request changes the type" example:"250"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r ModifyDisk) Validate() error {
	var c checks
	if r == (ModifyDisk{}) {
		c.addf("type", "is required if iops and throughputMiBps are absent")
	}
	if r.Type != "" {
		c.name("type", r.Type)
	}
	if r.IOPS < 0 {
		c.addf("iops", "must not be negative, got %d", r.IOPS)
	}
	if r.ThroughputMiBps < 0 {
		c.addf("throughputMiBps", "must not be negative, got %d", r.ThroughputMiBps)
	}
	return c.err()
}

// Apply changes d to the values that r requests. The parameter t is the type of d after the
// change. This type defines the limits and the defaults. Apply reports whether any value changed.
// If t does not allow the values, Apply returns Invalid and leaves d unchanged.
func (r ModifyDisk) Apply(d *Disk, t DiskType) (changed bool, err error) {
	var c checks
	c.diskPerformance(t, r.IOPS, r.ThroughputMiBps)
	if d.SizeGiB < t.MinGiB || d.SizeGiB > t.MaxGiB {
		c.addf("type", "%s allows %d to %d GiB, but disk %s has %d GiB", t.Name, t.MinGiB, t.MaxGiB, d.ID, d.SizeGiB)
	}
	if d.MultiAttach && !t.MultiAttach {
		c.addf("type", "%s does not support multiAttach, which disk %s uses", t.Name, d.ID)
	}
	if len(d.ReplicaZones) > 0 && !t.Regional {
		c.addf("type", "%s does not support replicaZones, which disk %s uses", t.Name, d.ID)
	}
	if err := c.err(); err != nil {
		return false, err
	}
	iops, throughput := d.IOPS, d.ThroughputMiBps
	if d.Type != t.Name {
		iops, throughput = t.DefaultIOPS, t.DefaultThroughputMiBps
	}
	iops, throughput = cmp.Or(r.IOPS, iops), cmp.Or(r.ThroughputMiBps, throughput)
	changed = d.Type != t.Name || d.IOPS != iops || d.ThroughputMiBps != throughput
	d.Type, d.IOPS, d.ThroughputMiBps = t.Name, iops, throughput
	return changed, nil
}
