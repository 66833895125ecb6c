package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestQuotaWithConcurrentCreates proves that concurrent callers can create exactly as many
// instances as the quota allows. A repeated request for an existing instance succeeds even after
// the quota is used up. At the end, the test calls the function down, which stops the engine and
// checks the stored counts of the quotas.
func TestQuotaWithConcurrentCreates(t *testing.T) {
	const limit, crowd = 7, 60
	path := file(t)
	e, down := boot(t, path, instant, func(c *engine.Config) { c.Quotas = map[cloudsim.QuotaName]int64{cloudsim.QuotaInstances: limit} })
	ctx := enter(t, e, "secret", engine.DefaultProject)
	var made atomic.Int64
	var wg sync.WaitGroup
	for n := range crowd {
		wg.Go(func() {
			_, err := e.CreateInstance(ctx, cloudsim.CreateInstance{Name: fmt.Sprint("i", n), Zone: "sim-1a", Type: "small"})
			switch {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, cloudsim.Exhausted):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != limit {
		t.Fatalf("concurrent creates: got %d instances, want %d, the quota", made.Load(), limit)
	}
	l, err := e.ListInstances(ctx, cloudsim.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if repeated := mustCreate(t, e, ctx, l.Items[0].Name); repeated.ID != l.Items[0].ID {
		t.Errorf("repeated request: got %s, want %s", repeated.ID, l.Items[0].ID)
	}
	_, err = e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "more", Zone: "sim-1a", Type: "small"})
	for _, word := range []string{"instances", "proj-000001", "7 used", "limit 7", "quotas set instances=8"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("got error %v, want it to contain %q", err, word)
		}
	}
	if _, err := e.DeleteInstance(ctx, l.Items[0].ID); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, e, ctx, "more")
	down() // a restart must not change the counts

	e, down = boot(t, path, instant)
	defer down()
	if q := quotaOf(t, e, cloudsim.QuotaInstances); *q.Used != limit || q.Limit != q.Default {
		t.Errorf("quota of instances after a restart: got %d used, limit %d, want %d used, limit %d", *q.Used, q.Limit, limit, q.Default)
	}
}

func quotaOf(t *testing.T, e *engine.Engine, name cloudsim.QuotaName) cloudsim.Quota {
	t.Helper()
	all, err := e.ListQuotas(enter(t, e, "secret", engine.DefaultProject))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range all.Items {
		if q.Name == name {
			return q
		}
	}
	t.Fatalf("no quota %s in %v", name, all.Items)
	return cloudsim.Quota{}
}

// TestEachQuota proves for each quota that the cloud refuses to create more resources than the
// limit.
func TestEachQuota(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	ctx := enter(t, e, "secret", engine.DefaultProject)
	set := func(name cloudsim.QuotaName, n int64) {
		t.Helper()
		if _, err := e.SetQuota(ctx, name, cloudsim.SetQuota{Limit: &n}); err != nil {
			t.Fatal(err)
		}
	}
	full := func(resource string, err error) {
		t.Helper()
		if !errors.Is(err, cloudsim.Exhausted) {
			t.Errorf("%s beyond the quota: got error %v, want Exhausted", resource, err)
		}
	}
	disk := func(name string, size int) (cloudsim.Disk, error) {
		return e.CreateDisk(ctx, cloudsim.CreateDisk{Name: name, Zone: "sim-1a", Type: "standard", SizeGiB: size})
	}
	set(cloudsim.QuotaDiskGiB, 30)
	d, err := disk("a", 20)
	if err != nil {
		t.Fatal(err)
	}
	_, err = disk("b", 11)
	full("GiB", err)
	_, err = e.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 31})
	full("GiB of a resized disk", err)
	if _, err = e.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 30}); err != nil {
		t.Error(err)
	}
	if q := quotaOf(t, e, cloudsim.QuotaDiskGiB); *q.Used != 30 || q.Limit != 30 {
		t.Errorf("quota of disk sizes: got %+v, want 30 of 30 used", q)
	}
	set(cloudsim.QuotaDisks, 1)
	_, err = disk("c", 1)
	full("disks", err)

	set(cloudsim.QuotaListeners, 1)
	lb := loadBalancer("lb")
	lb.Listeners = append(lb.Listeners, cloudsim.Listener{Protocol: cloudsim.TCP, Port: 81, TargetPort: 81})
	_, err = e.CreateLoadBalancer(ctx, lb)
	full("listeners", err)
	set(cloudsim.QuotaLoadBalancers, 0)
	_, err = e.CreateLoadBalancer(ctx, loadBalancer("lb"))
	full("load balancers", err)
	set(cloudsim.QuotaAddresses, 0)
	_, err = e.CreateAddress(ctx, cloudsim.CreateAddress{Name: "a"})
	full("addresses", err)
	set(cloudsim.QuotaServiceAccounts, 0)
	_, err = e.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "a"})
	full("service accounts", err)
	netRoom(t, e, ctx, set, full)
	if _, err := e.SetQuota(ctx, "nope", cloudsim.SetQuota{}); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("unknown quota: got error %v", err)
	}
	if q, err := e.SetQuota(ctx, cloudsim.QuotaAddresses, cloudsim.SetQuota{}); err != nil || q.Limit != q.Default {
		t.Errorf("quota after a return to the default: got %+v, %v", q, err)
	}
}

