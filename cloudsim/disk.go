package cloudsim

import "slices"

// DiskID names a disk, e.g. "disk-000001". It is never used again.
type DiskID string

// DiskState is where a disk is in its life. A disk does one piece of work at a
// time; of several attachments, each has a state of its own.
type DiskState string

const (
	DiskCreating  DiskState = "creating"
	DiskAvailable DiskState = "available" // attached to nothing
	DiskAttaching DiskState = "attaching"
	DiskInUse     DiskState = "in-use" // attached
	DiskDetaching DiskState = "detaching"
	DiskResizing  DiskState = "resizing" // attached or not: growing is online
	DiskDeleting  DiskState = "deleting"
	// DiskDeleted is the last value of a disk, in the event that says it is
	// gone; the API answers NotFound for it.
	DiskDeleted DiskState = "deleted"
)

// diskMoves is the whole life of a disk. What is not in it is a Conflict: so
// is to delete a disk that is attached. Work on an existing disk settles in
// use; Vacate follows at once when nothing is attached.
var diskMoves = map[DiskState]map[Verb]DiskState{
	DiskCreating:  {Settle: DiskAvailable, Delete: DiskDeleting},
	DiskAvailable: {Attach: DiskAttaching, Resize: DiskResizing, Delete: DiskDeleting},
	DiskAttaching: {Settle: DiskInUse, Detach: DiskDetaching},
	DiskInUse:     {Attach: DiskAttaching, Detach: DiskDetaching, Resize: DiskResizing, Vacate: DiskAvailable},
	DiskDetaching: {Settle: DiskInUse},
	DiskResizing:  {Settle: DiskInUse},
	DiskDeleting:  {Settle: DiskDeleted},
}

// DiskStates lists every state, for tests and help.
func DiskStates() []DiskState {
	return []DiskState{
		DiskCreating, DiskAvailable, DiskAttaching, DiskInUse,
		DiskDetaching, DiskResizing, DiskDeleting, DiskDeleted,
	}
}

// AttachmentState is how far an attachment is.
type AttachmentState string

const (
	AttachmentAttaching AttachmentState = "attaching"
	AttachmentAttached  AttachmentState = "attached"
	AttachmentDetaching AttachmentState = "detaching"
)

// Attachment is a disk in an instance.
type Attachment struct {
	Instance InstanceID      `json:"instance" example:"i-000001"`
	ReadOnly bool            `json:"readOnly,omitempty" doc:"The instance may not write to it"`
	Device   string          `json:"device" doc:"What the instance calls it; the first free one" example:"vdb"`
	State    AttachmentState `json:"state" enum:"attaching,attached,detaching"`
}

// Disk is a block device that outlives the instances it is attached to.
type Disk struct {
	ID DiskID `json:"id" example:"disk-000001"`
	Meta
	Zone        string       `json:"zone" doc:"Only instances of this zone may have it" example:"sim-1a"`
	Region      string       `json:"region" example:"sim-1"`
	Type        string       `json:"type" doc:"Disk type" example:"balanced"`
	SizeGiB     int          `json:"sizeGiB" doc:"Size in GiB; it can grow and not shrink" example:"10"`
	IOPS        int          `json:"iops" doc:"Operations a second that it is made for" example:"3000"`
	MultiAttach bool         `json:"multiAttach,omitempty" doc:"Whether several instances may have it at once"`
	State       DiskState    `json:"state" enum:"creating,available,attaching,in-use,detaching,resizing,deleting,deleted"`
	Attachments []Attachment `json:"attachments,omitempty" doc:"The instances that have it, first come first"`
	Status      DiskStatus   `json:"status" doc:"What the data plane made of it"`
}

// DiskStatus is what the data plane found.
type DiskStatus struct {
	SizeGiB int    `json:"sizeGiB,omitempty" doc:"How much of it is real; absent until it is made"`
	Error   string `json:"error,omitempty" doc:"Why it is not what it should be"`
}

// Attachment returns d's attachment to an instance; false if there is none.
func (d Disk) Attachment(to InstanceID) (Attachment, bool) {
	n := slices.IndexFunc(d.Attachments, func(a Attachment) bool { return a.Instance == to })
	if n < 0 {
		return Attachment{}, false
	}
	return d.Attachments[n], true
}

// Move applies verb, or returns Conflict and leaves d as it was.
func (d *Disk) Move(verb Verb) error {
	return move(&d.State, diskMoves, verb, KindDisk, string(d.ID))
}

// DiskType is a kind of disk that the cloud offers.
type DiskType struct {
	Meta
	MinGiB      int  `json:"minGiB" doc:"Smallest size in GiB" example:"1"`
	MaxGiB      int  `json:"maxGiB" doc:"Largest size in GiB" example:"16384"`
	DefaultIOPS int  `json:"defaultIOPS" doc:"Operations a second of a disk that asks for no number" example:"3000"`
	MaxIOPS     int  `json:"maxIOPS" doc:"The most that a disk may ask for" example:"16000"`
	MultiAttach bool `json:"multiAttach" doc:"Whether its disks can be attached to several instances at once"`
}

