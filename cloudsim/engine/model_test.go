package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestModel makes random sequences of calls to the cloud and to a simple model, and proves that the
// cloud behaves like the model. It compares states, errors, ids, addresses and references. The
// package rapid generates the calls. If the cloud and the model differ after a sequence, rapid
// searches for a shorter sequence after which they also differ.
func TestModel(t *testing.T) {
	if steps := flag.Lookup("rapid.steps"); steps.Value.String() == steps.DefValue {
		_ = steps.Value.Set("100") // fewer steps would reach too few states; with the flag -short, rapid makes half of these steps
	}
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(withoutDeadline{t}, func(rt *rapid.T) {
			e, down := boot(t, file(t), func(c *engine.Config) {
				c.Instances, c.LoadBalancers = fewInstances, fewAddresses
				c.Profile.Disk, c.DiskData = diskWork, true
				c.Profile.Network = networkWork
			})
			defer down() // down also checks the file
			w := &world{
				e: e, ctx: engine.AsCloud(t.Context()), seq: map[string]int{},
				instances: map[string]*vm{}, addresses: map[string]*ip{}, balancers: map[string]*lb{},
				disks: map[string]*vol{}, snapshots: map[string]*shot{}, groups: map[string]*grp{},
				networks: map[string]*vnet{}, subnets: map[string]*part{}, routes: map[string]*way{},
			}
			w.beginNetworks()
			rt.Repeat(w.callsOf(rapid.SampledFrom([]string{"all", "balancers", "disks", "networks"}).Draw(rt, "theme")))
		})
	})
}

// callsOf returns the calls that belong to a theme, such as disks or networks. Most runs use only
// the calls of one theme, because a run with all calls rarely reaches states that need several
// resources of one theme.
func (w *world) callsOf(theme string) map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){"": w.compare, "pass time": w.passTime, "createInstance": w.createInstance, "moveInstance": w.moveInstance}
	add := func(of string, verbs map[string]func(*rapid.T)) {
		if theme == "all" || theme == of {
			maps.Copy(all, verbs)
		}
	}
	add("balancers", map[string]func(*rapid.T){
		"createAddress": w.createAddress, "deleteAddress": w.deleteAddress,
		"createBalancer": w.createBalancer, "updateBalancer": w.updateBalancer, "setTargets": w.setTargets, "deleteBalancer": w.deleteBalancer,
	})
	add("disks", map[string]func(*rapid.T){
		"createDisk": w.createDisk, "attachDisk": w.attachDisk, "detachDisk": w.detachDisk, "resizeDisk": w.resizeDisk,
		"modifyDisk": w.modifyDisk, "deleteDisk": w.deleteDisk, "createSnapshot": w.createSnapshot, "deleteSnapshot": w.deleteSnapshot,
		"createGroup": w.createGroup, "deleteGroup": w.deleteGroup, "reportData": w.reportData,
	})
	add("networks", map[string]func(*rapid.T){
		"createNetwork": w.createNetwork, "updateNetwork": w.updateNetwork, "deleteNetwork": w.deleteNetwork,
		"createSubnet": w.createSubnet, "deleteSubnet": w.deleteSubnet,
		"attachNetwork": w.attachNetwork, "detachNetwork": w.detachNetwork,
		"createInstanceIn": w.createInstanceIn, "createRoute": w.createRoute, "deleteRoute": w.deleteRoute,
	})
	return all
}

// withoutDeadline hides the method T.Deadline from rapid. T.Deadline panics in a synctest bubble,
// because the deadline is in real time.
type withoutDeadline struct{ testing.TB }

// These ranges are so small that random calls sometimes use all addresses of a range.
var (
	fewInstances = netip.MustParsePrefix("127.64.0.0/29")
	fewAddresses = netip.MustParsePrefix("127.65.0.0/29")
)

