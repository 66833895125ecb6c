package real

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	filesystem "github.com/cloudsim-dev/allinone/csidriver/machine"
	"github.com/cloudsim-dev/allinone/internal/loop"
)

// Disks holds the settings for the disks of machines. Each disk that is attached to an instance
// is a block device of the instance's machine.
type Disks struct {
	Dir string // folder with the files of the cloud's disks
	// Links returns names in /dev/disk/by-id for a disk, in addition to
	// cloudsim.DiskID.Link. It may be nil.
	Links func(cloudsim.DiskID) []string
}

// machineDevices manages the folder /dev of one machine, and the block devices of the machine's
// disks. A separate goroutine updates the devices, because the goroutine that manages the machine
// waits while the machine shuts down. During this wait, users can still attach and detach disks.
//
// The folder /dev is in memory, and is mounted in the machine's folder on the host. A disk is a
// loop device of the host. The machine has device nodes only for its own disks and for usual
// devices such as /dev/null. Processes in the machine's cgroup can open only these devices.
type machineDevices struct {
	log      *slog.Logger
	disks    Disks
	lab      string // name of the hypervisor
	id       cloudsim.InstanceID
	folder   folder
	cgroup   cgroup
	attached *attachments
	changed  notification

	cloud    *client.Client
	reported *cloudsim.ReportDevices // last report, or nil; only keepUpToDate uses it

	mu     sync.Mutex
	on     bool // whether the machine has its own /dev
	have   map[cloudsim.DiskID]device
	failed map[cloudsim.DiskID]error // error of each disk in the last update
}

// device is the block device of a disk.
type device struct {
	number int
	// spareLoop is the number of a second loop device. The kubelet needs the second device to lock
	// the device of a raw block volume. The locked device is the backing file of the second device.
	// After a restart, the hypervisor reads the number from a file. If this file is missing or
	// unfinished, spareLoop is 0.
	spareLoop int
	readOnly  bool
	shown     bool // whether the machine has the device nodes and links
}

// numbers returns the numbers of the loop devices of a disk.
func (d device) numbers() []int {
	if d.spareLoop == 0 {
		return []int{d.number}
	}
	return []int{d.number, d.spareLoop}
}

func (h *hypervisor) newDevices(id cloudsim.InstanceID, f folder, c cgroup, log *slog.Logger) *machineDevices {
	return &machineDevices{
		log: log, disks: h.cfg.Disks, lab: h.cfg.Name, id: id, folder: f, cgroup: c, attached: &h.wantedDisks,
		cloud: h.cfg.Cloud, changed: newNotification(), have: map[cloudsim.DiskID]device{}, failed: map[cloudsim.DiskID]error{},
	}
}

// keepUpToDate updates the devices and reports them to the cloud after each notification in
// d.changed. For example, the hypervisor sends a notification when a disk is attached. keepUpToDate
// returns when ctx ends.
func (d *machineDevices) keepUpToDate(ctx context.Context) {
	failing := false
	d.changed.forEach(ctx, func() error {
		err := errors.Join(d.update(ctx), d.report(ctx))
		if err == nil {
			failing = false
		}
		return err
	}, func(err error) {
		if !failing && ctx.Err() == nil {
			d.log.Warn("disks of the machine not updated; retrying", "err", err)
		}
		failing = true
	})
}

// update makes the devices match the attached disks. If the update of one disk fails, update still
// updates the devices of the other disks.
func (d *machineDevices) update(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted, known := d.attached.wantedDisks(d.id)
	if !known || !d.on {
		return nil
	}
	clear(d.failed)
	for id, have := range d.have { // a disk that is attached again may have changed between writable and read-only
		if want, ok := wanted[id]; !ok || isReadOnly(want, d.id) != have.readOnly {
			d.failed[id] = d.remove(id, have)
		}
	}
	for id, disk := range wanted {
		d.failed[id] = errors.Join(d.failed[id], d.add(ctx, disk))
	}
	err := d.restrictDevices()
	for id, have := range d.have {
		d.failed[id] = errors.Join(d.failed[id], d.show(id, have))
	}
	return errors.Join(err, d.releaseUnused(ctx, wanted), d.failures())
}