func defaultDiskTypes() []DiskType {
	return []DiskType{
		{Meta: Meta{Name: "standard"}, MinGiB: 1, MaxGiB: 16384, DefaultIOPS: 500, MaxIOPS: 500},
		{Meta: Meta{Name: "balanced"}, MinGiB: 1, MaxGiB: 16384, DefaultIOPS: 3000, MaxIOPS: 16_000},
		{Meta: Meta{Name: "fast"}, MinGiB: 4, MaxGiB: 65536, DefaultIOPS: 10_000, MaxIOPS: 100_000, MultiAttach: true},
	}
}

func (c *checks) diskType(t DiskType) {
	c.name("diskTypes", t.Name)
	if t.MinGiB < 1 || t.MaxGiB < t.MinGiB {
		c.addf("diskTypes."+t.Name, "needs a smallest size of at least 1 GiB and a largest that is no less")
	}
	if t.DefaultIOPS < 1 || t.MaxIOPS < t.DefaultIOPS {
		c.addf("diskTypes."+t.Name, "needs a default of at least one operation a second and a maximum that is no less")
	}
}

// MaxDisksPerInstance is as many as there are names of devices, vdb to vdz.
const MaxDisksPerInstance = 25

// MaxDiskGiB bounds what a request may ask for, whatever the type: a file of
// that size is what the largest file systems hold.
const MaxDiskGiB = 1 << 20

// CreateDisk asks for a disk. Asking again with the same name and the same
// words returns the first one; with other words it is Exists.
type CreateDisk struct {
	Name        string            `json:"name" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"data-1"`
	Zone        string            `json:"zone" example:"sim-1a"`
	Type        string            `json:"type" example:"balanced"`
	SizeGiB     int               `json:"sizeGiB" doc:"Size in GiB, within the limits of its type" example:"10"`
	IOPS        int               `json:"iops,omitempty" doc:"Operations a second; 0 or absent for the default of its type"`
	MultiAttach bool              `json:"multiAttach,omitempty" doc:"Whether several instances may have it at once; its type must allow it"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// Validate checks what needs no other state.
func (r CreateDisk) Validate() error {
	var c checks
	c.name("name", r.Name)
	c.name("zone", r.Zone)
	c.name("type", r.Type)
	c.between("sizeGiB", r.SizeGiB, 1, MaxDiskGiB)
	if r.IOPS < 0 {
		c.addf("iops", "must not be negative, got %d", r.IOPS)
	}
	c.labels(r.Labels)
	return c.err()
}

// Of checks what t says of a disk of its type.
func (r CreateDisk) Of(t DiskType) error {
	var c checks
	c.between("sizeGiB", r.SizeGiB, t.MinGiB, t.MaxGiB)
	if r.IOPS > t.MaxIOPS {
		c.addf("iops", "must be at most %d for type %s, got %d", t.MaxIOPS, t.Name, r.IOPS)
	}
	if r.MultiAttach && !t.MultiAttach {
		c.addf("multiAttach", "is not offered by type %s", t.Name)
	}
	return c.err()
}

// AttachDisk asks for a disk to be in an instance. Asking again the same way
// changes nothing.
type AttachDisk struct {
	Instance InstanceID `json:"instance" maxLength:"128" example:"i-000001"`
	ReadOnly bool       `json:"readOnly,omitempty" doc:"The instance may not write to it"`
}

// Validate checks what needs no other state.
func (r AttachDisk) Validate() error { return needsInstance(r.Instance) }

// DetachDisk asks for a disk to leave an instance. One that is not there
// anyway has nothing to do.
type DetachDisk struct {
	Instance InstanceID `json:"instance" maxLength:"128" example:"i-000001"`
	Force    bool       `json:"force,omitempty" doc:"Take it at once, without the instance's help: for one that is stopped or terminating"`
}

// Validate checks what needs no other state.
func (r DetachDisk) Validate() error { return needsInstance(r.Instance) }

func needsInstance(id InstanceID) error {
	var c checks
	if id == "" {
		c.addf("instance", "is required")
	}
	return c.err()
}

// ResizeDisk asks for a disk to grow, attached or not. Its own size changes
// nothing; a smaller one is Invalid.
type ResizeDisk struct {
	SizeGiB int `json:"sizeGiB" doc:"New size in GiB; no less than now" example:"20"`
}

// Validate checks what needs no other state.
func (r ResizeDisk) Validate() error {
	var c checks
	c.between("sizeGiB", r.SizeGiB, 1, MaxDiskGiB)
	return c.err()
}

// Of checks what the disk itself and its type say of its new size.
func (r ResizeDisk) Of(d Disk, t DiskType) error {
	var c checks
	switch {
	case r.SizeGiB < d.SizeGiB:
		c.addf("sizeGiB", "must be at least %d, which disk %s has: a disk does not shrink; got %d", d.SizeGiB, d.ID, r.SizeGiB)
	case r.SizeGiB > t.MaxGiB:
		c.addf("sizeGiB", "must be at most %d for type %s, got %d", t.MaxGiB, t.Name, r.SizeGiB)
	}
	return c.err()
}
