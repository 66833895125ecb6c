package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// wholeness searches for inconsistent objects.
type wholeness struct {
	ctx    context.Context
	e      *engine.Engine
	holder map[string]string // the owner of each name or address that may have only one owner
	is     map[cloudsim.InstanceID]cloudsim.Instance
	all    []error
}

func (w *wholeness) bad(format string, args ...any) {
	w.all = append(w.all, fmt.Errorf(format, args...))
}

func (w *wholeness) hold(key, id string) {
	if other, twice := w.holder[key]; twice {
		w.bad("%s is held by %s and by %s", key, other, id)
	}
	w.holder[key] = id
}

// checkOperation records an error if the object has no operation, or if the operation contradicts
// the object's state. The operation must be finished if and only if the object is in one of the
// settled states.
func (w *wholeness) checkOperation(m cloudsim.Meta, id, state string, settled ...string) {
	op, err := w.e.GetOperation(w.ctx, m.Operation)
	if err != nil || op.Target != id || op.Over() != slices.Contains(settled, state) {
		w.bad("%s is %s; its operation: %+v, %v", id, state, op, err)
	}
}

// checkWhole returns an error for each inconsistent object. An object is inconsistent if it depends
// on a missing object or has unfinished work without an operation. Two objects with the same name
// or the same address are also inconsistent.
func checkWhole(ctx context.Context, e *engine.Engine) error {
	w := &wholeness{ctx: ctx, e: e, holder: map[string]string{}, is: map[cloudsim.InstanceID]cloudsim.Instance{}}
	is, _, err := cloudsim.All(ctx, e.ListInstances, cloudsim.ListOptions{})
	if err != nil {
		return err
	}
	for _, i := range is {
		w.is[i.ID] = i
		w.hold("ip "+i.InternalIP(), string(i.ID))
		w.hold("instance "+i.Name, string(i.ID))
		w.checkOperation(i.Meta, string(i.ID), string(i.State), string(cloudsim.InstanceRunning), string(cloudsim.InstanceStopped))
	}
	w.all = append(w.all, w.balancers(), w.disks(), w.networks())
	return errors.Join(w.all...)
}

func (w *wholeness) balancers() error {
	as, _, err1 := cloudsim.All(w.ctx, w.e.ListAddresses, cloudsim.ListOptions{})
	ls, _, err2 := cloudsim.All(w.ctx, w.e.ListLoadBalancers, cloudsim.ListOptions{})
	used := map[cloudsim.AddressID]cloudsim.LoadBalancerID{}
	for _, a := range as {
		w.hold("ip "+a.IP, string(a.ID))
		w.hold("address "+a.Name, string(a.ID))
		if a.UsedBy != "" {
			used[a.ID] = a.UsedBy
		}
	}
	for _, l := range ls {
		w.hold("load balancer "+l.Name, string(l.ID))
		w.checkOperation(l.Meta, string(l.ID), string(l.State), string(cloudsim.LoadBalancerActive))
		for _, a := range l.Addresses {
			if used[a.ID] != l.ID {
				w.bad("%s stands on %s, which is used by %q", l.ID, a.ID, used[a.ID])
			}
			delete(used, a.ID)
		}
	}
	for a, l := range used {
		w.bad("%s is used by %s, which does not stand on it", a, l)
	}
	return errors.Join(err1, err2)
}

func (w *wholeness) disks() error {
	ds, _, err1 := cloudsim.All(w.ctx, w.e.ListDisks, cloudsim.ListOptions{})
	ss, _, err2 := cloudsim.All(w.ctx, w.e.ListSnapshots, cloudsim.ListOptions{})
	exists := map[string]bool{"": true}
	for _, d := range ds {
		exists[string(d.ID)] = true
		w.hold("disk "+d.Name, string(d.ID))
		w.checkOperation(d.Meta, string(d.ID), string(d.State), string(cloudsim.DiskAvailable), string(cloudsim.DiskInUse), string(cloudsim.DiskFailed))
		if d.State == cloudsim.DiskInUse && len(d.Attachments) == 0 || d.State == cloudsim.DiskAvailable && len(d.Attachments) > 0 {
			w.bad("%s is %s with %d attachments", d.ID, d.State, len(d.Attachments))
		}
		for _, a := range d.Attachments {
			if i := w.is[a.Instance]; !slices.Contains(d.Zones(), i.Zone) {
				w.bad("%s of %v is attached to %s of %q", d.ID, d.Zones(), a.Instance, i.Zone)
			}
			w.hold(fmt.Sprint(a.Instance, " ", a.Device), string(d.ID))
		}
	}
	for _, s := range ss {
		exists[string(s.ID)] = true
		w.hold("snapshot "+s.Name, string(s.ID))
		w.checkOperation(s.Meta, string(s.ID), string(s.State), string(cloudsim.SnapshotReady), string(cloudsim.SnapshotFailed))
		if (s.State == cloudsim.SnapshotCreating || s.State == cloudsim.SnapshotCopying) && !exists[string(s.Disk)] {
			w.bad("%s is %s of %s, which is not there", s.ID, s.State, s.Disk)
		}
	}
	for _, d := range ds {
		if (d.State == cloudsim.DiskCreating || d.State == cloudsim.DiskCopying) && !exists[d.Source()] {
			w.bad("%s is %s of %s, which is not there", d.ID, d.State, d.Source())
		}
	}
	return errors.Join(err1, err2)
}

func (w *wholeness) networks() error {
	ns, _, err1 := cloudsim.All(w.ctx, w.e.ListNetworks, cloudsim.ListOptions{})
	ss, _, err2 := cloudsim.All(w.ctx, w.e.ListSubnets, cloudsim.ListOptions{})
	rs, _, err3 := cloudsim.All(w.ctx, w.e.ListRoutes, cloudsim.ListOptions{})
	in := map[cloudsim.NetworkID]bool{}
	own := map[cloudsim.NetworkID]bool{} // default networks of projects; the cloud creates them without an operation
	for _, n := range ns {
		in[n.ID], own[n.ID] = true, n.Default
		if w.hold("network "+n.Name, string(n.ID)); !n.Default {
			w.hold("range "+n.IPv4, string(n.ID))
			w.checkOperation(n.Meta, string(n.ID), string(n.State), string(cloudsim.NetworkAvailable))
		}
	}
	subnet := map[cloudsim.SubnetID]cloudsim.NetworkID{}
	for _, s := range ss {
		if subnet[s.ID] = s.Network; !in[s.Network] {
			w.bad("%s is in %s, which is not there", s.ID, s.Network)
		}
		if !own[s.Network] {
			w.checkOperation(s.Meta, string(s.ID), string(s.State), string(cloudsim.SubnetAvailable))
		}
	}
	for _, i := range w.is {
		if subnet[i.Subnet] != i.Network {
			w.bad("%s is in %s of %s, which is in %q", i.ID, i.Subnet, i.Network, subnet[i.Subnet])
		}
	}
	for _, r := range rs {
		w.hold(fmt.Sprint("route of ", r.Network, " to ", r.Destination), string(r.ID))
		w.checkOperation(r.Meta, string(r.ID), string(r.State), string(cloudsim.RouteActive), string(cloudsim.RouteBlackhole))
		i, ok := w.is[r.NextHop]
		if carries := ok && i.Carries(); r.State == cloudsim.RouteActive && !carries || r.State == cloudsim.RouteBlackhole && carries {
			w.bad("%s is %s by %s, which is %q", r.ID, r.State, r.NextHop, i.State)
		}
	}
	return errors.Join(err1, err2, err3)
}
