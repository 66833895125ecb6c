package aws

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

type volume struct {
	ID          string                  `xml:"volumeId"`
	Size        int                     `xml:"size"`
	Snapshot    string                  `xml:"snapshotId,omitempty"`
	Zone        string                  `xml:"availabilityZone"`
	State       string                  `xml:"status"`
	Created     string                  `xml:"createTime"`
	Attachments items[volumeAttachment] `xml:"attachmentSet"`
	Tags        items[tag]              `xml:"tagSet"`
	Type        string                  `xml:"volumeType"`
	IOPS        int                     `xml:"iops"`
	Throughput  int                     `xml:"throughput"`
	Encrypted   bool                    `xml:"encrypted"`
	MultiAttach bool                    `xml:"multiAttachEnabled"`
}

type describeVolumesAnswer struct {
	ec2Answer
	Volumes items[volume] `xml:"volumeSet"`
	Next    string        `xml:"nextToken,omitempty"`
}

// volumeStates maps some states of a disk to EC2's states. In all other states, a disk with an
// attachment has EC2's state in-use, and a disk without an attachment has the state available.
var volumeStates = map[cloudsim.DiskState]string{
	cloudsim.DiskCreating: "creating", cloudsim.DiskCopying: "creating", cloudsim.DiskFailed: "error",
	cloudsim.DiskDeleting: "deleting", cloudsim.DiskDeleted: "deleted",
}

func stateOfVolume(d cloudsim.Disk) string {
	if s, ok := volumeStates[d.State]; ok {
		return s
	}
	if len(d.Attachments) > 0 {
		return "in-use"
	}
	return "available"
}

var volumes = kind[cloudsim.Disk, cloudsim.DiskID]{
	one: "volume", param: "VolumeId", prefix: prefixVolume, code: "InvalidVolume", malformed: "InvalidVolumeID.Malformed", own: "disk",
	get: (*client.Client).GetDisk, all: (*client.Client).ListDisks,
	meta: func(d cloudsim.Disk) cloudsim.Meta { return d.Meta },
	id:   func(d cloudsim.Disk) string { return string(d.ID) },
	values: map[string]func(cloudsim.Disk) []string{
		"attachment.instance-id": func(d cloudsim.Disk) (all []string) {
			for _, a := range d.Attachments {
				all = append(all, idOf(prefixInstance, a.Instance))
			}
			return all
		},
		"availability-zone": func(d cloudsim.Disk) []string { return d.Zones() },
		"attachment.device": func(d cloudsim.Disk) (all []string) {
			for _, a := range d.Attachments {
				all = append(all, deviceOf(d, a))
			}
			return all
		},
		"attachment.status": func(d cloudsim.Disk) (all []string) {
			for _, a := range d.Attachments {
				all = append(all, string(a.State))
			}
			return all
		},
		"size":        func(d cloudsim.Disk) []string { return []string{strconv.Itoa(d.SizeGiB)} },
		"status":      func(d cloudsim.Disk) []string { return []string{stateOfVolume(d)} },
		"volume-id":   func(d cloudsim.Disk) []string { return []string{idOf(prefixVolume, d.ID)} },
		"snapshot-id": func(d cloudsim.Disk) []string { return optionalID(prefixSnapshot, d.SourceSnapshot) },
		"volume-type": func(d cloudsim.Disk) []string { return []string{typeOf(d)} },
	},
}

func diskIn(q *query) func(cloudsim.Disk) bool {
	region := q.region()
	return func(d cloudsim.Disk) bool { return d.Region == region }
}

func describeVolumes(q *query) (any, error) {
	found, next, err := listMatching(q, volumes, diskIn(q))
	if err != nil {
		return nil, err
	}
	out := &describeVolumesAnswer{Next: next, Volumes: items[volume]{Items: make([]volume, len(found))}}
	for n, d := range found {
		out.Volumes.Items[n] = volumeOf(d)
	}
	return out, nil
}

// volumeOf returns a disk in EC2's format. The zone of a regional disk is the first of its two
// zones in alphabetical order.
func volumeOf(d cloudsim.Disk) volume {
	v := volume{
		ID: idOf(prefixVolume, d.ID), Size: d.SizeGiB, Zone: d.Zones()[0], State: stateOfVolume(d), Created: formatTime(d.CreatedAt),
		Type: typeOf(d), IOPS: d.IOPS, Throughput: d.ThroughputMiBps, MultiAttach: d.MultiAttach, Tags: tagsOf(d.Meta),
	}
	if d.SourceSnapshot != "" {
		v.Snapshot = idOf(prefixSnapshot, d.SourceSnapshot)
	}
	for _, a := range d.Attachments {
		v.Attachments.Items = append(v.Attachments.Items, attachmentOf(d, a))
	}
	return v
}

// diskLink returns the path of a volume's device on an instance. The path contains the id of the
// volume without its hyphen, because EC2 uses this text as the serial number of the NVMe device.
func diskLink(id cloudsim.DiskID) string {
	return cloudsim.DiskLinks + "/nvme-Amazon_Elastic_Block_Store_" + strings.Replace(idOf(prefixVolume, id), "-", "", 1)
}

// volumeParameters maps the fields of this cloud's requests about disks to the parameters of EC2.
var volumeParameters = map[string]string{
	"iops": "Iops", "multiAttach": "MultiAttachEnabled", "sizeGiB": "Size", "sourceSnapshot": "SnapshotId", "throughputMiBps": "Throughput", "type": "VolumeType", "zone": "AvailabilityZone",
}

type createVolumeAnswer struct {
	ec2Answer
	volume
}

