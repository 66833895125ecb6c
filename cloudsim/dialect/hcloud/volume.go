package hcloud

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// The size of a volume must be in this range. The unit is GiB.
const (
	minVolume = 10
	maxVolume = 10240
)

func volumeBusy(d cloudsim.Disk) bool {
	return d.State != cloudsim.DiskAvailable && d.State != cloudsim.DiskInUse && d.State != cloudsim.DiskFailed
}

func statusOfVolume(d cloudsim.Disk) string {
	if d.State == cloudsim.DiskCreating || d.State == cloudsim.DiskCopying {
		return "creating"
	}
	return "available"
}

func volumeOf(d cloudsim.Disk) volume {
	v := volume{
		ID: dialect.Number(d.ID), Name: dialect.OtherName(d.Meta), Status: statusOfVolume(d), Size: d.SizeGiB, Created: d.CreatedAt,
		Labels: dialect.Visible(d.Labels), Location: locationOf(d.Zones()[0], d.Region),
		LinuxDevice: diskLink(d.ID), Protection: protection{protected(d.Meta)},
	}
	if len(d.Attachments) > 0 {
		n := dialect.Number(d.Attachments[0].Instance)
		v.Server = &n
	}
	return v
}

func diskLink(id cloudsim.DiskID) string {
	return fmt.Sprintf("/dev/disk/by-id/scsi-0HC_Volume_%d", dialect.Number(id))
}

func findVolume(r *dialect.Request) (cloudsim.Disk, error) {
	id, err := id[cloudsim.DiskID](r, prefixDisk)
	if err != nil {
		return cloudsim.Disk{}, err
	}
	return r.Cloud.GetDisk(r.Context(), id)
}

func (a *api) getVolume(r *dialect.Request) (int, any, error) {
	d, err := findVolume(r)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"volume": volumeOf(d)}, nil
}

type createVolume struct {
	Name      string             `json:"name"`
	Size      int                `json:"size"`
	Server    *int64             `json:"server"`
	Location  idOrName           `json:"location"`
	Labels    *map[string]string `json:"labels"`
	Automount *bool              `json:"automount"`
	Format    *string            `json:"format"`
}

func (a *api) createVolume(r *dialect.Request) (int, any, error) {
	types, _, err := cloudsim.All(r.Context(), r.Cloud.ListDiskTypes, cloudsim.ListOptions{})
	if err != nil {
		return 0, nil, err
	}
	var c createVolume
	if err := r.Decode(&c); err != nil {
		return 0, nil, err
	}
	req, err := newVolume(r, c, types)
	if err != nil {
		return 0, nil, err
	}
	d, err := r.Cloud.CreateDisk(r.Context(), req)
	if err != nil {
		return 0, nil, err
	}
	made := lastAction(d.Meta, "create_volume", volumeBusy(d), resource{dialect.Number(d.ID), "volume"})
	next := []action{}
	if c.Server != nil {
		id := d.ID
		if d, err = attachNewDisk(retrying(r), d, *c.Server); err != nil {
			discardVolume(r, id, *c.Server)
			return 0, nil, err
		}
		made = done(made, d.UpdatedAt)
		next = append(next, volumeAction(d, "attach_volume"))
	}
	return http.StatusCreated, map[string]any{"volume": volumeOf(d), "action": made, "next_actions": next}, nil
}

// attachNewDisk attaches a new disk to a server. It first waits until the disk exists, because the
// cloud can attach a disk only after its creation has ended.
func attachNewDisk(r *dialect.Request, d cloudsim.Disk, server int64) (cloudsim.Disk, error) {
	if d.State == cloudsim.DiskCreating {
		if _, err := finishThen(r, d.Operation, d.ID, r.Cloud.GetDisk); err != nil {
			return d, err
		}
	}
	return attachDisk(r, d.ID, server)
}

// discardVolume deletes a new volume after a failed attachment, because the client does not know
// this volume. The cloud may have attached the volume although it answered with an error, so
// discardVolume first detaches the volume. It works even if the client has already disconnected. It
// waits until the deletion ends, so that the client can repeat its call.
func discardVolume(r *dialect.Request, id cloudsim.DiskID, server int64) {
	detachedReq, cancel := detached(r)
	defer cancel()
	at := dialect.ID[cloudsim.InstanceID](prefixInstance, server)
	if d, err := detachedReq.Cloud.DetachDisk(detachedReq.Context(), id, cloudsim.DetachDisk{Instance: at}); err == nil {
		_ = finish(detachedReq, d.Operation) // after an error, the deletion fails too
	}
	if d, err := detachedReq.Cloud.DeleteDisk(detachedReq.Context(), id); err == nil {
		_ = finish(detachedReq, d.Operation) // the answer contains the error of the creation
	}
}

func newVolume(r *dialect.Request, c createVolume, types []cloudsim.DiskType) (req cloudsim.CreateDisk, err error) {
	req.SizeGiB = c.Size
	if req.Name, req.Labels, err = newName(r, c.Name, c.Labels); err != nil {
		return req, err
	}
	switch {
	case c.Size < minVolume || c.Size > maxVolume:
		return req, cloudsim.InvalidField("size", fmt.Sprintf("must be %d to %d, got %d", minVolume, maxVolume, c.Size))
	case c.Format != nil && *c.Format != "":
		return req, dialect.Unsupported{What: "format", Why: "format the volume on the server"}
	case c.Automount != nil && *c.Automount:
		return req, dialect.Unsupported{What: "automount", Why: "mount the volume on the server"}
	case c.Server != nil && c.Location != (idOrName{}):
		return req, cloudsim.InvalidField("location", "must be absent if the request has a server")
	}
	if req.Type = preferredType(types, c.Size); req.Type == "" {
		return req, cloudsim.InvalidField("size", fmt.Sprintf("must be a size that a disk type of the cloud allows, got %d GiB", c.Size))
	}
	if c.Server != nil {
		i, err := r.Cloud.GetInstance(r.Context(), dialect.ID[cloudsim.InstanceID](prefixInstance, *c.Server))
		if errors.Is(err, cloudsim.NotFound) {
			return req, errUnknown("server", *c.Server)
		}
		if err != nil {
			return req, err
		}
		req.Zone = i.Zone
		return req, nil
	}
	in, err := listZones(r)
	if err != nil {
		return req, err
	}
	req.Zone, _, err = findLocation(in, c.Location.String())
	return req, err
}

