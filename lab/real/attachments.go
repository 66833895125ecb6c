package real

import (
	"slices"
	"sync"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// attachments holds the disks of the cloud that are attached to at least one instance.
type attachments struct {
	mu     sync.Mutex
	listed bool // whether replace has stored a list from the cloud
	disks  map[cloudsim.DiskID]cloudsim.Disk
}

// replace replaces the stored disks with the attached disks in the given list. The list must
// contain all disks of the cloud.
func (a *attachments) replace(disks []cloudsim.Disk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listed, a.disks = true, map[cloudsim.DiskID]cloudsim.Disk{}
	for _, d := range disks {
		if len(d.Attachments) > 0 {
			a.disks[d.ID] = d
		}
	}
}

// take stores a new version of a disk. If deleted is true, take removes the disk instead. It
// returns the instances in the attachments of the old version and of the new version.
func (a *attachments) take(d cloudsim.Disk, deleted bool) (changed []cloudsim.InstanceID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, attachment := range slices.Concat(a.disks[d.ID].Attachments, d.Attachments) {
		changed = append(changed, attachment.Instance)
	}
	delete(a.disks, d.ID)
	if !deleted && len(d.Attachments) > 0 && a.listed {
		a.disks[d.ID] = d
	}
	return changed
}

// wantedDisks returns the disks that an instance's machine must have as devices. The
// result known is false until the first call of the method replace.
func (a *attachments) wantedDisks(id cloudsim.InstanceID) (wanted map[cloudsim.DiskID]cloudsim.Disk, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted = map[cloudsim.DiskID]cloudsim.Disk{}
	for _, d := range a.disks {
		if isAttached(d, id) {
			wanted[d.ID] = d
		}
	}
	return wanted, a.listed
}

// awaits returns true if the cloud needs this report to complete an attachment or detachment. The
// hypervisor must then send the report, even if the last report had the same content. For
// example, the cloud needs the report again after the cloud has loaded a saved state.
func (a *attachments) awaits(id cloudsim.InstanceID, report cloudsim.ReportDevices) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.disks {
		at, ok := d.Attachment(id)
		if ok && at.State != cloudsim.AttachmentAttached && at.Ready != report.Of(d.ID).Ready {
			return true
		}
	}
	return false
}

// isAttached reports whether a disk is attached to an instance. While the cloud detaches the disk,
// isAttached returns false.
func isAttached(d cloudsim.Disk, id cloudsim.InstanceID) bool {
	a, ok := d.Attachment(id)
	return ok && a.State != cloudsim.AttachmentDetaching
}
