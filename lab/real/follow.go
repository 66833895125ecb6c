package real

import (
	"context"
	"encoding/json"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/follow"
)

// follow tells the keepers what the cloud says, until ctx ends.
func (h *hypervisor) follow(ctx context.Context) {
	follow.Run(ctx, h.cfg.Cloud.Watch, &follower{h, follow.Teller{Log: h.log}}, retry())
}

// follower makes the hypervisor what the cloud says. What runs goes on without
// the cloud.
type follower struct {
	*hypervisor
	follow.Teller
}

// List tells the keepers of all instances, and which zones are dark.
func (h *follower) List(ctx context.Context) (follow.Listed, error) {
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
			h.log.Warn("the cloud has no such zone: no instance of it will come", "zone", z)
		}
	}
	h.prune(all)
	for _, i := range all {
		h.tell(ctx, i, false)
	}
	return follow.Listed{cloudsim.KindInstance: at, cloudsim.KindZone: zonesAt}, nil
}

// Take passes an event on.
func (h *follower) Take(ctx context.Context, e cloudsim.Event) error {
	if e.Kind == cloudsim.KindZone {
		z, err := object[cloudsim.Zone](e)
		if err == nil {
			h.cables.darken(z)
		}
		return err
	}
	i, err := object[cloudsim.Instance](e)
	if err == nil {
		h.tell(ctx, i, e.Type == cloudsim.EventDelete)
	}
	return err
}

// object is what an event is of.
func object[T any](e cloudsim.Event) (of T, err error) {
	err = json.Unmarshal(e.Object, &of)
	return of, err
}

// nameEvery is how often a machine that waits for its name looks again.
const nameEvery = 500 * time.Millisecond

// awaitName waits until the cluster's Node of an earlier instance of the same
// name is gone: a kubelet would take it for its own, and lose it when the cloud
// controller manager deletes it. It is the cloud controller manager's to do.
func (h *hypervisor) awaitName(ctx context.Context, i cloudsim.Instance) error {
	said := false
	for {
		other, err := h.cfg.NodeOf(ctx, i.Name)
		if err != nil {
			return err
		}
		if other == "" || other == i.ProviderID {
			return nil
		}
		if !said {
			said = true
			h.log.Info("waiting for the cloud controller manager to delete the Node of an earlier instance", "name", i.Name, "providerID", other, "instance", i.ID)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(nameEvery):
		}
	}
}
