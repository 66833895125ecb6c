package aws

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// labelDevice is a prefix of the keys of disk labels. The rest of the key is the id of an instance.
// The value is the device name in the attachment of the disk to this instance.
const labelDevice = dialect.LabelPrefix + "device."

var deviceRE = regexp.MustCompile(`^/dev/[a-z][a-z0-9]{1,30}$`)

type volumeAttachment struct {
	Volume              string `xml:"volumeId"`
	Instance            string `xml:"instanceId"`
	Device              string `xml:"device"`
	State               string `xml:"status"`
	DeleteOnTermination bool   `xml:"deleteOnTermination"`
}

func attachmentOf(d cloudsim.Disk, a cloudsim.Attachment) volumeAttachment {
	return volumeAttachment{Volume: idOf(prefixVolume, d.ID), Instance: idOf(prefixInstance, a.Instance), Device: deviceOf(d, a), State: string(a.State)}
}

// deviceOf returns the device name of an attachment. If a call of EC2's API created the attachment,
// the result is the device name in this call. If a call of the cloud's own API created the
// attachment, the result is the device name that the cloud has chosen.
func deviceOf(d cloudsim.Disk, a cloudsim.Attachment) string {
	return cmp.Or(d.Labels[labelDevice+string(a.Instance)], "/dev/"+a.Device)
}

type attachmentAnswer struct {
	ec2Answer
	volumeAttachment
}

// attachVolume attaches a disk to an instance. The device name in the request has no effect on the
// instance: the instance has the device at the path that diskLink returns.
func attachVolume(q *query) (any, error) {
	id, instanceID, device := q.requiredText("VolumeId"), q.requiredText("InstanceId"), q.requiredText("Device")
	if device != "" && !deviceRE.MatchString(device) {
		q.fail(errInvalid("Device", device, "a device name such as /dev/xvdba"))
	}
	if err := q.finish(); err != nil {
		return nil, err
	}
	found, err := readByIDs(q, instances, []string{instanceID}, inRegionOf(q))
	if err != nil {
		return nil, err
	}
	i := found[0]
	var d cloudsim.Disk
	err = dialect.Retry(func() (err error) {
		if d, err = findVolume(q, id); err != nil {
			return err
		}
		if err = checkAttachable(q, d, i, device); err != nil {
			return err
		}
		d, err = q.Cloud.UpdateDisk(q.Context(), d.ID, cloudsim.UpdateDisk{Labels: labelsWithDevice(d, i.ID, device)}, d.Revision)
		return err
	})
	if err == nil {
		d, err = q.Cloud.AttachDisk(q.Context(), d.ID, cloudsim.AttachDisk{Instance: i.ID})
		err = translateKind(err, map[cloudsim.Kind]string{cloudsim.Exhausted: "AttachmentLimitExceeded"})
	}
	if err != nil {
		return nil, translateVolumeError(err, id)
	}
	a, _ := d.Attachment(i.ID)
	return &attachmentAnswer{volumeAttachment: attachmentOf(d, a)}, nil
}

// labelsWithDevice returns the new labels of a disk for an attachment to the given instance. It
// adds the label with the device name of this attachment. It removes the device names of former
// attachments.
func labelsWithDevice(d cloudsim.Disk, instanceID cloudsim.InstanceID, device string) map[string]string {
	labels := map[string]string{}
	for k, v := range d.Labels {
		id, isDevice := strings.CutPrefix(k, labelDevice)
		if _, attached := d.Attachment(cloudsim.InstanceID(id)); !isDevice || attached {
			labels[k] = v
		}
	}
	labels[labelDevice+string(instanceID)] = device
	return labels
}

// checkAttachable returns an error of EC2 if the cloud cannot attach the disk d to the instance i.
// It also returns an error if the instance has another disk with the given device name.
func checkAttachable(q *query, d cloudsim.Disk, i cloudsim.Instance, device string) error {
	volumeID, instanceID := idOf(prefixVolume, d.ID), idOf(prefixInstance, i.ID)
	_, attached := d.Attachment(i.ID)
	switch {
	case len(d.Attachments) > 0 && (attached || !d.MultiAttach):
		return errVolumeInUse(d)
	case d.State != cloudsim.DiskAvailable && d.State != cloudsim.DiskInUse:
		return coded(http.StatusBadRequest, "IncorrectState", "cannot attach the volume "+volumeID+": it is "+string(d.State))
	case !slices.Contains(d.Zones(), i.Zone):
		return coded(http.StatusBadRequest, "InvalidVolume.ZoneMismatch", "the volume "+volumeID+" is in "+strings.Join(d.Zones(), " and ")+", and the instance "+instanceID+" is in "+i.Zone)
	case i.State != cloudsim.InstanceRunning && i.State != cloudsim.InstanceRebooting && i.State != cloudsim.InstanceStopped:
		return coded(http.StatusBadRequest, "IncorrectState", "cannot attach a volume to the instance "+instanceID+": it is "+instanceStates[i.State].Name)
	}
	r, err := readInstanceResources(q, []cloudsim.Instance{i})
	if err != nil {
		return err
	}
	for _, other := range r.disks[i.ID] {
		if a, _ := other.Attachment(i.ID); deviceOf(other, a) == device {
			// If the error contains the words "already in use", the EBS CSI driver repeats the
			// request with another device name.
			return coded(http.StatusBadRequest, "InvalidParameterValue", "the parameter Device must be a free name: "+device+" of the instance "+instanceID+" is already in use")
		}
	}
	return nil
}

// detachVolume detaches a disk from an instance. If the request has no parameter InstanceId, the
// disk must have exactly one attachment.
func detachVolume(q *query) (any, error) {
	id, instanceID, device, force := q.requiredText("VolumeId"), q.text("InstanceId"), q.text("Device"), q.flag("Force")
	if err := q.finish(); err != nil {
		return nil, err
	}
	d, err := findVolume(q, id)
	if err != nil {
		return nil, err
	}
	a, err := findAttachment(d, instanceID, device)
	if err != nil {
		return nil, err
	}
	out := attachmentOf(d, a)
	if d, err = q.Cloud.DetachDisk(q.Context(), d.ID, cloudsim.DetachDisk{Instance: a.Instance, Force: force}); err != nil {
		return nil, translateVolumeError(err, id)
	}
	out.State = "detached"
	if now, ok := d.Attachment(a.Instance); ok {
		out.State = string(now.State)
	}
	return &attachmentAnswer{volumeAttachment: out}, nil
}

// findAttachment returns the attachment that a DetachVolume request selects. The parameters
// instanceID and device are "" if the request does not contain them.
func findAttachment(d cloudsim.Disk, instanceID, device string) (a cloudsim.Attachment, err error) {
	id := idOf(prefixVolume, d.ID)
	switch {
	case len(d.Attachments) == 0:
		return a, coded(http.StatusBadRequest, "IncorrectState", "the volume "+id+" is not attached: its state is "+stateOfVolume(d))
	case instanceID == "" && len(d.Attachments) > 1:
		return a, coded(http.StatusBadRequest, "MissingParameter", "the parameter InstanceId is required, because the volume "+id+" has several attachments")
	}
	a = d.Attachments[0]
	if instanceID != "" {
		own, err := instances.ownID(instanceID)
		if err != nil {
			return a, err
		}
		a, _ = d.Attachment(own)
	}
	if a.Instance == "" || device != "" && device != deviceOf(d, a) {
		return a, coded(http.StatusBadRequest, "InvalidAttachment.NotFound", "the volume "+id+" has no attachment with the requested instance and device")
	}
	return a, nil
}
