package ccm_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// withSlowProfile configures a cloud with a changed profile. A profile contains
// the delays of the cloud's operations.
func withSlowProfile(change func(*engine.Profile)) cloudtest.Option {
	p := engine.Instant
	change(&p)
	return cloudtest.WithProfile(p)
}

// All three methods of InstancesV2 return an error in every unclear case. After
// an error the framework keeps the Node. After the result (false, nil) of
// InstanceExists the framework would delete the Node. InstanceShutdown has one
// exception: for a Node without a provider id it may return (false, nil).
func TestUnclearCasesReturnErrors(t *testing.T) {
	always := func(f fault) func(int, *http.Request) fault {
		return func(int, *http.Request) fault { return f }
	}
	for name, tc := range map[string]struct {
		providerID string // provider id of the Node, if it is not the id of the instance; "-" means no provider id
		gone       bool   // true if the instance is deleted
		fault      func(int, *http.Request) fault
		spoil      func(*client.Client)
		move       func(*testing.T, *rig) // moves the provider to another project or cloud
	}{
		"connection lost":           {fault: always(fault{cut: true})},
		"reply lost":                {fault: always(fault{loseReply: true})},
		"internal error":            {fault: always(fault{status: 500, body: `{"status":500,"kind":"internal","detail":"oops"}`})},
		"rate limit":                {fault: always(fault{status: 429, body: `{"status":429,"kind":"exhausted","detail":"slow down"}`})},
		"404 of a proxy":            {fault: always(fault{status: 404, body: `<html>no such page</html>`})},
		"truncated answer":          {fault: always(fault{status: 200, body: `{"id":"i-0000`})},
		"unknown token":             {spoil: func(c *client.Client) { c.Token = client.StaticToken("nope") }},
		"token file gone":           {spoil: func(c *client.Client) { c.Token = client.TokenFile(filepath.Join(t.TempDir(), "gone")) }},
		"unknown project":           {spoil: func(c *client.Client) { c.Project = "nowhere" }},
		"wrong path in URL":         {spoil: func(c *client.Client) { c.URL += "/wrong" }},
		"wrong path, instance gone": {gone: true, spoil: func(c *client.Client) { c.URL += "/wrong" }},
		"found by list, not found by get": {fault: func(_ int, r *http.Request) fault {
			if strings.HasPrefix(r.URL.Path, "/v1/instances/") {
				return fault{status: 404, body: `{"status":404,"kind":"not_found","detail":"no such instance"}`}
			}
			return fault{}
		}},
		"list fails, instance gone":  {gone: true, fault: func(n int, _ *http.Request) fault { return fault{cut: n%2 == 1} }},
		"foreign provider id":        {providerID: "aws:///us-east-1a/i-0abc"},
		"damaged provider id":        {providerID: "cloudsim://sim-1/i-000001"},
		"id of another cloud":        {providerID: "cloudsim://east/east-1/i-000001"},
		"node without a provider id": {providerID: "-", gone: true},
		"admin token with another project": {move: func(t *testing.T, r *rig) {
			r.api.Token, r.api.Project = r.cloud.Token, r.otherProject(t).Project
		}},
		"account of another project": {move: func(t *testing.T, r *rig) {
			r.api.Token = cloudtest.As(t, r.otherProject(t), "moved", cloudsim.RoleCCM).Token
		}},
		"another cloud": {move: func(t *testing.T, r *rig) {
			second := newRig(t)
			r.api.URL, r.api.Token, r.wire.next = second.api.URL, second.api.Token, second.wire.next
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			i := r.createMachine(t, "node-1")
			if tc.move == nil {
				r.letFind(t, i)
			}
			n := initializedNode(i)
			switch tc.providerID {
			case "":
			case "-":
				n.Spec.ProviderID = ""
			default:
				n.Spec.ProviderID = tc.providerID
			}
			if tc.gone {
				if _, err := r.cloud.DeleteInstance(t.Context(), i.ID); err != nil {
					t.Fatal(err)
				}
			}
			r.wire.spoil(tc.fault)
			if tc.spoil != nil {
				tc.spoil(r.api)
			}
			if tc.move != nil {
				tc.move(t, r)
			}
			if ok, err := r.instances().InstanceExists(t.Context(), n); err == nil {
				t.Errorf("InstanceExists = %v without an error: the framework would delete the Node", ok)
			} else if strings.Contains(err.Error(), cloudprovider.InstanceNotFound.Error()) {
				t.Errorf("InstanceExists = %v, which is the error InstanceNotFound", err)
			}
			if m, err := r.instances().InstanceMetadata(t.Context(), n); err == nil {
				t.Errorf("InstanceMetadata = %+v without an error", m)
			}
			if off, err := r.instances().InstanceShutdown(t.Context(), n); off || err == nil && tc.providerID != "-" {
				t.Errorf("InstanceShutdown = %v, %v; want an error", off, err)
			}
		})
	}
}