// failures returns the errors of all disks in the last update.
func (d *machineDevices) failures() error {
	return errors.Join(slices.Collect(maps.Values(d.failed))...)
}

// report sends the cloud a list of the machine's disks if the list has changed since the last
// report. The method sends an unchanged list only if an attachment or detachment waits for this
// list. While the machine is off, the list marks all attached disks as ready, because the machine
// gets their devices at its next start.
func (d *machineDevices) report(ctx context.Context) error {
	now, known := d.state()
	if !known || d.reported != nil && slices.Equal(d.reported.Devices, now.Devices) && !d.attached.awaits(d.id, now) {
		return nil
	}
	_, err := d.cloud.ReportDevices(ctx, d.id, now)
	if errors.Is(err, cloudsim.NotFound) { // the instance was deleted, and the event of its deletion follows
		return nil
	}
	if err != nil {
		d.reported = nil
		return fmt.Errorf("devices not reported to the cloud: %w", err)
	}
	d.reported = &now
	return nil
}

// state returns a report of the machine's current disks. Until the hypervisor has listed the
// cloud's disks, known is false.
func (d *machineDevices) state() (now cloudsim.ReportDevices, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted, known := d.attached.wantedDisks(d.id)
	all := map[cloudsim.DiskID]cloudsim.DeviceReport{}
	for id := range wanted {
		all[id] = cloudsim.DeviceReport{Disk: id, Ready: !d.on || d.have[id].shown}
	}
	for id := range d.have {
		all[id] = cloudsim.DeviceReport{Disk: id, Ready: d.have[id].shown}
	}
	for id, err := range d.failed {
		if err != nil {
			r := all[id]
			r.Disk, r.Error = id, truncate(err.Error(), cloudsim.MaxDeviceError)
			all[id] = r
		}
	}
	now.Devices = []cloudsim.DeviceReport{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		now.Devices = append(now.Devices, all[id])
	}
	return now, known
}

// truncate returns the first n bytes of s, without invalid and incomplete characters.
func truncate(s string, n int) string { return strings.ToValidUTF8(s[:min(n, len(s))], "") }

func isReadOnly(d cloudsim.Disk, id cloudsim.InstanceID) bool {
	a, _ := d.Attachment(id)
	return a.ReadOnly
}

// add makes the device of a disk. If the device exists, add only makes it as large as the disk's
// file.
func (d *machineDevices) add(ctx context.Context, disk cloudsim.Disk) error {
	path := d.file(disk.ID)
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("disk %s: %w", disk.ID, err)
	}
	if existing, ok := d.have[disk.ID]; ok { // no check of the size: while a disk grows, its file can be smaller than disk.SizeGiB
		l, err := openDevice(string(d.id), path, existing.number)
		if err != nil {
			return err
		}
		if l != nil {
			return resize(l, info.Size())
		}
		// fenceOthers has fenced this device, because the disk was attached to another machine
		// in the meantime. So this machine needs a new device.
		if err := d.remove(disk.ID, existing); err != nil {
			return err
		}
	}
	if info.Size() < int64(disk.SizeGiB)<<30 {
		return fmt.Errorf("disk %s: its file does not have its full size of %d GiB yet", disk.ID, disk.SizeGiB)
	}
	if err := d.fenceOthers(disk, path); err != nil {
		return err
	}
	have := device{readOnly: isReadOnly(disk, d.id)}
	if have.readOnly && len(disk.Attachments) == 1 {
		// If a disk was copied while it was in use, the copy's file system can have an unfinished
		// journal. The machine cannot replay the journal on a read-only device, so the hypervisor
		// replays it.
		if err := filesystem.ReplayUnfinished(ctx, path); err != nil {
			d.log.Warn("journal of a read-only disk not replayed", "disk", disk.ID, "err", err)
		}
	}
	if have.spareLoop, err = d.reserve(ctx, disk.ID); err != nil {
		return err
	}
	l, err := loop.New(ctx, filepath.Join(disksDir(d.lab), string(disk.ID)+".img"), string(d.id), path, have.readOnly, false)
	if err != nil {
		return fmt.Errorf("device of disk %s: %w", disk.ID, err)
	}
	have.number = l.Number
	d.have[disk.ID] = have
	d.log.Info("disk added", "disk", disk.ID, "device", l.Device())
	return l.Close()
}