// createVolume creates a disk. In EC2, a volume has no name, so the name of the disk is a hash of
// the ClientToken. A repeated request with the same ClientToken finds the disk of the first
// request.
func createVolume(q *query) (any, error) {
	snapshotID, token := q.text("SnapshotId"), q.clientToken()
	p := performance{Type: cmp.Or(q.text("VolumeType"), defaultVolumeType), IOPS: q.integer("Iops", 1, maxPerformance, 0), Throughput: q.integer("Throughput", 1, maxPerformance, 0)}
	req := cloudsim.CreateDisk{
		Name: q.nameFor("volume", token), Zone: q.text("AvailabilityZone"), IOPS: p.IOPS, ThroughputMiBps: p.Throughput,
		SizeGiB: q.integer("Size", 1, cloudsim.MaxDiskGiB, 0), MultiAttach: q.flag("MultiAttachEnabled"),
	}
	q.refuseTrue("this cloud does not encrypt disks", "Encrypted")
	if req.Zone == "" {
		req.Zone = q.text("AvailabilityZoneId") // the id of a zone is its name
	}
	q.checkPresent(req.Zone != "", "AvailabilityZone")
	q.checkPresent(req.SizeGiB > 0 || snapshotID != "", "Size, or the parameter SnapshotId,")
	var err error
	tags := q.decodeTagsFor("volume")
	if req.Labels, err = dialect.WithLabels(tags, map[string]string{labelVolumeType: p.Type, labelParameters: q.parametersHash(tags)}); err != nil {
		q.fail(err)
	}
	if err := q.finish(); err != nil {
		return nil, err
	}
	if err := checkZone(q, "AvailabilityZone", req.Zone); err != nil {
		return nil, err
	}
	if req.Type, err = p.diskType(q); err != nil {
		return nil, err
	}
	if volumeTypes[p.Type].needsIOPS && p.IOPS == 0 {
		return nil, coded(http.StatusBadRequest, "MissingParameter", "the parameter Iops is required for the volume type "+p.Type)
	}
	if snapshotID != "" {
		found, err := readByIDs(q, snapshots, []string{snapshotID}, snapshotIn(q))
		if err != nil {
			return nil, err
		}
		req.SourceSnapshot = found[0].ID
	}
	d, found, err := findCreated(q, volumes, req.Name, req.Labels[labelParameters])
	if err == nil && !found {
		d, err = q.Cloud.CreateDisk(q.Context(), req)
	}
	return &createVolumeAnswer{volume: volumeOf(d)}, translateKind(translateField(err, volumeParameters), map[cloudsim.Kind]string{cloudsim.Exhausted: "VolumeLimitExceeded", cloudsim.Exists: mismatch})
}

// findVolume returns the disk of the volume with the given id.
func findVolume(q *query, id string) (cloudsim.Disk, error) {
	found, err := readByIDs(q, volumes, []string{id}, diskIn(q))
	if err != nil {
		return cloudsim.Disk{}, err
	}
	return found[0], nil
}

func deleteVolume(q *query) (any, error) {
	id := q.requiredText("VolumeId")
	if err := q.finish(); err != nil {
		return nil, err
	}
	d, err := findVolume(q, id)
	if err != nil {
		return nil, err
	}
	if len(d.Attachments) > 0 {
		return nil, errVolumeInUse(d)
	}
	_, err = q.Cloud.DeleteDisk(q.Context(), d.ID)
	return &returnAnswer{Return: true}, translateVolumeError(err, id)
}

func errVolumeInUse(d cloudsim.Disk) error {
	return coded(http.StatusBadRequest, "VolumeInUse", "the volume "+idOf(prefixVolume, d.ID)+" is attached to "+idOf(prefixInstance, d.Attachments[0].Instance)+": detach it first")
}

// translateVolumeError translates an error of this cloud about the volume with the given id to an
// error with a code of EC2.
func translateVolumeError(err error, id string) error {
	if errors.Is(err, cloudsim.NotFound) {
		return volumes.errNotFound(id) // another caller has deleted the volume
	}
	return translateKind(translateField(err, volumeParameters), map[cloudsim.Kind]string{cloudsim.Conflict: "IncorrectState"})
}

type volumeStatus struct {
	ID     string        `xml:"volumeId"`
	Zone   string        `xml:"availabilityZone"`
	Status statusSummary `xml:"volumeStatus"`
}

type describeVolumeStatusAnswer struct {
	ec2Answer
	Statuses items[volumeStatus] `xml:"volumeStatusSet"`
	Next     string              `xml:"nextToken,omitempty"`
}

// describeVolumeStatus lists the results of the status check of each volume.
func describeVolumeStatus(q *query) (any, error) {
	k := volumes
	k.values = maps.Clone(volumes.values)
	k.values["volume-status.status"] = func(d cloudsim.Disk) []string { return []string{dataStatus(d).Status} }
	found, next, err := listMatching(q, k, diskIn(q))
	if err != nil {
		return nil, err
	}
	out := &describeVolumeStatusAnswer{Next: next}
	for _, d := range found {
		out.Statuses.Items = append(out.Statuses.Items, volumeStatus{ID: idOf(prefixVolume, d.ID), Zone: d.Zones()[0], Status: dataStatus(d)})
	}
	return out, nil
}

// dataStatus returns the result of the status check of a volume in EC2's format. The check fails if
// the data plane has reported that the disk has an error or has lost its data. The status is
// insufficient-data until the creation of the volume has succeeded, and during its deletion.
func dataStatus(d cloudsim.Disk) statusSummary {
	status, detail := "ok", "passed"
	switch {
	case d.Status.Error != "" || d.Status.Lost:
		status, detail = "impaired", "failed"
	case !d.HasData():
		status, detail = "insufficient-data", "insufficient-data"
	}
	return statusSummary{Status: status, Details: items[statusDetail]{Items: []statusDetail{{Name: "io-enabled", Status: detail}}}}
}
