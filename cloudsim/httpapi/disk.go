package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) diskRoutes() {
	e := a.engine
	lists(a, "diskTypes", "/v1/disk-types", "disk types", engine.Read, e.ListDiskTypes)
	gets(a, "diskTypes", "/v1/disk-types/{id}", "a disk type by name", engine.Read, e.GetDiskType, revOf[cloudsim.DiskType])

	lists(a, "diskPools", "/v1/disk-pools", "disk pools: the capacity of each zone for each type", engine.Read, e.ListDiskPools)
	gets(a, "diskPools", "/v1/disk-pools/{id}", "a disk pool by name", engine.Read, e.GetDiskPool, revOf[cloudsim.DiskPool])
	handle(a, op{id: "diskPools.set", method: http.MethodPut, path: "/v1/disk-pools/{id}", summary: "Change the size of a disk pool", access: engine.Admin}, a.setDiskPool)

	handle(a, op{id: "disks.create", method: post, path: "/v1/disks", summary: "Create a disk", status: http.StatusCreated, access: engine.Write, idemKey: true}, a.createDisk)
	lists(a, "disks", "/v1/disks", "disks", engine.Read, e.ListDisks)
	gets(a, "disks", "/v1/disks/{id}", "a disk", engine.Read, e.GetDisk, revOf[cloudsim.Disk])
	handle(a, op{id: "disks.update", method: http.MethodPut, path: "/v1/disks/{id}", summary: "Replace a disk's labels", access: engine.Write}, a.updateDisk)
	actWithBody(a, "disks.attach", "/v1/disks/{id}/attach", "Begin to attach a disk to an instance in a zone of the disk", e.AttachDisk)
	actWithBody(a, "disks.detach", "/v1/disks/{id}/detach", "Begin to detach a disk from an instance. With force, the disk of a stopped instance is detached at once", e.DetachDisk)
	actWithBody(a, "disks.resize", "/v1/disks/{id}/resize", "Begin to grow a disk, attached or not", e.ResizeDisk)
	actWithBody(a, "disks.modify", "/v1/disks/{id}/modify", "Begin to change the type, IOPS or throughput of a disk, attached or not", e.ModifyDisk)
	act(a, "disks.delete", http.MethodDelete, "/v1/disks/{id}", "Begin to delete a disk without attachments", e.DeleteDisk)
}

type askInput[R any] struct {
	ByID
	Body R
}

// actWithBody registers a route for a verb with a request body. For a verb
// without a body, use act.
func actWithBody[T cloudsim.Resource, ID ~string, R any](a *api, id, path, summary string, act func(context.Context, ID, R) (T, error)) {
	handle(a, op{id: id, method: post, path: path, summary: summary, status: http.StatusAccepted, access: engine.Write},
		func(ctx context.Context, in *askInput[R]) (*body[T], error) {
			v, err := act(ctx, ID(in.ID), in.Body)
			return answer(v, revOf(v), err)
		})
}

func (a *api) setDiskPool(ctx context.Context, in *askInput[cloudsim.SetDiskPool]) (*body[cloudsim.DiskPool], error) {
	v, err := a.engine.SetDiskPool(ctx, in.ID, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) createDisk(ctx context.Context, in *create[cloudsim.CreateDisk]) (*body[cloudsim.Disk], error) {
	v, err := a.engine.CreateDisk(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) updateDisk(ctx context.Context, in *struct {
	ByID
	IfMatch string `header:"If-Match" doc:"ETag of the expected revision. The call fails if the resource has another revision"`
	Body    cloudsim.UpdateDisk
}) (*body[cloudsim.Disk], error) {
	rev, err := revision(in.IfMatch)
	if err != nil {
		return nil, err
	}
	v, err := a.engine.UpdateDisk(ctx, cloudsim.DiskID(in.ID), in.Body, rev)
	return answer(v, v.Revision, err)
}
