package real

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// follow tells the keepers what the cloud says, until ctx ends: it lists, it
// watches from there, and it resumes where a watch broke. When the journal no
// longer reaches back, it lists again.
func (h *hypervisor) follow(ctx context.Context) {
	var rev uint64
	complete, down := false, false
	var pause backoff
	for ctx.Err() == nil {
		err := h.catchUp(ctx, &rev, &complete)
		if err == nil {
			if down {
				h.log.Info("the cloud answers again")
				down = false
			}
			err = h.watch(ctx, &rev, &pause)
		}
		switch {
		case err == nil || ctx.Err() != nil:
			continue
		case errors.Is(err, cloudsim.Gone):
			h.log.Info("listing the instances again", "because", err)
			complete = false
		case !down:
			h.log.Warn("the cloud does not answer; trying again", "err", err)
			down = true
		}
		pause.wait(ctx)
	}
}

func (h *hypervisor) catchUp(ctx context.Context, rev *uint64, complete *bool) error {
	if *complete {
		return h.cfg.Cloud.Ready(ctx)
	}
	all, at, err := client.All(ctx, h.cfg.Cloud.ListInstances, cloudsim.ListOptions{})
	if err != nil {
		return err
	}
	routes, _, err := client.All(ctx, h.cfg.Cloud.ListRoutes, cloudsim.ListOptions{}) // no older than the instances
	if err != nil {
		return err
	}
	h.prune(all)
	for _, i := range all {
		h.tell(ctx, i, false)
	}
	h.table.fill(routes)
	*rev, *complete = at, true
	return nil
}

func (h *hypervisor) watch(ctx context.Context, rev *uint64, pause *backoff) error {
	o := cloudsim.WatchOptions{Since: *rev, Kinds: []cloudsim.ResourceKind{cloudsim.KindInstance, cloudsim.KindRoute}}
	for e, err := range h.cfg.Cloud.Watch(ctx, o) {
		if err != nil {
			return err
		}
		if err := h.hear(ctx, e); err != nil {
			return cloudsim.Errorf(cloudsim.Gone, "event %d of %s cannot be read: %w", e.Rev, e.ID, err)
		}
		*rev = e.Rev
		pause.reset()
	}
	return nil
}

// hear passes an event on.
func (h *hypervisor) hear(ctx context.Context, e cloudsim.Event) error {
	gone := e.Type == cloudsim.EventDelete
	if e.Kind == cloudsim.KindRoute {
		var r cloudsim.Route
		if err := json.Unmarshal(e.Object, &r); err != nil {
			return err
		}
		h.table.put(r, gone)
		return nil
	}
	var i cloudsim.Instance
	if err := json.Unmarshal(e.Object, &i); err != nil {
		return err
	}
	h.tell(ctx, i, gone)
	return nil
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