func (d *machineDevices) file(id cloudsim.DiskID) string {
	return filepath.Join(d.disks.Dir, string(id)+".img")
}

// openDevice opens the loop device with the given number. The parameter node is the ID of a
// machine. openDevice returns nil in these cases:
//   - The device is fenced.
//   - The device does not belong to this machine.
//   - The device's backing file is not the file at path, because the kernel has given the number to
//     another program's device.
func openDevice(node, path string, number int) (*loop.Loop, error) {
	l, err := loop.Find(node, path, loop.Path(number))
	if err != nil || l == nil || l.Number == number {
		return l, err
	}
	return nil, l.Close()
}

// resize makes a device as large as its file, and closes the device.
func resize(l *loop.Loop, size int64) error {
	now, err := l.Size()
	if err == nil && now != size {
		err = l.Refresh()
	}
	return errors.Join(err, l.Close())
}

// fenceOthers fences the devices of a disk on machines to which the disk is no longer attached. It
// also fences existing devices of the disk on this machine, because the caller (the method add)
// makes a new device. Reads and writes of a fenced device fail. Without fenceOthers, a machine
// could still write to a disk that a user has detached by force.
func (d *machineDevices) fenceOthers(disk cloudsim.Disk, path string) error {
	all, err := loop.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range all {
		if l.Fenced || !l.SameFile(path) || l.Node == "" && !isDiskOf(d.lab, l) { // not a device of a machine
			continue
		}
		if l.Node != string(d.id) && isAttached(disk, cloudsim.InstanceID(l.Node)) {
			continue
		}
		d.log.Warn("fencing a device that its machine must no longer use", "disk", disk.ID, "machine", l.Node, "device", loop.Path(l.Number))
		errs = append(errs, fence(l.Node, path, l.Number))
	}
	return errors.Join(errs...)
}

// fence prevents all reads and writes of the loop device with the given number. It does nothing if
// the device is already fenced, or is not the machine's device for the file at path.
func fence(node, path string, number int) error {
	l, err := openDevice(node, path, number)
	if err != nil || l == nil {
		return err
	}
	return l.Fence()
}

