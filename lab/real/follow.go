package real

import (
	"context"
	"encoding/json"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/informer"
	"github.com/cloudsim-dev/allinone/internal/providerid"
)

// follow watches the cloud until ctx ends. It sends each new version of an instance to the
// goroutine that manages the instance's machine.
func (h *hypervisor) follow(ctx context.Context) {
	informer.Run(ctx, h.cfg.Cloud.Watch, &follower{h, informer.OutageLogger{Log: h.log}}, retryBackoff())
}

// follower applies the cloud's events to the hypervisor. Machines keep running while the
// cloud is unavailable.
type follower struct {
	*hypervisor
	informer.OutageLogger
}

// List reads all instances, zones and disks, and applies them to the hypervisor. It also makes each
// machine check its disks.
func (h *follower) List(ctx context.Context) (informer.Listed, error) {
	all, at, err := cloudsim.All(ctx, h.cfg.Cloud.ListInstances, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	zones, zonesAt, err := cloudsim.All(ctx, h.cfg.Cloud.ListZones, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	offered := map[string]bool{}
	for _, z := range zones {
		offered[z.Name] = true
		h.cables.darken(z)
	}
	for _, z := range h.cfg.Zones {
		if !offered[z] {
			h.log.Warn("the cloud does not have this zone, so this host runs no machines for the zone", "zone", z)
		}
	}
	disks, disksAt, err := cloudsim.All(ctx, h.cfg.Cloud.ListDisks, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	h.wantedDisks.replace(disks)
	h.prune(all)
	h.forgetRevisions()
	for _, i := range all {
		h.update(ctx, i, false)
	}
	h.notifyDisks()
	return informer.Listed{cloudsim.KindInstance: at, cloudsim.KindZone: zonesAt, cloudsim.KindDisk: disksAt}, nil
}

// Take applies an event of a zone, a disk or an instance to the hypervisor.
func (h *follower) Take(ctx context.Context, e cloudsim.Event) error {
	switch e.Kind {
	case cloudsim.KindZone:
		z, err := object[cloudsim.Zone](e)
		if err == nil {
			h.cables.darken(z)
		}
		return err
	case cloudsim.KindDisk:
		d, err := object[cloudsim.Disk](e)
		if err != nil {
			return err
		}
		if changed := h.wantedDisks.take(d, e.Type == cloudsim.EventDelete); len(changed) > 0 {
			h.notifyDisks(changed...)
		}
		return nil
	}
	i, err := object[cloudsim.Instance](e)
	if err == nil {
		h.update(ctx, i, e.Type == cloudsim.EventDelete)
	}
	return err
}

func object[T any](e cloudsim.Event) (value T, err error) {
	err = json.Unmarshal(e.Object, &value)
	return value, err
}

// nameEvery is the interval at which awaitName reads the Node.
const nameEvery = 500 * time.Millisecond

// awaitName waits while the cluster still has the Node of an earlier instance with the name of
// instance i. The cloud controller manager deletes this Node. Without this wait, the new kubelet
// would use the old Node, and would lose this Node when the cloud controller manager deletes it. If
// instance i changes during the wait, awaitName returns false, because a user may have stopped or
// deleted instance i.
func (h *hypervisor) awaitName(ctx context.Context, i cloudsim.Instance, changed notification) (free bool, err error) {
	logged := false
	for {
		other, err := h.cfg.NodeOf(ctx, i.Name)
		if err != nil {
			return false, err
		}
		if other == "" || providerid.Same(other, i.ProviderID) {
			return true, nil
		}
		if !logged {
			logged = true
			h.log.Info("waiting for the cloud controller manager to delete the Node of an earlier instance", "name", i.Name, "providerID", other, "instance", i.ID)
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-changed:
			changed.notify() // the caller of reconcile needs this notification
			return false, nil
		case <-time.After(nameEvery):
		}
	}
}
