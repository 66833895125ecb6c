package engine_test

import (
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// diskWork is the duration of work on disks and snapshots in the tested cloud.
const diskWork = 45 * time.Second

// vol is the model of a disk, and shot is the model of a snapshot.
type vol struct {
	Name, Zone, State, Source string
	Type                      string
	Size, IOPS                int
	Multi, Data               bool
	At                        map[string]string // states of the attachments, by instance id
	until                     time.Time
}

type shot struct {
	Name, Disk, State string
	Group             string // group of which the snapshot is a member
	Size              int
	Data              bool
	until             time.Time
}

// isCopySource reports whether the cloud is making a disk or a snapshot from
// the resource with the given id.
func (w *world) isCopySource(id string) bool {
	for _, d := range w.disks {
		if d.Source == id && (d.State == "creating" || d.State == "copying") {
			return true
		}
	}
	for _, s := range w.snapshots {
		if s.Disk == id && (s.State == "creating" || s.State == "copying") {
			return true
		}
	}
	return false
}

func (d *vol) hasData() bool {
	return !slices.Contains([]string{"creating", "copying", "deleting"}, d.State)
}

func (d *vol) settle() {
	maps.DeleteFunc(d.At, func(_, state string) bool { return state == "detaching" })
	for i := range d.At {
		d.At[i] = "attached"
	}
	if d.State, d.until = "in-use", (time.Time{}); len(d.At) == 0 {
		d.State = "available"
	}
}

// lose removes the attachment of disk d to an instance. The attachment may be in any state.
func (d *vol) lose(instance string) {
	was := d.At[instance]
	delete(d.At, instance)
	if was == "attaching" || was == "detaching" || d.State == "in-use" {
		d.settle()
	}
}

func (w *world) settleDisks(now time.Time) {
	for id, d := range w.disks {
		switch {
		case d.until.IsZero() || d.until.After(now):
		case d.State == "deleting":
			delete(w.disks, id)
		case d.State == "creating" && d.Source != "" && !d.Data:
			d.State, d.until = "copying", time.Time{}
		default:
			d.settle()
		}
	}
	for id, s := range w.snapshots {
		switch {
		case s.until.IsZero() || s.until.After(now):
		case s.State == "deleting":
			delete(w.snapshots, id)
		case s.Data:
			s.State, s.until = "ready", time.Time{}
		default:
			s.State, s.until = "copying", time.Time{}
		}
	}
}

func (w *world) createDisk(t *rapid.T) {
	req := cloudsim.CreateDisk{
		Name: rapid.SampledFrom([]string{"p", "q", "r"}).Draw(t, "name"), Type: "fast",
		Zone:        rapid.SampledFrom([]string{"sim-1a", "sim-1a", "sim-1b"}).Draw(t, "zone"),
		SizeGiB:     rapid.SampledFrom([]int{0, 4, 4, 5}).Draw(t, "size"),
		MultiAttach: rapid.Bool().Draw(t, "multi-attach"),
	}
	switch rapid.IntRange(0, 3).Draw(t, "source") {
	case 0:
		req.SourceDisk = cloudsim.DiskID(randomID(t, w.disks))
	case 1:
		req.SourceSnapshot = cloudsim.SnapshotID(randomID(t, w.snapshots))
	}
	source := string(req.SourceDisk) + string(req.SourceSnapshot)
	have := w.disks[idOfName(w.disks, req.Name, func(d *vol) string { return d.Name })]
	_, err := w.e.CreateDisk(w.ctx, req)
	switch {
	case req.SizeGiB == 0 && source == "":
		mustAgree(t, err, cloudsim.Invalid)
	case have != nil && have.State == "deleting":
		mustAgree(t, err, cloudsim.Conflict)
	case have != nil && (have.Zone != req.Zone || have.Type != req.Type || have.Source != source || have.Multi != req.MultiAttach || req.SizeGiB != 0 && have.Size != req.SizeGiB):
		mustAgree(t, err, cloudsim.Exists)
	case have != nil:
		mustAgree(t, err, nil)
	default:
		size, want := w.source(req)
		mustAgree(t, err, want)
		if want == nil {
			w.disks[w.id("disk")] = &vol{
				Name: req.Name, Zone: req.Zone, State: "creating", Source: source, Size: size, Multi: req.MultiAttach,
				Type: req.Type, IOPS: 10_000, At: map[string]string{}, until: time.Now().Add(diskWork),
			}
		}
	}
}

// source returns the size of the requested disk. If the source disk or the source snapshot makes
// the request invalid, the result refusal is the error that the cloud must return.
func (w *world) source(req cloudsim.CreateDisk) (size int, refusal error) {
	least, zone, typ := 0, req.Zone, req.Type
	switch {
	case req.SourceDisk != "":
		d := w.disks[string(req.SourceDisk)]
		if d == nil {
			return 0, cloudsim.NotFound
		}
		if !d.hasData() {
			return 0, cloudsim.Conflict
		}
		least, zone, typ = d.Size, d.Zone, d.Type
	case req.SourceSnapshot != "":
		s := w.snapshots[string(req.SourceSnapshot)]
		if s == nil {
			return 0, cloudsim.NotFound
		}
		if s.State != "ready" {
			return 0, cloudsim.Conflict
		}
		least = s.Size
	}
	if size = req.SizeGiB; size == 0 {
		size = least
	}
	if size < least || zone != req.Zone || typ != req.Type {
		return 0, cloudsim.Invalid
	}
	return size, nil
}

func (w *world) attachDisk(t *rapid.T) {
	id, to := randomID(t, w.disks), randomID(t, w.instances)
	d, i := w.disks[id], w.instances[to]
	_, err := w.e.AttachDisk(w.ctx, cloudsim.DiskID(id), cloudsim.AttachDisk{Instance: cloudsim.InstanceID(to)})
	switch {
	case d == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case d.At[to] == "detaching":
		mustAgree(t, err, cloudsim.Conflict)
	case d.At[to] != "":
		mustAgree(t, err, nil)
	case len(d.At) > 0 && !d.Multi:
		mustAgree(t, err, cloudsim.Conflict)
	case i == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case i.Zone != d.Zone:
		mustAgree(t, err, cloudsim.Invalid)
	case i.State == "terminating" || d.State != "available" && d.State != "in-use":
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		d.State, d.At[to], d.until = "attaching", "attaching", time.Now().Add(diskWork)
	}
}

func (w *world) detachDisk(t *rapid.T) {
	id, from := randomID(t, w.disks), randomID(t, w.instances)
	force := rapid.Bool().Draw(t, "force")
	d, i := w.disks[id], w.instances[from]
	_, err := w.e.DetachDisk(w.ctx, cloudsim.DiskID(id), cloudsim.DetachDisk{Instance: cloudsim.InstanceID(from), Force: force})
	switch {
	case d == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case d.At[from] == "":
		mustAgree(t, err, nil)
	case force && i.State != "stopped" && i.State != "terminating":
		mustAgree(t, err, cloudsim.Conflict)
	case force:
		mustAgree(t, err, nil)
		d.lose(from)
	case d.At[from] == "detaching":
		mustAgree(t, err, nil)
	case d.State == "attaching" && d.At[from] == "attached", d.State != "attaching" && d.State != "in-use":
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		d.State, d.At[from], d.until = "detaching", "detaching", time.Now().Add(diskWork)
	}
}

func (w *world) resizeDisk(t *rapid.T) {
	id := randomID(t, w.disks)
	d := w.disks[id]
	size := rapid.IntRange(4, 7).Draw(t, "size")
	_, err := w.e.ResizeDisk(w.ctx, cloudsim.DiskID(id), cloudsim.ResizeDisk{SizeGiB: size})
	switch {
	case d == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case size < d.Size:
		mustAgree(t, err, cloudsim.Invalid)
	case size == d.Size && d.State != "deleting":
		mustAgree(t, err, nil)
	case w.isCopySource(id) || d.State != "available" && d.State != "in-use":
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		d.State, d.Size, d.until = "resizing", size, time.Now().Add(diskWork)
	}
}

func (w *world) deleteDisk(t *rapid.T) {
	id := randomID(t, w.disks)
	d := w.disks[id]
	_, err := w.e.DeleteDisk(w.ctx, cloudsim.DiskID(id))
	switch {
	case d == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case d.State == "deleting":
		mustAgree(t, err, nil)
	case w.isCopySource(id) || !slices.Contains([]string{"creating", "copying", "available"}, d.State):
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		d.State, d.until = "deleting", time.Now().Add(diskWork)
	}
}

func (w *world) createSnapshot(t *rapid.T) {
	req := cloudsim.CreateSnapshot{Name: rapid.SampledFrom([]string{"s", "t"}).Draw(t, "name"), Disk: cloudsim.DiskID(randomID(t, w.disks))}
	have := w.snapshots[idOfName(w.snapshots, req.Name, func(s *shot) string { return s.Name })]
	d := w.disks[string(req.Disk)]
	_, err := w.e.CreateSnapshot(w.ctx, req)
	switch {
	case have != nil && have.State == "deleting":
		mustAgree(t, err, cloudsim.Conflict)
	case have != nil && have.Disk != string(req.Disk):
		mustAgree(t, err, cloudsim.Exists)
	case have != nil:
		mustAgree(t, err, nil)
	case d == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case !d.hasData():
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		w.snapshots[w.id("snap")] = &shot{Name: req.Name, Disk: string(req.Disk), State: "creating", Size: d.Size, until: time.Now().Add(diskWork)}
	}
}

func (w *world) deleteSnapshot(t *rapid.T) {
	id := randomID(t, w.snapshots)
	s := w.snapshots[id]
	_, err := w.e.DeleteSnapshot(w.ctx, cloudsim.SnapshotID(id))
	switch {
	case s == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case s.Group != "":
		mustAgree(t, err, cloudsim.Conflict) // a client can delete the members of a group only together with the group
	case s.State == "deleting":
		mustAgree(t, err, nil)
	case w.isCopySource(id):
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		s.State, s.until = "deleting", time.Now().Add(diskWork)
	}
}

// reportData takes the role of the data plane. It reports that the data of one disk and of one
// snapshot is complete.
func (w *world) reportData(t *rapid.T) {
	if id := randomID(t, w.disks); w.disks[id] == nil {
		mustAgree(t, w.e.ReportDisk(w.ctx, cloudsim.DiskID(id), cloudsim.DiskStatus{SizeGiB: 1}), cloudsim.NotFound)
	} else {
		d := w.disks[id]
		mustAgree(t, w.e.ReportDisk(w.ctx, cloudsim.DiskID(id), cloudsim.DiskStatus{SizeGiB: 1}), nil)
		if d.Data = true; d.State == "copying" {
			d.State = "available"
		}
	}
	id := randomID(t, w.snapshots)
	mustAgree(t, w.e.ReportSnapshots(w.ctx, []cloudsim.SnapshotReport{{ID: cloudsim.SnapshotID(id), Status: cloudsim.DiskStatus{SizeGiB: 1}}}), nil)
	if s := w.snapshots[id]; s != nil {
		if s.Data = true; s.Group != "" {
			w.reportedGroup(s.Group)
		} else if s.State == "copying" {
			s.State = "ready"
		}
	}
}

// seenDisks returns the cloud's disks and snapshots in the form of the model.
func (w *world) seenDisks(t *rapid.T, objects map[string]any) (map[string]*vol, map[string]*shot) {
	ds, err1 := w.e.ListDisks(w.ctx, cloudsim.ListOptions{})
	ss, err2 := w.e.ListSnapshots(w.ctx, cloudsim.ListOptions{})
	mustAgree(t, err1, nil)
	mustAgree(t, err2, nil)
	disks, snapshots := map[string]*vol{}, map[string]*shot{}
	for _, d := range ds.Items {
		objects[string(d.ID)] = d
		v := &vol{
			Name: d.Name, Zone: d.Zone, State: string(d.State), Source: d.Source(), Size: d.SizeGiB,
			Type: d.Type, IOPS: d.IOPS, Multi: d.MultiAttach, Data: d.Status.SizeGiB > 0, At: map[string]string{},
		}
		for _, a := range d.Attachments {
			v.At[string(a.Instance)] = string(a.State)
		}
		disks[string(d.ID)] = v
	}
	for _, s := range ss.Items {
		objects[string(s.ID)] = s
		snapshots[string(s.ID)] = &shot{Name: s.Name, Disk: string(s.Disk), State: string(s.State), Group: string(s.Group), Size: s.SizeGiB, Data: s.Status.SizeGiB > 0}
	}
	return disks, snapshots
}