// netRoom checks the quotas of networks, subnets and routes. Default networks and their subnets
// count against the quotas, but deleted resources do not count.
func netRoom(t *testing.T, e *engine.Engine, ctx context.Context, set func(cloudsim.QuotaName, int64), full func(string, error)) {
	t.Helper()
	hop := mustCreate(t, e, ctx, "hop")
	for _, name := range []cloudsim.QuotaName{cloudsim.QuotaNetworks, cloudsim.QuotaSubnets, cloudsim.QuotaRoutes} {
		set(name, *quotaOf(t, e, name).Used+1)
	}
	network := func(name, ipv4 string) (cloudsim.Network, error) {
		return e.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: name, IPv4: ipv4})
	}
	n, err := network("n", "10.10.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	_, err = network("m", "10.11.0.0/16")
	full("networks", err)
	subnet := func(name, ipv4 string) (cloudsim.Subnet, error) {
		return e.CreateSubnet(ctx, cloudsim.CreateSubnet{Name: name, Network: n.ID, IPv4: ipv4})
	}
	s, err := subnet("s", "10.10.1.0/24")
	if err != nil {
		t.Fatal(err)
	}
	_, err = subnet("more", "10.10.2.0/24")
	full("subnets", err)
	route := func(name, to string) (cloudsim.Route, error) {
		return e.CreateRoute(ctx, cloudsim.CreateRoute{Name: name, Destination: to, NextHop: hop.ID})
	}
	r, err := route("r", "10.20.0.0/24")
	if err != nil {
		t.Fatal(err)
	}
	_, err = route("more", "10.20.1.0/24")
	full("routes", err)
	_, err1 := e.DeleteRoute(ctx, r.ID)
	_, err2 := e.DeleteSubnet(ctx, s.ID)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	_, err1 = route("more", "10.20.1.0/24")
	_, err2 = subnet("more", "10.10.2.0/24")
	if err := errors.Join(err1, err2); err != nil {
		t.Errorf("creation after one deletion: got error %v", err)
	}
}

// TestQuotaOfAGroup proves that the cloud refuses a snapshot group if its
// snapshots together exceed the quota.
func TestQuotaOfAGroup(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	ctx := enter(t, e, "secret", engine.DefaultProject)
	limit := int64(1)
	must(e.SetQuota(ctx, cloudsim.QuotaSnapshots, cloudsim.SetQuota{Limit: &limit}))(t)
	a, b := mustCreateDisk(t, e, ctx, "a"), mustCreateDisk(t, e, ctx, "b")
	if g, err := e.CreateSnapshotGroup(ctx, cloudsim.CreateSnapshotGroup{Name: "g", Disks: []cloudsim.DiskID{a.ID, b.ID}}); !errors.Is(err, cloudsim.Exhausted) {
		t.Errorf("group of two snapshots with a quota of one: got %+v, error %v, want Exhausted", g, err)
	}
	if q := quotaOf(t, e, cloudsim.QuotaSnapshots); *q.Used != 0 {
		t.Errorf("quota of snapshots after a refused group: got %+v, want no use", q)
	}
}