// world contains a cloud and the model of this cloud. The keys of the maps are ids.
type world struct {
	e         *engine.Engine
	ctx       context.Context
	seq       map[string]int // number of ids that the model has used, by prefix
	rev       uint64         // last revision that compare has read from the journal
	instances map[string]*vm
	addresses map[string]*ip
	balancers map[string]*lb
	disks     map[string]*vol
	snapshots map[string]*shot
	groups    map[string]*grp
	networks  map[string]*vnet
	subnets   map[string]*part
	routes    map[string]*way
}

// vm is the model of an instance, ip is the model of an address, and lb is the model of a load
// balancer. The test compares the exported fields of these types with the cloud.
type vm struct {
	Name, Zone, State, IP, Subnet string
	Pods                          bool              // the instance has a pod range
	More                          map[string]string // addresses in additional networks, by subnet
	until                         time.Time         // time at which the work on the instance ends
}

type ip struct {
	Name, IP, UsedBy string
	Static           bool
}

type lb struct {
	Name, State, IP string
	Port            int
	Targets         []string
	until           time.Time
	rev             uint64 // revision in the last answer of the cloud
}

func (w *world) id(prefix string) string {
	w.seq[prefix]++
	return fmt.Sprintf("%s-%06x", prefix, w.seq[prefix])
}

// lowestFree returns the lowest free address of range p, or "" if no address is
// free. It skips the addresses in usedIPs, and the first and the last address
// of p.
func lowestFree(p netip.Prefix, usedIPs map[string]bool) string {
	for a := p.Addr().Next(); p.Contains(a.Next()); a = a.Next() {
		if !usedIPs[a.String()] {
			return a.String()
		}
	}
	return ""
}

func (w *world) heldAddresses() map[string]bool {
	held := map[string]bool{}
	for _, i := range w.instances {
		held[i.IP] = true
		for _, address := range i.More {
			held[address] = true
		}
	}
	return held
}

func (w *world) freeInstanceIP() string {
	return lowestFree(fewInstances, w.heldAddresses())
}

func (w *world) freeAddress() string {
	held := map[string]bool{}
	for _, a := range w.addresses {
		held[a.IP] = true
	}
	return lowestFree(fewAddresses, held)
}

func idOfName[T any](resources map[string]*T, name string, nameOf func(*T) string) string {
	for _, id := range slices.Sorted(maps.Keys(resources)) {
		if nameOf(resources[id]) == name {
			return id
		}
	}
	return ""
}

// mustAgree fails the test unless the cloud returned the error modelErr, which
// the model expects. If modelErr is nil, the cloud must have returned no error.
func mustAgree(t *rapid.T, got error, modelErr error) {
	t.Helper()
	if modelErr == nil && got == nil || modelErr != nil && errors.Is(got, modelErr) {
		return
	}
	t.Fatalf("result of the cloud: got %v, want the model's result %v", got, modelErr)
}

// randomID returns a random key of the map resources, or an id that does not exist.
func randomID[T any](t *rapid.T, resources map[string]*T) string {
	return rapid.SampledFrom(append(slices.Sorted(maps.Keys(resources)), "none-000001")).Draw(t, "id")
}

func (w *world) passTime(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Second, 30 * time.Second, 90 * time.Second}).Draw(t, "time"))
	synctest.Wait()
	w.settle(time.Now())
}

func (w *world) settle(now time.Time) {
	for id, i := range w.instances {
		if i.until.IsZero() || i.until.After(now) {
			continue
		}
		i.until = time.Time{}
		switch i.State {
		case "provisioning", "starting", "rebooting":
			i.State = "running"
		case "stopping":
			i.State = "stopped"
		case "terminating":
			delete(w.instances, id)
			for _, l := range w.balancers {
				l.Targets = slices.DeleteFunc(l.Targets, func(t string) bool { return t == id })
			}
			for _, d := range w.disks {
				d.lose(id)
			}
		}
	}
	w.settleDisks(now)
	w.settleGroups(now)
	w.settleNetworks(now)
	for id, l := range w.balancers {
		if l.until.IsZero() || l.until.After(now) {
			continue
		}
		l.until = time.Time{}
		if l.State != "deleting" {
			l.State = "active"
			continue
		}
		delete(w.balancers, id)
		for aid, a := range w.addresses {
			switch {
			case a.UsedBy != id:
			case a.Static:
				a.UsedBy = ""
			default:
				delete(w.addresses, aid)
			}
		}
	}
}