// preferredType returns the name of a disk type that allows the given size. If the type "balanced"
// allows the size, preferredType returns this type. Otherwise it returns the first type of the list
// that allows the size. If no type allows the size, preferredType returns "".
func preferredType(types []cloudsim.DiskType, size int) string {
	name := ""
	for _, t := range types {
		if t.MinGiB <= size && size <= t.MaxGiB && (name == "" || t.Name == "balanced") {
			name = t.Name
		}
	}
	return name
}

func updateVolume(r *dialect.Request) (int, any, error) {
	d, err := findVolume(r)
	if err != nil {
		return 0, nil, err
	}
	var u updateResource
	if err := r.Decode(&u); err != nil {
		return 0, nil, err
	}
	labels, err := u.newLabels(d.Meta)
	if err != nil {
		return 0, nil, err
	}
	if d, err = r.Cloud.UpdateDisk(r.Context(), d.ID, cloudsim.UpdateDisk{Labels: labels}, d.Revision); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"volume": volumeOf(d)}, nil
}

func (a *api) deleteVolume(r *dialect.Request) (int, any, error) {
	d, err := findVolume(r)
	if err != nil {
		return 0, nil, err
	}
	if volumeBusy(d) {
		return 0, nil, errLocked("volume", string(d.State))
	}
	if err := checkDeletable(d.Meta); err != nil {
		return 0, nil, err
	}
	if d, err = r.Cloud.DeleteDisk(r.Context(), d.ID); err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, finish(r, d.Operation)
}

func volumeAction(d cloudsim.Disk, command string) action {
	of := []resource{{dialect.Number(d.ID), "volume"}}
	if len(d.Attachments) > 0 {
		of = append(of, resource{dialect.Number(d.Attachments[0].Instance), "server"})
	}
	return lastAction(d.Meta, command, volumeBusy(d), of...)
}

// volumeCall returns a call that changes a disk and answers with an action. The call
// decodes the body into a value of type T. While another action runs on the disk, the call
// answers with the status 423.
func volumeCall[T any](command string, fn func(*dialect.Request, cloudsim.Disk, T) (cloudsim.Disk, error)) call {
	return func(r *dialect.Request) (int, any, error) {
		d, err := findVolume(r)
		if err != nil {
			return 0, nil, err
		}
		var in T
		if err := r.Decode(&in); err != nil {
			return 0, nil, err
		}
		if volumeBusy(d) {
			return 0, nil, errLocked("volume", string(d.State))
		}
		if d, err = fn(r, d, in); err != nil {
			return 0, nil, err
		}
		return actionStarted(volumeAction(d, command))
	}
}

type attachVolumeRequest struct {
	Server    int64 `json:"server"`
	Automount *bool `json:"automount"`
}

func attachVolume(r *dialect.Request, d cloudsim.Disk, in attachVolumeRequest) (cloudsim.Disk, error) {
	if in.Automount != nil && *in.Automount {
		return d, dialect.Unsupported{What: "automount", Why: "mount the volume on the server"}
	}
	if len(d.Attachments) > 0 {
		return d, coded("volume_already_attached", "the volume is already attached to a server: detach it first")
	}
	return attachDisk(r, d.ID, in.Server)
}

// attachDisk attaches a disk to a server. If the server has the maximum number of disks, the error
// has the code that Hetzner's CSI driver expects.
func attachDisk(r *dialect.Request, id cloudsim.DiskID, server int64) (cloudsim.Disk, error) {
	d, err := r.Cloud.AttachDisk(r.Context(), id, cloudsim.AttachDisk{Instance: dialect.ID[cloudsim.InstanceID](prefixInstance, server)})
	if e, ok := errors.AsType[*cloudsim.Error](err); ok && e.Kind == cloudsim.Exhausted && e.RetryAfter == 0 {
		return d, coded("limit_exceeded_error", e.Msg)
	}
	return d, err
}

func detachVolume(r *dialect.Request, d cloudsim.Disk, _ struct{}) (cloudsim.Disk, error) {
	if len(d.Attachments) == 0 {
		return d, coded("service_error", "the volume is not attached to a server")
	}
	return r.Cloud.DetachDisk(r.Context(), d.ID, cloudsim.DetachDisk{Instance: d.Attachments[0].Instance})
}

func resizeVolume(r *dialect.Request, d cloudsim.Disk, in struct {
	Size int `json:"size"`
},
) (cloudsim.Disk, error) {
	if in.Size <= d.SizeGiB || in.Size > maxVolume {
		return d, cloudsim.InvalidField("size", fmt.Sprintf("must be more than the present size %d and at most %d, got %d", d.SizeGiB, maxVolume, in.Size))
	}
	return r.Cloud.ResizeDisk(r.Context(), d.ID, cloudsim.ResizeDisk{SizeGiB: in.Size})
}