// hide removes the device nodes and links of a disk from the machine's /dev.
func (d *machineDevices) hide(id cloudsim.DiskID, existing device) error {
	dev, err := os.OpenRoot(d.folder.path("dev"))
	if err != nil {
		return err
	}
	defer func() { _ = dev.Close() }()
	var errs []error
	names := d.linkPaths(id)
	for _, n := range existing.numbers() {
		names = append(names, nodeName(n))
	}
	for _, name := range names {
		if err := dev.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// show makes the device nodes and links of a disk in the machine's /dev. If existing.shown is true,
// show does nothing.
func (d *machineDevices) show(id cloudsim.DiskID, existing device) error {
	if existing.shown {
		return nil
	}
	dev, err := os.OpenRoot(d.folder.path("dev"))
	if err != nil {
		return err
	}
	defer func() { _ = dev.Close() }()
	if err := d.hide(id, existing); err != nil {
		return err
	}
	for _, n := range existing.numbers() {
		if err := makeNode(dev, nodeName(n), unix.S_IFBLK|0o600, unix.Mkdev(loop.Major, uint32(n))); err != nil { //nolint:gosec // the number comes from the kernel
			return err
		}
	}
	if err := dev.MkdirAll(byID, 0o755); err != nil {
		return err
	}
	for _, link := range d.linkPaths(id) {
		if err := dev.Symlink("../../"+nodeName(existing.number), link); err != nil {
			return err
		}
	}
	existing.shown = true
	d.have[id] = existing
	return nil
}

// byID is the folder of links to disks, relative to /dev.
const byID = "disk/by-id"

// linkPaths returns the paths of the links to a disk, relative to /dev.
func (d *machineDevices) linkPaths(id cloudsim.DiskID) []string {
	all := []string{filepath.Base(id.Link())}
	if d.disks.Links != nil {
		all = append(all, d.disks.Links(id)...)
	}
	for i, name := range all {
		all[i] = filepath.Join(byID, filepath.Base(name))
	}
	return all
}

func nodeName(number int) string { return "loop" + strconv.Itoa(number) }

// remove removes the device nodes and links of a disk, and then fences the disk's device.
func (d *machineDevices) remove(id cloudsim.DiskID, existing device) error {
	if isMounted(d.folder.path("dev")) {
		if err := d.hide(id, existing); err != nil {
			return err
		}
	}
	return d.disconnect(id, existing)
}

// disconnect fences the device of a disk. It deletes the fenced device from d.have, because the
// kernel can give the number of this device to another program. The method does not remove the
// disk's second loop device, because releaseUnused removes this device later.
func (d *machineDevices) disconnect(id cloudsim.DiskID, existing device) error {
	if err := fence(string(d.id), d.file(id), existing.number); err != nil {
		return err
	}
	delete(d.have, id)
	d.log.Info("disk removed", "disk", id, "device", loop.Path(existing.number))
	return nil
}

// powerOn mounts the /dev of a machine before the start of the machine, and adds all disks of the
// instance. If a disk cannot be added, the machine starts without the disk, and keepUpToDate
// tries again.
func (d *machineDevices) powerOn(ctx context.Context) error {
	d.mu.Lock()
	err := mountDev(d.folder.path("dev"))
	d.on = err == nil
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if err := d.update(ctx); err != nil {
		d.log.Warn("some disks of the machine are missing at its start; retrying", "err", err)
	}
	d.changed.notify()
	return nil
}

// powerOff removes all devices and /dev of a machine. The caller must wait until the machine has
// ended. The method unmounts /dev without first removing the device nodes and links in it, because
// the root user of the machine could prevent this removal. For example, this user can put a folder
// in place of a link.
func (d *machineDevices) powerOff(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.failed)
	for id, existing := range d.have {
		d.failed[id] = d.disconnect(id, existing)
	}
	if err := d.failures(); err != nil {
		return err
	}
	d.on = false
	if err := errors.Join(d.releaseUnused(ctx, nil), d.failures()); err != nil {
		return err
	}
	d.changed.notify()
	return unmountDev(d.folder)
}

// adopt finds the existing devices of a machine after a restart of the hypervisor. A machine
// that was started by an older release of the lab uses the host's /dev, and the CSI driver on the
// machine makes the devices of disks. For this machine, the method does nothing.
func (d *machineDevices) adopt() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.on = isMounted(d.folder.path("dev")); !d.on {
		return nil
	}
	all, err := loop.List()
	if err != nil {
		return err
	}
	for _, l := range all {
		if l.Fenced || !isDiskOf(d.lab, l) || l.Node != string(d.id) {
			continue
		}
		id := cloudsim.DiskID(strings.TrimSuffix(filepath.Base(l.Name), ".img"))
		second, err := readSpare(d.folder.path(spareFolder, string(id)))
		if err != nil {
			return err
		}
		readOnly, err := os.ReadFile("/sys/block/" + nodeName(l.Number) + "/ro")
		if err != nil {
			return err
		}
		d.have[id] = device{number: l.Number, spareLoop: second, readOnly: strings.TrimSpace(string(readOnly)) == "1"}
	}
	d.changed.notify()
	return nil
}

// cleanDevices removes the second loop devices of all disks, and unmounts the /dev of each machine.
// The hypervisor and its machines must have ended. The parameter dir is the hypervisor's folder.
func cleanDevices(ctx context.Context, dir string) error {
	var errs []error
	files, err := glob(dir, "machines/*/"+spareFolder+"/*")
	errs = append(errs, err)
	for _, f := range files {
		errs = append(errs, release(ctx, f))
	}
	mounts, err := glob(dir, "machines/*/dev")
	errs = append(errs, err)
	for _, at := range mounts {
		errs = append(errs, unmountDev(folder(filepath.Dir(at))))
	}
	return errors.Join(errs...)
}
