package aws

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

const labelModification = dialect.LabelPrefix + "modification"

// modification is the last modification of a volume. The dialect stores it in a label as JSON. The
// JSON names are short, because the cloud limits the length of a label's value.
type modification struct {
	Start  time.Time `json:"s"`
	Before settings  `json:"b"`
	After  settings  `json:"a"`
}

type settings struct {
	Size       int    `json:"g"` // GiB
	Type       string `json:"t"`
	IOPS       int    `json:"i"`
	Throughput int    `json:"m"` // MiB per second
}

func settingsOf(d cloudsim.Disk) settings {
	return settings{Size: d.SizeGiB, Type: typeOf(d), IOPS: d.IOPS, Throughput: d.ThroughputMiBps}
}

type volumeModification struct {
	ID                 string `xml:"volumeId"`
	State              string `xml:"modificationState"`
	Progress           int    `xml:"progress"`
	Start              string `xml:"startTime"`
	OriginalSize       int    `xml:"originalSize"`
	OriginalType       string `xml:"originalVolumeType"`
	OriginalIOPS       int    `xml:"originalIops"`
	OriginalThroughput int    `xml:"originalThroughput"`
	TargetSize         int    `xml:"targetSize"`
	TargetType         string `xml:"targetVolumeType"`
	TargetIOPS         int    `xml:"targetIops"`
	TargetThroughput   int    `xml:"targetThroughput"`
}

func modificationOf(d cloudsim.Disk) (out volumeModification, err error) {
	var m modification
	if err := json.Unmarshal([]byte(d.Labels[labelModification]), &m); err != nil {
		return out, cloudsim.Errorf(cloudsim.Internal, "decode the label %s of disk %s: %w", labelModification, d.ID, err)
	}
	out = volumeModification{
		ID: idOf(prefixVolume, d.ID), State: modificationState(d), Start: formatTime(m.Start), Progress: 100,
		OriginalSize: m.Before.Size, OriginalType: m.Before.Type, OriginalIOPS: m.Before.IOPS, OriginalThroughput: m.Before.Throughput,
		TargetSize: m.After.Size, TargetType: m.After.Type, TargetIOPS: m.After.IOPS, TargetThroughput: m.After.Throughput,
	}
	if out.State == "modifying" {
		out.Progress = 0
	}
	return out, nil
}

func modificationState(d cloudsim.Disk) string {
	if d.State == cloudsim.DiskResizing || d.State == cloudsim.DiskModifying {
		return "modifying"
	}
	return "completed"
}

type modifyVolumeAnswer struct {
	ec2Answer
	Modification volumeModification `xml:"volumeModification"`
}

// modifyVolume changes the size, the type and the performance of a volume. It checks the whole
// request before it changes anything. In this cloud, a change of the size is one operation, and a
// change of the type or the performance is another operation. If a request needs both operations,
// modifyVolume changes the size first. It starts the second operation when the first one has ended.
func modifyVolume(q *query) (any, error) {
	id, size := q.requiredText("VolumeId"), q.integer("Size", 1, cloudsim.MaxDiskGiB, 0)
	p := performance{Type: q.text("VolumeType"), IOPS: q.integer("Iops", 1, maxPerformance, 0), Throughput: q.integer("Throughput", 1, maxPerformance, 0)}
	q.refuseTrue("ModifyVolume cannot change this property, so set MultiAttachEnabled when you create another volume", "MultiAttachEnabled")
	q.checkPresent(size > 0 || p != performance{}, "Size, VolumeType, Iops or Throughput")
	if err := q.finish(); err != nil {
		return nil, err
	}
	d, err := findVolume(q, id)
	if err != nil {
		return nil, err
	}
	before := settingsOf(d)
	p.Type = cmp.Or(p.Type, before.Type)
	change, err := p.modifyRequest(q, d, size)
	if err != nil {
		return nil, translateVolumeError(err, id)
	}
	if size > d.SizeGiB {
		if d, err = q.Cloud.ResizeDisk(q.Context(), d.ID, cloudsim.ResizeDisk{SizeGiB: size}); err != nil {
			return nil, translateVolumeError(err, id)
		}
	}
	if change != (cloudsim.ModifyDisk{}) {
		if size > before.Size {
			if _, err := q.Cloud.WaitOperation(q.Context(), d.Operation); err != nil {
				return nil, err
			}
		}
		if d, err = q.Cloud.ModifyDisk(q.Context(), d.ID, change); err != nil {
			return nil, translateKind(err, map[cloudsim.Kind]string{cloudsim.Conflict: "VolumeModificationRateExceeded"})
		}
	}
	m := modification{Start: d.UpdatedAt, Before: before, After: settingsOf(d)}
	m.After.Type = p.Type
	if d, err = storeModification(q, d, m); err != nil {
		return nil, translateVolumeError(err, id)
	}
	out, err := modificationOf(d)
	return &modifyVolumeAnswer{Modification: out}, err
}