func (r *rig) otherProject(t *testing.T) *client.Client {
	t.Helper()
	p, err := r.cloud.CreateProject(t.Context(), cloudsim.CreateProject{Name: "elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	c := *r.cloud
	c.Project = p.ID
	return &c
}

// letFind lets the provider find the instance i of the cluster. Until the
// provider finds an instance of the cluster, it returns an error for each
// absent instance.
func (r *rig) letFind(t *testing.T, i cloudsim.Instance) {
	t.Helper()
	if _, err := r.instances().InstanceMetadata(t.Context(), initializedNode(i)); err != nil {
		t.Fatal(err)
	}
}

// The CCM accepts the absence of an instance only if it has found another instance of this cluster
// in the current cloud and project. After a change of the URL or the project, the CCM must first
// find an instance in the new cloud or project. If a Node has neither a provider id nor the taint
// of a new Node, the CCM finds the instance by the Node's name. This instance does not prove that
// the project is correct, because another project can have an instance of this name.
func TestAbsenceNeedsAnotherFoundInstance(t *testing.T) {
	r := newRig(t)
	other, gone := r.createMachine(t, "node-1"), r.createMachine(t, "node-2")
	r.deleteInstance(t, gone)
	checkAbsence := func(when string, wantErr bool) {
		t.Helper()
		exists, err := r.instances().InstanceExists(t.Context(), initializedNode(gone))
		if exists || (err != nil) != wantErr {
			t.Errorf("InstanceExists %s: got %v, error %v; want false, and an error: %t", when, exists, err, wantErr)
		}
	}
	checkAbsence("at first", true)
	if _, err := r.instances().InstanceExists(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}); err != nil {
		t.Fatal(err)
	}
	checkAbsence("after the CCM found an instance by name", true)
	r.letFind(t, other)
	checkAbsence("after the CCM found another instance", false)
	right := r.api.Token
	r.api.Token = cloudtest.As(t, r.otherProject(t), "moved", cloudsim.RoleCCM).Token
	checkAbsence("with a token of another project", true)
	r.api.Token = r.cloud.Token
	checkAbsence("with a token of all projects", false)
	r.api.Token = right
	r.provider.Reload(ccm.Config{URL: "http://elsewhere.example"})
	checkAbsence("after a change of the URL", true)
	r.letFind(t, other)
	checkAbsence("after the CCM found another instance at the new URL", false)
	r.wire.spoil(func(_ int, req *http.Request) fault {
		if strings.HasSuffix(req.URL.Path, "/instances/"+string(gone.ID)) {
			r.provider.Reload(ccm.Config{URL: "http://new.example"})
		}
		return fault{}
	})
	checkAbsence("during a change of the URL", true)
	r.wire.spoil(nil)
	r.provider = r.restarted()
	checkAbsence("after a restart", true)
}

// InstanceExists returns true in every state except terminated.
// InstanceShutdown returns true only in the states stopping and stopped.
func TestExistsAndShutdownInEachState(t *testing.T) {
	type verb func(*client.Client, cloudsim.InstanceID) error
	stop := verb(func(c *client.Client, id cloudsim.InstanceID) error {
		_, err := c.StopInstance(t.Context(), id)
		return err
	})
	start := verb(func(c *client.Client, id cloudsim.InstanceID) error {
		_, err := c.StartInstance(t.Context(), id)
		return err
	})
	reboot := verb(func(c *client.Client, id cloudsim.InstanceID) error {
		_, err := c.RebootInstance(t.Context(), id)
		return err
	})
	terminate := verb(func(c *client.Client, id cloudsim.InstanceID) error {
		_, err := c.DeleteInstance(t.Context(), id)
		return err
	})
	for _, tc := range []struct {
		want             cloudsim.InstanceState
		profile          func(*engine.Profile)
		verbs            []verb
		exists, shutdown bool
	}{
		{cloudsim.InstanceProvisioning, func(p *engine.Profile) { p.Provision = time.Hour }, nil, true, false},
		{cloudsim.InstanceRunning, func(*engine.Profile) {}, nil, true, false},
		{cloudsim.InstanceStopping, func(p *engine.Profile) { p.Shutdown = time.Hour }, []verb{stop}, true, true},
		{cloudsim.InstanceStopped, func(*engine.Profile) {}, []verb{stop}, true, true},
		{cloudsim.InstanceStarting, func(p *engine.Profile) { p.Boot = time.Hour }, []verb{stop, start}, true, false},
		{cloudsim.InstanceRebooting, func(p *engine.Profile) { p.Boot = time.Hour }, []verb{reboot}, true, false},
		{cloudsim.InstanceTerminating, func(p *engine.Profile) { p.Shutdown = time.Hour }, []verb{terminate}, true, false},
		{cloudsim.InstanceTerminated, func(*engine.Profile) {}, []verb{terminate}, false, false},
	} {
		t.Run(string(tc.want), func(t *testing.T) {
			r := newRig(t, withSlowProfile(tc.profile))
			i := r.createMachine(t, "node-1")
			r.letFind(t, i)
			for _, v := range tc.verbs {
				if err := v(r.cloud, i.ID); err != nil {
					t.Fatal(err)
				}
			}
			if now, err := r.cloud.GetInstance(t.Context(), i.ID); err == nil && now.State != tc.want {
				t.Fatalf("state of the instance: got %s, want %s", now.State, tc.want)
			}
			n := initializedNode(i)
			if got, err := r.instances().InstanceExists(t.Context(), n); err != nil || got != tc.exists {
				t.Errorf("InstanceExists = %v, %v; want %v", got, err, tc.exists)
			}
			for _, when := range []string{"after Exists", "on its own"} {
				if got, err := r.instances().InstanceShutdown(t.Context(), n); err != nil || got != tc.shutdown {
					t.Errorf("InstanceShutdown %s = %v, %v; want %v", when, got, err, tc.shutdown)
				}
			}
		})
	}
}

// A new instance may have the name of a deleted instance. The CCM nevertheless deletes the Node of
// the deleted instance, because the ids differ. The CCM finds the instance of an uninitialized Node
// by name. If no instance has the name, InstanceExists returns false for an uninitialized Node.
func TestNamesAndIDs(t *testing.T) {
	r := newRig(t)
	old := r.createMachine(t, "node-1")
	r.letFind(t, old)
	if _, err := r.cloud.DeleteInstance(t.Context(), old.ID); err != nil {
		t.Fatal(err)
	}
	if ok, err := r.instances().InstanceExists(t.Context(), newNode("node-1")); ok || err != nil {
		t.Errorf("exists for a Node without an instance: got %v, %v; want false", ok, err)
	}
	current := r.createMachine(t, "node-1")
	if ok, err := r.instances().InstanceExists(t.Context(), initializedNode(old)); ok || err != nil {
		t.Errorf("exists for the Node of the deleted instance: got %v, %v; want false", ok, err)
	}
	if m, err := r.instances().InstanceMetadata(t.Context(), initializedNode(old)); err == nil {
		t.Errorf("metadata of the deleted instance: got %+v, want an error", m)
	}
	if m, err := r.instances().InstanceMetadata(t.Context(), newNode("node-1")); err != nil || m.ProviderID != current.ProviderID {
		t.Errorf("metadata by name: got %+v, %v; want %s", m, err, current.ProviderID)
	}
}

// If the CCM has an admin's token and no configured project, it may find two
// instances with the Node's name. It then uses no instance and returns an
// error.
func TestTwoInstancesWithOneName(t *testing.T) {
	r := newRig(t)
	r.createMachine(t, "node-1")
	p, err := r.cloud.CreateProject(t.Context(), cloudsim.CreateProject{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	other := *r.cloud
	other.Project = p.ID
	if _, err := other.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "node-1", Zone: "sim-1a", Type: "small"}); err != nil {
		t.Fatal(err)
	}
	r.api.Project, r.api.Token = "", r.cloud.Token
	if m, err := r.instances().InstanceMetadata(t.Context(), newNode("node-1")); err == nil || !strings.Contains(err.Error(), "project") {
		t.Errorf("InstanceMetadata = %+v, %v; want an error that names the project", m, err)
	}
}

func TestMetadata(t *testing.T) {
	r := newRig(t)
	i, err := r.cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{
		Name: "node-1", Zone: "sim-1b", Type: "medium",
		Labels: map[string]string{
			"pool": "blue", "example.com/rack": "r1",
			"note":         "no label value: it has blanks",
			"a/b/c":        "no-label-key",
			"too.long/key": strings.Repeat("x", 64),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.instances().InstanceMetadata(t.Context(), newNode("node-1"))
	if err != nil {
		t.Fatal(err)
	}
	want := &cloudprovider.InstanceMetadata{
		ProviderID:   "cloudsim://sim-1/sim-1b/i-000001",
		InstanceType: "medium", Zone: "sim-1b", Region: "sim-1",
		NodeAddresses:    []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: i.InternalIP()}, {Type: v1.NodeHostName, Address: "node-1"}},
		AdditionalLabels: map[string]string{"pool": "blue", "example.com/rack": "r1"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("metadata (-want +got):\n%s", d)
	}
}

// InstanceMetadata returns an error if the zone of the instance is not a valid label value. It also
// returns an error if the region or the provider id is missing.
func TestInvalidMetadataIsRefused(t *testing.T) {
	for name, body := range map[string]string{
		"blank in zone":  `{"id":"i-000001","name":"node-1","zone":"a b","region":"sim-1","type":"small","state":"running","providerID":"cloudsim://sim-1/a b/i-000001"}`,
		"no region":      `{"id":"i-000001","name":"node-1","zone":"a","type":"small","state":"running","providerID":"cloudsim://sim-1/a/i-000001"}`,
		"no provider id": `{"id":"i-000001","name":"node-1","zone":"a","region":"sim-1","type":"small","state":"running"}`,
		"nothing":        `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.wire.spoil(func(int, *http.Request) fault {
				return fault{status: 200, body: `{"items":[` + body + `]}`}
			})
			if m, err := r.instances().InstanceMetadata(t.Context(), newNode("node-1")); err == nil {
				t.Errorf("got %+v without an error", m)
			}
		})
	}
}

// The CCM writes the addresses of both IP families and of every known type into
// the Node, in the cloud's order.
func TestAddressesOfBothFamilies(t *testing.T) {
	r := newRig(t)
	r.wire.spoil(func(int, *http.Request) fault {
		return fault{status: 200, body: `{"items":[{"id":"i-000001","name":"node-1","zone":"a","region":"b","type":"small","state":"running",
			"providerID":"cloudsim://b/a/i-000001","addresses":[
			{"type":"internal","address":"10.0.0.1"},{"type":"internal","address":"fd00::1"},
			{"type":"external","address":"203.0.113.1"},{"type":"external","address":"2001:db8::1"},
			{"type":"carrier-pigeon","address":"coo"},{"type":"hostname","address":"node-1"}]}]}`}
	})
	m, err := r.instances().InstanceMetadata(t.Context(), newNode("node-1"))
	if err != nil {
		t.Fatal(err)
	}
	want := []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: "10.0.0.1"}, {Type: v1.NodeInternalIP, Address: "fd00::1"},
		{Type: v1.NodeExternalIP, Address: "203.0.113.1"}, {Type: v1.NodeExternalIP, Address: "2001:db8::1"},
		{Type: v1.NodeHostName, Address: "node-1"},
	}
	if d := cmp.Diff(want, m.NodeAddresses); d != "" {
		t.Errorf("addresses (-want +got):\n%s", d)
	}
}

// For every Node that is not ready, the framework calls InstanceExists and then
// InstanceShutdown every few seconds. The CCM makes only one call to the cloud
// for these two calls.
func TestOneCallForANodeThatIsNotReady(t *testing.T) {
	r := newRig(t)
	var nodes []*v1.Node
	for n := range 20 {
		nodes = append(nodes, initializedNode(r.createMachine(t, fmt.Sprintf("node-%d", n))))
	}
	r.wire.spoil(nil)
	for range 3 {
		for _, n := range nodes {
			instances, _ := r.provider.InstancesV2() // the framework also calls InstancesV2 each time
			if ok, err := instances.InstanceExists(t.Context(), n); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if off, err := instances.InstanceShutdown(t.Context(), n); off || err != nil {
				t.Fatal(off, err)
			}
		}
	}
	if got, want := len(r.wire.takeCalls(false)), 3*len(nodes); got != want {
		t.Errorf("%d calls to the cloud, want %d", got, want)
	}
	// The CCM does not use the stored instance of one Node for another Node.
	stopped := cloudsim.InstanceID("i-000001")
	if _, err := r.cloud.StopInstance(t.Context(), stopped); err != nil {
		t.Fatal(err)
	}
	if ok, err := r.instances().InstanceExists(t.Context(), nodes[0]); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if off, err := r.instances().InstanceShutdown(t.Context(), nodes[1]); off || err != nil {
		t.Errorf("shutdown of node-1: got %v, %v; want false, because node-0 is stopped", off, err)
	}
}

func TestNodeDeletionGrace(t *testing.T) {
	r := newRig(t)
	r.cfg.NodeDeletionGrace = metav1.Duration{Duration: 200 * time.Millisecond}
	r.provider = r.restarted()
	i := r.createMachine(t, "node-1")
	r.letFind(t, i)
	r.deleteInstance(t, i)
	n, began := initializedNode(i), time.Now()
	eventually.True(t, "the CCM reports that the instance does not exist", func() bool {
		exists, err := r.instances().InstanceExists(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if down, err := r.instances().InstanceShutdown(t.Context(), n); err != nil || down {
			t.Errorf("InstanceShutdown = %v, %v", down, err)
		}
		return !exists
	})
	if lasted := time.Since(began); lasted < 200*time.Millisecond {
		t.Errorf("InstanceExists returned false after %s, want at least 200ms", lasted)
	}
	if events := r.takeEvents(); strings.Count(events, "InstanceGone") != 1 {
		t.Errorf("events: got %q, want one event InstanceGone", events)
	}
}

func (r *rig) deleteInstance(t *testing.T, i cloudsim.Instance) {
	t.Helper()
	if _, err := r.cloud.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the cloud forgets the instance", func() bool {
		_, err := r.cloud.GetInstance(t.Context(), i.ID)
		return errors.Is(err, cloudsim.NotFound)
	})
}

// Upstream calls InstanceExists only for Nodes that are not ready. So if a long time has passed
// since the last call, the Node was probably ready in the meantime. The full NodeDeletionGrace then
// begins again.
func TestNodeDeletionGraceBeginsAnew(t *testing.T) {
	r := newRig(t)
	r.cfg.NodeDeletionGrace = metav1.Duration{Duration: time.Hour}
	r.provider = r.restarted()
	i := r.createMachine(t, "node-1")
	n := initializedNode(i)
	r.letFind(t, i)
	r.deleteInstance(t, i)
	for _, when := range []string{"at first", "much later"} {
		if exists, err := r.instances().InstanceExists(t.Context(), n); err != nil || !exists {
			t.Errorf("InstanceExists %s: got %v, error %v; want true", when, exists, err)
		}
		r.provider.Age(2 * time.Hour)
	}
	if events := r.takeEvents(); strings.Count(events, "InstanceGone") != 2 {
		t.Errorf("events: got %q, want two events InstanceGone", events)
	}
}

// With a long --node-monitor-period, upstream calls InstanceExists rarely. The
// test proves that the CCM nevertheless deletes the Node after NodeDeletionGrace.
func TestNodeDeletionGraceWithRareCalls(t *testing.T) {
	r := newRig(t)
	r.cfg.NodeDeletionGrace = metav1.Duration{Duration: 5 * time.Minute}
	r.provider = r.restarted().WithMonitorPeriod(2 * time.Minute)
	i := r.createMachine(t, "node-1")
	n := initializedNode(i)
	r.letFind(t, i)
	r.deleteInstance(t, i)
	for minute := 0; minute <= 6; minute += 2 {
		if exists, err := r.instances().InstanceExists(t.Context(), n); err != nil || exists != (minute < 5) {
			t.Errorf("InstanceExists after %d minutes: got %v, error %v; want %v", minute, exists, err, minute < 5)
		}
		r.provider.Age(2 * time.Minute)
	}
	if events := r.takeEvents(); strings.Count(events, "InstanceGone") != 1 {
		t.Errorf("events: got %q, want one event InstanceGone", events)
	}
}