// compare fails the test if the cloud differs from the model, or if the journal is wrong. The
// journal must have each revision once, and the revisions must be in ascending order. The last
// event of each resource must contain the resource's current state.
func (w *world) compare(t *rapid.T) {
	w.reroute()
	is, err1 := w.e.ListInstances(w.ctx, cloudsim.ListOptions{})
	as, err2 := w.e.ListAddresses(w.ctx, cloudsim.ListOptions{})
	ls, err3 := w.e.ListLoadBalancers(w.ctx, cloudsim.ListOptions{})
	evs, err4 := w.e.ListEvents(w.ctx, cloudsim.WatchOptions{Since: w.rev})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	instances, addresses, balancers := map[string]*vm{}, map[string]*ip{}, map[string]*lb{}
	objects := map[string]any{}
	for _, i := range is.Items {
		objects[string(i.ID)] = i
		instances[string(i.ID)] = &vm{Name: i.Name, Zone: i.Zone, State: string(i.State), IP: i.InternalIP(), Subnet: string(i.Subnet), Pods: len(i.PodRanges) != 0, More: moreOf(i)}
	}
	for _, a := range as.Items {
		objects[string(a.ID)] = a
		addresses[string(a.ID)] = &ip{Name: a.Name, IP: a.IP, UsedBy: string(a.UsedBy), Static: a.Static}
	}
	for _, l := range ls.Items {
		objects[string(l.ID)] = l
		v := &lb{Name: l.Name, State: string(l.State), IP: l.IP, Port: l.Listeners[0].Port}
		for _, target := range l.Targets {
			v.Targets = append(v.Targets, string(target.Instance))
		}
		balancers[string(l.ID)] = v
	}
	volumes, shots := w.seenDisks(t, objects)
	groups := w.seenGroups(t, objects)
	networks, subnets, routes := w.seenNetworks(t, objects)
	opt := cmp.FilterPath(func(p cmp.Path) bool {
		f, ok := p.Last().(cmp.StructField)
		return ok && (f.Name() == "until" || f.Name() == "rev")
	}, cmp.Ignore())
	exported := cmp.AllowUnexported(vm{}, lb{}, vol{}, shot{}, grp{}, vnet{}, part{}, way{})
	same := cmp.Comparer(slices.Equal[[]string]) // a nil slice equals an empty slice
	diff := cmp.Diff(w.instances, instances, opt, exported) + cmp.Diff(w.addresses, addresses) + cmp.Diff(w.balancers, balancers, opt, exported, same)
	diff += cmp.Diff(w.disks, volumes, opt, exported) + cmp.Diff(w.snapshots, shots, opt, exported) + cmp.Diff(w.groups, groups, opt, exported)
	diff += cmp.Diff(w.networks, networks, opt, exported) + cmp.Diff(w.subnets, subnets, opt, exported) + cmp.Diff(w.routes, routes, opt, exported)
	if diff != "" {
		t.Fatalf("model (-) and cloud (+) differ:\n%s", diff)
	}
	last := map[string]cloudsim.Event{}
	for _, e := range evs.Items {
		if w.rev != 0 && e.Rev != w.rev+1 {
			t.Fatalf("events: got revision %d after %d, want no gap", e.Rev, w.rev)
		}
		w.rev, last[e.ID] = e.Rev, e
	}
	for id, e := range last {
		v, found := objects[id]
		if raw, _ := json.Marshal(v); found && string(raw) != string(e.Object) {
			t.Fatalf("%s: the cloud has\n%s\nwant the object of the last event in the journal:\n%s", id, raw, e.Object)
		}
	}
}