// modifyRequest returns the request with which the dialect changes the type and the performance of
// the disk d. It returns the zero value if the disk already has the requested type and performance.
// The parameter size is the requested size, or 0 if the request has no size. modifyRequest returns
// an error if the state of the disk does not allow a change. It also returns an error if the disk
// cannot have the requested size, type or performance.
func (p performance) modifyRequest(q *query, d cloudsim.Disk, size int) (change cloudsim.ModifyDisk, err error) {
	own, err := p.diskType(q)
	if err != nil {
		return change, err
	}
	switch {
	case modificationState(d) == "modifying":
		return change, coded(http.StatusBadRequest, "IncorrectModificationState", "another modification of the volume "+idOf(prefixVolume, d.ID)+" is running: try again later")
	case d.State != cloudsim.DiskAvailable && d.State != cloudsim.DiskInUse:
		return change, cloudsim.Errorf(cloudsim.Conflict, "cannot modify the volume %s: it is in state %s", idOf(prefixVolume, d.ID), d.State)
	case size > 0 && size < d.SizeGiB:
		return change, errInvalid("Size", strconv.Itoa(size), "at least the present size of "+strconv.Itoa(d.SizeGiB)+" GiB")
	}
	t, err := q.Cloud.GetDiskType(q.Context(), own)
	if err != nil {
		return change, err
	}
	change = cloudsim.ModifyDisk{Type: own, IOPS: p.IOPS, ThroughputMiBps: p.Throughput}
	resized := d
	resized.SizeGiB = max(size, d.SizeGiB)
	changed, err := change.Apply(&resized, t)
	if !changed {
		change = cloudsim.ModifyDisk{}
	}
	return change, err
}

func storeModification(q *query, d cloudsim.Disk, m modification) (out cloudsim.Disk, err error) {
	raw, err := json.Marshal(m)
	if err != nil {
		return d, err
	}
	for range dialect.Attempts {
		labels := dialect.CloneLabels(d.Labels)
		labels[labelModification], labels[labelVolumeType] = string(raw), m.After.Type
		if out, err = q.Cloud.UpdateDisk(q.Context(), d.ID, cloudsim.UpdateDisk{Labels: labels}, d.Revision); !errors.Is(err, cloudsim.Stale) {
			return out, err
		}
		if d, err = q.Cloud.GetDisk(q.Context(), d.ID); err != nil {
			return d, err
		}
	}
	return d, cloudsim.Errorf(cloudsim.Stale, "other callers change the volume %s at the same time: repeat the request", idOf(prefixVolume, d.ID))
}

type describeModificationsAnswer struct {
	ec2Answer
	Modifications items[volumeModification] `xml:"volumeModificationSet"`
	Next          string                    `xml:"nextToken,omitempty"`
}

// describeModifications lists the last modification of each volume. The list does not contain
// volumes that ModifyVolume has never changed.
func describeModifications(q *query) (any, error) {
	k := volumes
	k.code = "InvalidVolumeModification"
	k.get = func(c *client.Client, ctx context.Context, id cloudsim.DiskID) (cloudsim.Disk, error) { //nolint:revive // the order of a method expression
		d, err := volumes.get(c, ctx, id)
		if errors.Is(err, cloudsim.NotFound) {
			err = volumes.errNotFound(idOf(prefixVolume, id))
		}
		return d, err
	}
	k.values = map[string]func(cloudsim.Disk) []string{
		"modification-state": func(d cloudsim.Disk) []string { return []string{modificationState(d)} },
		"volume-id":          volumes.values["volume-id"],
	}
	in := diskIn(q)
	found, next, err := listMatching(q, k, func(d cloudsim.Disk) bool { return in(d) && d.Labels[labelModification] != "" })
	if err != nil {
		return nil, err
	}
	out := &describeModificationsAnswer{Next: next}
	for _, d := range found {
		m, err := modificationOf(d)
		if err != nil {
			return nil, err
		}
		out.Modifications.Items = append(out.Modifications.Items, m)
	}
	return out, nil
}
