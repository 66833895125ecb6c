package real

import (
	"sync"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// The type attachments holds the disks of the cloud that are attached to at least one instance.
type attachments struct {
	mu     sync.Mutex
	listed bool // whether replace has stored a list from the cloud
	disks  map[cloudsim.DiskID]cloudsim.Disk
}

// replace stores a list of all disks of the cloud.
func (a *attachments) replace(all []cloudsim.Disk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listed, a.disks = true, map[cloudsim.DiskID]cloudsim.Disk{}
	for _, d := range all {
		if len(d.Attachments) > 0 {
			a.disks[d.ID] = d
		}
	}
}

// take stores a new version of a disk, or deletes the disk if gone is true. It returns the
// instances to which the old version or the new version is attached.
func (a *attachments) take(d cloudsim.Disk, gone bool) (changed []cloudsim.InstanceID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range append(a.disks[d.ID].Attachments, d.Attachments...) {
		changed = append(changed, x.Instance)
	}
	delete(a.disks, d.ID)
	if !gone && len(d.Attachments) > 0 && a.listed {
		a.disks[d.ID] = d
	}
	return changed
}

// The method named of returns the disks that an instance's machine must have as devices. It returns
// false until replace has stored a list.
func (a *attachments) of(id cloudsim.InstanceID) (wanted map[cloudsim.DiskID]cloudsim.Disk, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted = map[cloudsim.DiskID]cloudsim.Disk{}
	for _, d := range a.disks {
		if holds(d, id) {
			wanted[d.ID] = d
		}
	}
	return wanted, a.listed
}

// The function holds reports whether a disk is attached to an instance, and the cloud is not
// detaching it.
func holds(d cloudsim.Disk, id cloudsim.InstanceID) bool {
	a, ok := d.Attachment(id)
	return ok && a.State != cloudsim.AttachmentDetaching
}
