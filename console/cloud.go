package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/informer"
)

var watchedKinds = []struct {
	kind cloudsim.ResourceKind
	path string
}{
	{cloudsim.KindZone, "/v1/zones"},
	{cloudsim.KindInstance, "/v1/instances"},
	{cloudsim.KindLoadBalancer, "/v1/load-balancers"},
	{cloudsim.KindDisk, "/v1/disks"},
	{cloudsim.KindSnapshot, "/v1/snapshots"},
	{cloudsim.KindNetwork, "/v1/networks"},
	{cloudsim.KindSubnet, "/v1/subnets"},
	{cloudsim.KindRoute, "/v1/routes"},
	{cloudsim.KindAddress, "/v1/addresses"},
	{cloudsim.KindOperation, "/v1/operations"},
	{cloudsim.KindFault, "/v1/faults"},
	{cloudsim.KindHold, "/v1/holds"},
	{cloudsim.KindProject, "/v1/projects"},
}

// cloudHandler implements informer.Handler for the hub.
type cloudHandler hub

// List implements informer.Handler.
func (c *cloudHandler) List(ctx context.Context) (informer.Listed, error) {
	h := (*hub)(c)
	revs := informer.Listed{}
	objects := map[key]entry{}
	rev := uint64(0)
	for _, l := range watchedKinds {
		for after := ""; ; {
			raw, err := h.cloud.Do(ctx, http.MethodGet, l.path+"?limit=5000&after="+url.QueryEscape(after), nil)
			if err != nil {
				return nil, err
			}
			var page cloudsim.List[json.RawMessage]
			if err := json.Unmarshal(raw, &page); err != nil {
				return nil, cloudsim.Errorf(cloudsim.Unavailable, "%s: %w", l.path, err)
			}
			if after == "" {
				revs[l.kind] = page.Revision
				rev = max(rev, page.Revision)
			}
			for _, o := range page.Items {
				id, e, err := decodeObject(l.kind, o)
				if err != nil {
					return nil, err
				}
				objects[key{string(l.kind), id}] = e
			}
			if after = page.Next; after == "" {
				break
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, e := range h.objects { // keeps the objects of kinds that the cloud does not list
		switch k.kind {
		case KindNode, KindService, KindVolumeAttachment, KindTraffic:
			objects[k] = e
		}
	}
	if h.synced {
		h.notice = "At " + time.Now().UTC().Format(time.TimeOnly) + " UTC, the cloud loaded another state, or deleted old events. This page shows the new state."
	}
	h.objects, h.rev, h.synced = objects, rev, true
	h.dirty, h.events, h.fresh, h.reset = map[key]cloudsim.ProjectID{}, nil, nil, true
	h.requestFrame()
	return revs, nil
}

// decodeObject returns the id and the entry of an object of the API.
func decodeObject(kind cloudsim.ResourceKind, raw json.RawMessage) (string, entry, error) {
	var head struct {
		ID      string             `json:"id"`
		Name    string             `json:"name"`
		Project cloudsim.ProjectID `json:"project"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return "", entry{}, cloudsim.Errorf(cloudsim.Internal, "%s: %w", kind, err)
	}
	e := entry{project: head.Project, raw: raw}
	var err error
	switch kind {
	case cloudsim.KindInstance:
		e.value, err = decodeAs[cloudsim.Instance](raw)
	case cloudsim.KindLoadBalancer:
		e.value, err = decodeAs[cloudsim.LoadBalancer](raw)
	case cloudsim.KindDisk:
		e.value, err = decodeAs[cloudsim.Disk](raw)
	}
	if head.ID == "" {
		head.ID = head.Name // zones have no id
	}
	return head.ID, e, err
}

func decodeAs[T any](raw json.RawMessage) (any, error) {
	var v T
	err := json.Unmarshal(raw, &v)
	return v, err
}

// Take implements informer.Handler.
func (c *cloudHandler) Take(_ context.Context, e cloudsim.Event) error {
	h := (*hub)(c)
	ev := Event{Rev: e.Rev, Time: e.Time, Machine: e.OnMachine(), Kind: e.Kind, ID: e.ID, Deleted: e.Type == cloudsim.EventDelete, Caller: e.Caller, Cause: e.Cause, RequestID: e.RequestID, project: e.Project}
	var head struct {
		Name  string `json:"name"`
		State string `json:"state"`
	}
	if len(e.Object) > 0 {
		if err := json.Unmarshal(e.Object, &head); err != nil {
			return err
		}
	}
	ev.Name, ev.State = head.Name, head.State
	k := key{string(e.Kind), e.ID}
	h.mu.Lock()
	defer h.mu.Unlock()
	if ev.Deleted {
		if old, ok := h.objects[k]; ok && old.project != "" {
			ev.project = old.project
		}
		delete(h.objects, k)
	} else {
		_, o, err := decodeObject(e.Kind, e.Object)
		if err != nil {
			return err
		}
		o.project = e.Project
		h.objects[k] = o
	}
	h.dirty[k] = ev.project
	h.rev = e.Rev
	h.fresh = append(h.fresh, ev)
	h.requestFrame()
	return nil
}

// OnSync implements informer.Handler.
func (c *cloudHandler) OnSync(bool) {
	h := (*hub)(c)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.cloudState.Live {
		h.cloudState = Connection{Live: true, Since: time.Now()}
		h.requestFrame()
	}
}

// OnError implements informer.Handler.
func (c *cloudHandler) OnError(err error, news bool) {
	h := (*hub)(c)
	if news {
		h.log.Warn("the console's watch of the cloud ended", "err", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cloudState.Live || h.cloudState.Problem != err.Error() {
		since := h.cloudState.Since
		if h.cloudState.Live {
			since = time.Now()
		}
		h.cloudState = Connection{Since: since, Problem: err.Error()}
		h.requestFrame()
	}
}
