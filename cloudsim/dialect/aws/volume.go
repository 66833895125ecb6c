package aws

import (
	"cmp"
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

type volume struct {
	ID          string                  `xml:"volumeId"`
	Size        int                     `xml:"size"`
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

type volumeAttachment struct {
	Volume              string `xml:"volumeId"`
	Instance            string `xml:"instanceId"`
	State               string `xml:"status"`
	DeleteOnTermination bool   `xml:"deleteOnTermination"`
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
	one: "volume", param: "VolumeId", prefix: prefixVolume, code: "InvalidVolume", own: "disk",
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
		"size":              func(d cloudsim.Disk) []string { return []string{strconv.Itoa(d.SizeGiB)} },
		"status":            func(d cloudsim.Disk) []string { return []string{stateOfVolume(d)} },
		"volume-id":         func(d cloudsim.Disk) []string { return []string{idOf(prefixVolume, d.ID)} },
		"volume-type":       func(d cloudsim.Disk) []string { return []string{d.Type} },
	},
}

func describeVolumes(q *query) (any, error) {
	region := q.region()
	found, next, err := list(q, volumes, func(d cloudsim.Disk) bool { return d.Region == region })
	if err != nil {
		return nil, err
	}
	out := &describeVolumesAnswer{Next: next}
	for _, d := range found {
		v := volume{
			ID: idOf(prefixVolume, d.ID), Size: d.SizeGiB, Zone: d.Zones()[0], State: stateOfVolume(d), Created: timestamp(d.CreatedAt),
			Type: d.Type, IOPS: d.IOPS, Throughput: d.ThroughputMiBps, MultiAttach: d.MultiAttach, Tags: tagsOf(d.Meta),
		}
		for _, a := range d.Attachments {
			v.Attachments.Items = append(v.Attachments.Items, volumeAttachment{Volume: v.ID, Instance: idOf(prefixInstance, a.Instance), State: string(a.State)})
		}
		out.Volumes.Items = append(out.Volumes.Items, v)
	}
	return out, nil
}

// deviceOf returns the device name of an attachment: the name in the request for the attachment, or
// the name of this cloud if another client attached the disk.
func deviceOf(d cloudsim.Disk, a cloudsim.Attachment) string {
	return cmp.Or(d.Labels[labelDevice+string(a.Instance)], "/dev/"+a.Device)
}

// labelDevice is followed by the id of an instance. The value is the device name of the attachment
// to this instance.
const labelDevice = dialect.LabelPrefix + "device."
