package engine_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// grp is the model of a group of snapshots.
type grp struct {
	Name, State      string
	Disks, Snapshots []string
	until            time.Time
}

func (w *world) moveGroup(g *grp, state string) {
	g.State, g.until = state, time.Time{}
	for _, id := range g.Snapshots {
		w.snapshots[id].State = state
	}
}

func (w *world) copiedWhole(g *grp) bool {
	return !slices.ContainsFunc(g.Snapshots, func(id string) bool { return !w.snapshots[id].Data })
}

func (w *world) settleGroups(now time.Time) {
	for id, g := range w.groups {
		switch {
		case g.until.IsZero() || g.until.After(now):
		case g.State == "deleting":
			delete(w.groups, id)
			for _, s := range g.Snapshots {
				delete(w.snapshots, s)
			}
		case w.copiedWhole(g):
			w.moveGroup(g, "ready")
		default:
			w.moveGroup(g, "copying")
		}
	}
}

// reportedGroup updates a snapshot group in the model, after reportData has reported that the data
// of a snapshot in the group is complete.
func (w *world) reportedGroup(id string) {
	if g := w.groups[id]; g != nil && g.State == "copying" && w.copiedWhole(g) {
		w.moveGroup(g, "ready")
	}
}

func (w *world) createGroup(t *rapid.T) {
	disks := []string{randomID(t, w.disks), randomID(t, w.disks)}
	slices.Sort(disks)
	disks = slices.Compact(disks)
	req := cloudsim.CreateSnapshotGroup{Name: rapid.SampledFrom([]string{"g", "h"}).Draw(t, "name")}
	for _, d := range disks {
		req.Disks = append([]cloudsim.DiskID{cloudsim.DiskID(d)}, req.Disks...) // the order of the disks does not matter
	}
	have := w.groups[idOfName(w.groups, req.Name, func(g *grp) string { return g.Name })]
	_, err := w.e.CreateSnapshotGroup(w.ctx, req)
	switch {
	case have != nil && have.State == "deleting":
		mustAgree(t, err, cloudsim.Conflict)
		return
	case have != nil && !slices.Equal(have.Disks, disks):
		mustAgree(t, err, cloudsim.Exists)
		return
	case have != nil:
		mustAgree(t, err, nil)
		return
	}
	for _, d := range disks {
		switch {
		case w.disks[d] == nil:
			mustAgree(t, err, cloudsim.NotFound)
			return
		case !w.disks[d].hasData():
			mustAgree(t, err, cloudsim.Conflict)
			return
		}
	}
	mustAgree(t, err, nil)
	g := &grp{Name: req.Name, Disks: disks, State: "creating", until: time.Now().Add(diskWork)}
	id := w.id("sgrp")
	w.groups[id] = g
	for _, d := range disks {
		s := w.id("snap")
		g.Snapshots = append(g.Snapshots, s)
		w.snapshots[s] = &shot{Name: s, Disk: d, State: "creating", Size: w.disks[d].Size, Group: id}
	}
}

func (w *world) deleteGroup(t *rapid.T) {
	id := randomID(t, w.groups)
	g := w.groups[id]
	_, err := w.e.DeleteSnapshotGroup(w.ctx, cloudsim.SnapshotGroupID(id))
	switch {
	case g == nil:
		mustAgree(t, err, cloudsim.NotFound)
	case g.State == "deleting":
		mustAgree(t, err, nil)
	case slices.ContainsFunc(g.Snapshots, w.isCopySource):
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		w.moveGroup(g, "deleting")
		g.until = time.Now().Add(diskWork)
	}
}

func (w *world) modifyDisk(t *rapid.T) {
	id := randomID(t, w.disks)
	d := w.disks[id]
	req := cloudsim.ModifyDisk{
		Type: rapid.SampledFrom([]string{"", "fast", "balanced", "moon"}).Draw(t, "type"),
		IOPS: rapid.SampledFrom([]int{0, 3000, 10_000, 50_000}).Draw(t, "iops"),
	}
	_, err := w.e.ModifyDisk(w.ctx, cloudsim.DiskID(id), req)
	if req == (cloudsim.ModifyDisk{}) {
		mustAgree(t, err, cloudsim.Invalid)
		return
	}
	if d == nil {
		mustAgree(t, err, cloudsim.NotFound)
		return
	}
	kind, iops := d.Type, d.IOPS
	if req.Type != "" && req.Type != kind {
		kind, iops = req.Type, map[string]int{"fast": 10_000, "balanced": 3000}[req.Type]
	}
	if req.IOPS != 0 {
		iops = req.IOPS
	}
	switch {
	case kind == "moon", kind == "balanced" && (req.IOPS > 16_000 || d.Multi):
		mustAgree(t, err, cloudsim.Invalid)
	case kind == d.Type && iops == d.IOPS && d.State != "deleting":
		mustAgree(t, err, nil)
	case d.State != "available" && d.State != "in-use":
		mustAgree(t, err, cloudsim.Conflict)
	default:
		mustAgree(t, err, nil)
		d.Type, d.IOPS, d.State, d.until = kind, iops, "modifying", time.Now().Add(diskWork)
	}
}

// seenGroups returns the cloud's snapshot groups in the form of the model.
func (w *world) seenGroups(t *rapid.T, objects map[string]any) map[string]*grp {
	gs, err := w.e.ListSnapshotGroups(w.ctx, cloudsim.ListOptions{})
	mustAgree(t, err, nil)
	groups := map[string]*grp{}
	for _, g := range gs.Items {
		objects[string(g.ID)] = g
		v := &grp{Name: g.Name, State: string(g.State)}
		for _, d := range g.Disks {
			v.Disks = append(v.Disks, string(d))
		}
		for _, s := range g.Snapshots {
			v.Snapshots = append(v.Snapshots, string(s))
		}
		groups[string(g.ID)] = v
	}
	return groups
}
