package apply

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// everyKind contains each list that a file may have. Some values are zeros or nulls. The API
// returns some values in another spelling, e.g. fd10::/48 for fd10:0:0::/48.
const everyKind = `
networks:
- {name: shop, ipv4: 10.10.0.0/16, ipv6: "fd10:0:0::/48", labels: {}, maxRoutes: 0, podRanges: {ipv4: 10.11.0.0/16, ipv4Mask: 24, ipv6: "", ipv6Mask: 0}}
subnets:
- {name: shop-a, network: shop, zone: sim-1a, region: "", ipv4: 10.10.1.0/24, ipv6: "fd10:0:0:1::/64", labels: null}
instances:
- {name: node-1, zone: sim-1a, type: small, network: shop, subnet: "", labels: {empty: "", instance: node-2}, serviceAccount: "", userData: ""}
- {name: node-2, zone: sim-1a, type: small, serviceAccount: worker, labels: }
addresses:
- {name: front, family: ipv4, labels: {}}
routes:
- {name: pods, network: shop, destination: 10.12.0.0/24, nextHop: node-1, labels: {}}
disks:
- {name: data, zone: sim-1a, replicaZones: [], type: balanced, sizeGiB: 1, iops: 0, throughputMiBps: 0, multiAttach: false, sourceSnapshot: "", sourceDisk: ""}
loadBalancers:
- name: web
  region: sim-1
  scheme: external
  labels: {}
  listeners: [{protocol: tcp, port: 80, targetPort: 30080, idleTimeoutSeconds: 0, maxConnections: 0}]
  targets: [{instance: node-2, weight: 0}]
  healthCheck: {protocol: tcp, port: 0, path: "", expectedCodes: "", intervalMillis: 0, timeoutMillis: 0, healthyThreshold: 0, unhealthyThreshold: 0}
  sourceRanges: []
  affinityTimeoutSeconds: 0
  drainTimeoutSeconds: 0
faults:
- name: later
  labels: {}
  match: {operation: zones.get, caller: "", target: "", labels: {}, zone: "", type: ""}
  when: {seed: 0, skip: 0, max: 0, from: 2130-01-01T02:00:00+02:00, afterSeconds: 0, forSeconds: 0}
  effect: {type: error, status: 0, message: "", retryAfterSeconds: 0, latencyMillis: 0}
holds:
- {name: slow, labels: null, kind: instance, verb: stop, target: ""}
`

func applyText(t *testing.T, cl *client.Client, text string, dryRun bool) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cloud.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	wanted, err := Read(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	done, err := All(t.Context(), cl, wanted, dryRun)
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	for _, a := range done {
		results[a.List+" "+a.Name] = a.Result + " " + a.Fields
	}
	return results
}

// TestApplyTwice proves that a second apply of the same file changes no resource of any kind,
// and adds no event to the journal.
func TestApplyTwice(t *testing.T) {
	cl := cloudtest.Start(t)
	if _, err := cl.CreateServiceAccount(t.Context(), cloudsim.CreateServiceAccount{Name: "worker"}); err != nil {
		t.Fatal(err)
	}
	first := applyText(t, cl, everyKind, false)
	lists := map[string]bool{}
	for name, result := range first {
		if result != "created " {
			t.Errorf("%s: got result %q, want created", name, result)
		}
	}
	for _, kind := range appliable {
		lists[kind.key] = true
	}
	wanted, err := parseApply("f", []byte(everyKind))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range wanted {
		delete(lists, i.list)
	}
	if len(lists) > 0 {
		t.Errorf("the manifest has no object in the lists %v", lists)
	}
	before := revision(t, cl)
	for _, dryRun := range []bool{false, true} {
		for object, result := range applyText(t, cl, everyKind, dryRun) {
			if result != "unchanged " && (!dryRun || object != "networks shop") { // maxRoutes 0 means the default; a dry run does not know the default, and reports an update
				t.Errorf("second apply of %s: got result %q, want unchanged", object, result)
			}
		}
	}
	if now := revision(t, cl); now != before {
		t.Errorf("second apply changed the journal from revision %d to %d", before, now)
	}
}

// TestApplyZero proves that a zero in the file means the default value. If the value in the cloud
// is not the default value, the first apply updates the resource. The second apply changes nothing.
func TestApplyZero(t *testing.T) {
	cl := cloudtest.Start(t)
	const name, zero = "loadBalancers:\n- name: web\n  region: sim-1\n", "  drainTimeoutSeconds: 0\n  healthCheck: {protocol: http, path: \"\"}\n"
	applyText(t, cl, name+"  listeners: [{protocol: tcp, port: 80, targetPort: 1}]\n  drainTimeoutSeconds: 60\n  healthCheck: {protocol: http, path: /ready}\n", false)
	if got := applyText(t, cl, name+zero, false)["loadBalancers web"]; got != "updated drainTimeoutSeconds, healthCheck" {
		t.Errorf("apply of zero values: got %q, want an update of drainTimeoutSeconds and healthCheck", got)
	}
	if got := applyText(t, cl, name+zero, false)["loadBalancers web"]; got != "unchanged " {
		t.Errorf("second apply of zero values: got %q, want unchanged", got)
	}
	lb, err := cl.GetLoadBalancer(t.Context(), "lb-000001")
	if err != nil || lb.DrainTimeoutSeconds != 0 || lb.HealthCheck.Path != "" {
		t.Errorf("load balancer after zero values: got %+v, error %v; want no drain timeout and no health check path", lb, err)
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// In TestApplyKeepsConcurrentChanges, apply reads a load balancer, then another caller changes it,
// and then apply updates it. The test proves that the update does not undo the change of the other
// caller.
func TestApplyKeepsConcurrentChanges(t *testing.T) {
	cl := cloudtest.Start(t)
	applyText(t, cl, "instances: [{name: a, zone: sim-1a, type: small}]\nloadBalancers: [{name: web, region: sim-1, listeners: [{protocol: tcp, port: 80, targetPort: 1}], healthCheck: {protocol: tcp}}]", false)
	slow := *cl
	var once sync.Once
	slow.HTTP = &http.Client{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut {
			once.Do(func() { applyText(t, cl, "loadBalancers: [{name: web, targets: [{instance: a}]}]", false) })
		}
		return cl.HTTP.Transport.RoundTrip(r)
	})}
	applyText(t, &slow, "loadBalancers: [{name: web, labels: {tier: front}}]", false)
	lb, err := cl.GetLoadBalancer(t.Context(), "lb-000001")
	if err != nil || lb.Labels["tier"] != "front" || len(lb.Targets) != 1 {
		t.Errorf("got labels %v, targets %v, error %v; want the label and the target", lb.Labels, lb.Targets, err)
	}
}

func TestApplyLabelsOfDisks(t *testing.T) {
	cl := cloudtest.Start(t)
	const disk = "disks: [{name: data, zone: sim-1a, type: balanced, sizeGiB: 1, labels: {tier: "
	applyText(t, cl, disk+"front}}]", false)
	if got := applyText(t, cl, disk+"back}}]", false)["disks data"]; got != "updated labels" {
		t.Errorf("got %q, want an update of the labels", got)
	}
}

// TestApplyDocuments proves that apply creates the resources of all YAML documents in a
// file. Apply creates a resource before the resources that refer to it. Apply refuses a
// document that contains the same list twice.
func TestApplyDocuments(t *testing.T) {
	cl := cloudtest.Start(t)
	got := applyText(t, cl, "---\nholds:\n- {name: h, kind: instance, verb: stop, target: b}\n---\ninstances: [{name: a, zone: sim-1a, type: small}]\n---\n# none\n---\ninstances: [{name: b, zone: sim-1a, type: small}]\n", false)
	for _, object := range []string{"instances a", "instances b", "holds h"} {
		if got[object] != "created " {
			t.Errorf("%s: got result %q, want created; all results: %v", object, got[object], got)
		}
	}
	h, err := cl.GetHold(t.Context(), "hold-000001")
	if err != nil || h.Target != "i-000002" {
		t.Errorf("hold: got %+v, error %v; want target i-000002", h, err)
	}
	_, err = parseApply("f", []byte("instances: []\ninstances: [{name: c}]\n"))
	if err == nil || !strings.Contains(err.Error(), "f:2: instances is a duplicate key") {
		t.Errorf("manifest with the same list twice: got error %v", err)
	}
}

// TestApplyChecksFirst proves that apply checks all resources before it creates the first resource.
// If this check finds an error, apply does not change the cloud. A dry run reports the same error.
func TestApplyChecksFirst(t *testing.T) {
	cl := cloudtest.Start(t)
	for text, want := range map[string]string{
		"{name: b, zone: nowhere, type: small}":                                                                   `f:3: instances b: zone names "nowhere"`,
		"{name: b, zone: sim-1a, type: vast}":                                                                     `f:3: instances b: type names "vast"`,
		"{name: b, zone: sim-1a}":                                                                                 "f:3: instances b: type is required",
		"{name: b, zone: sim-1a, type: small, size: 3}":                                                           "f:3: instances b: size is an unknown field",
		"{name: b, zone: sim-1a, type: 3}":                                                                        "f:3: instances b: type has the wrong type, got number",
		"{name: a}\ndisks:\n- {name: d, zone: sim-1a, type: balanced}":                                            "f:5: disks d: sizeGiB",
		"{name: a}\nholds:\n- {name: h, kind: disk, verb: stop}":                                                  "disk",
		"{name: a}\nholds:\n- {name: h, kind: disk, verb: attach, target: a}":                                     `target cannot be found: no disk named "a"`,
		"{name: a}\nholds:\n- {name: h, kind: '*', verb: '*', target: a}":                                         `target "a" must be an id`,
		"{name: a}\nfaults:\n- {name: f, match: {operation: accessKeys.delete, target: a}, effect: {type: drop}}": `match.target cannot be found: no accessKey named "a"`,
	} {
		wanted, err := parseApply("f", []byte("instances:\n- {name: a, zone: sim-1a, type: small}\n- "+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		for _, dryRun := range []bool{true, false} {
			done, err := All(t.Context(), cl, wanted, dryRun)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, dry run %t: got error %v, want %q", text, dryRun, err, want)
			}
			if len(done) > 0 {
				t.Errorf("%s, dry run %t: got results %v, want none", text, dryRun, done)
			}
		}
	}
	if l, err := cl.ListInstances(t.Context(), cloudsim.ListOptions{}); err != nil || len(l.Items) > 0 {
		t.Errorf("instances: got %v, error %v; want none", l.Items, err)
	}
}

// TestApplyTargets proves that apply finds the target of a hold or a fault by its name or its id.
// If resources of several kinds have this name, apply selects the kind of the target. For a hold,
// it uses the hold's field "kind". For a fault, it uses the fault's field "operation".
func TestApplyTargets(t *testing.T) {
	cl := cloudtest.Start(t)
	token, err := cl.CreateToken(t.Context(), cloudsim.CreateToken{Name: "temporary", Role: cloudsim.RoleReader})
	if err != nil {
		t.Fatal(err)
	}
	applyText(t, cl, `
instances: [{name: same, zone: sim-1a, type: small}]
disks: [{name: same, zone: sim-1a, type: balanced, sizeGiB: 1}]
holds: [{name: h, kind: disk, verb: attach, target: same}]
faults:
- {name: f, match: {operation: disks.attach, target: same}, effect: {type: drop}}
- {name: t, match: {operation: tokens.delete, target: temporary}, effect: {type: drop}}
`, false)
	h, err := cl.GetHold(t.Context(), "hold-000001")
	if err != nil || h.Target != "disk-000001" {
		t.Errorf("hold: got %+v, error %v; want target disk-000001", h, err)
	}
	applyText(t, cl, `
instances: [{name: web-0a1b2c, zone: sim-1a, type: small}]
holds:
- {name: by-name, kind: instance, verb: stop, target: web-0a1b2c}
- {name: by-id, kind: instance, verb: stop, target: i-000001}
- {name: not-yet, kind: instance, verb: stop, target: i-0000ff}
`, false)
	for id, want := range map[cloudsim.HoldID]string{"hold-000002": "i-000002", "hold-000003": "i-000001", "hold-000004": "i-0000ff"} {
		if h, err := cl.GetHold(t.Context(), id); err != nil || h.Target != want {
			t.Errorf("hold %s: got %+v, error %v; want target %s", id, h, err, want)
		}
	}
	for id, want := range map[cloudsim.FaultID]string{"fault-000001": "disk-000001", "fault-000002": string(token.ID)} {
		if f, err := cl.GetFault(t.Context(), id); err != nil || f.Match.Target != want {
			t.Errorf("fault %s: got %+v, error %v; want target %s", id, f, err, want)
		}
	}
}

// TestTargetOfAnUnreadableID proves that TargetID returns the error of the read that decides whether
// a text is a name or an id.
func TestTargetOfAnUnreadableID(t *testing.T) {
	cl := cloudtest.Start(t)
	applyText(t, cl, "instances: [{name: web-0a1b2c, zone: sim-1a, type: small}]\nfaults: [{name: f, match: {operation: instances.get}, effect: {type: error}}]", false)
	if id, err := TargetID(t.Context(), cl, "instance", "web-0a1b2c", nil); !errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("got %q, error %v; want Unavailable", id, err)
	}
}

func revision(t *testing.T, cl *client.Client) uint64 {
	t.Helper()
	l, err := cl.ListZones(t.Context(), cloudsim.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l.Revision
}

// FuzzApply proves that apply either applies a random file, or returns an error that names the file
// and the line. After a success, a second apply of the file changes nothing. If the file creates a
// fault, the second apply may return an error, because the fault affects the calls of the second
// apply.
func FuzzApply(f *testing.F) {
	f.Add([]byte(everyKind))
	for _, s := range []string{
		"", "[]", "instances: {}", "instances: [1]", "cows: []", "instances:\n- {name: [], zone: &a x}\n- *a", "a: &a [*a]", "instances: [{name: x, zone: sim-1a, type: small, labels: {a: 1.5}}]",
		"networks: [{name: n, ipv4: 10.0.0.0/8, maxRoutes: 1e3}]", "faults: [{name: f, match: {operation: '*'}, effect: {type: drop}}]", "\xff", "? [a]\n: b",
		"instances: [{name: x, 1: 2}]", "instances: [{name: x, zone: {{}: []}}]",
	} {
		f.Add([]byte(s))
	}
	cl := cloudtest.Start(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := cl.ResetState(t.Context()); err != nil {
			t.Fatal(err)
		}
		apply := func() ([]Result, error) {
			wanted, err := parseApply("cloud.yaml", raw)
			if err == nil {
				var done []Result
				if done, err = All(t.Context(), cl, wanted, false); err == nil {
					return done, nil
				}
			}
			if !strings.Contains(err.Error(), "cloud.yaml:") {
				t.Errorf("got error %v, want an error with the position in cloud.yaml", err)
			}
			return nil, err
		}
		if _, err := apply(); err != nil {
			return
		}
		second, err := apply()
		if err != nil && !strings.Contains(string(raw), "faults") {
			t.Errorf("second apply: got error %v", err)
		}
		for _, a := range second {
			if a.Result != "unchanged" {
				t.Errorf("second apply: got %+v, want unchanged", a)
			}
		}
	})
}

// TestApplyFixedMembers creates a resource from a file. Then it adds a member that an update cannot
// change, and applies the file again. Usually apply returns Exists. But if the cloud's answers
// never contain the member, apply cannot compare its value, and ignores the member.
func TestApplyFixedMembers(t *testing.T) {
	cl := cloudtest.Start(t)
	const disk, hold = "disks:\n- {name: data, zone: sim-1a, type: fast, sizeGiB: 10", "holds:\n- {name: slow, kind: instance, verb: stop"
	for _, x := range []struct{ text, more, field string }{
		{disk, "multiAttach: true", "multiAttach"},
		{hold, "target: i-000001", "target"},
		{"instances:\n- {name: a, zone: sim-1a, type: small", "userData: hello, address: 10.0.0.200", ""}, // the cloud's answer never contains these members
	} {
		applyText(t, cl, x.text+"}\n", false)
		path := filepath.Join(t.TempDir(), "cloud.yaml")
		if err := os.WriteFile(path, []byte(x.text+", "+x.more+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		wanted, err := Read(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = All(t.Context(), cl, wanted, false)
		if x.field == "" && err != nil || x.field != "" && (!errors.Is(err, cloudsim.Exists) || !strings.Contains(err.Error(), x.field)) {
			t.Errorf("apply with %s: got error %v, want Exists if the field is %q", x.more, err, x.field)
		}
	}
}

// TestApplyUnknownMembers proves that apply refuses a misspelled member of an existing resource.
// The names of members are case-sensitive.
func TestApplyUnknownMembers(t *testing.T) {
	cl := cloudtest.Start(t)
	const balancer = "loadBalancers:\n- {name: a, region: sim-1, healthCheck: {protocol: tcp}, listeners: [{port: 80, targetPort: 80, protocol: tcp"
	applyText(t, cl, balancer+"}]}\n", false)
	for text, want := range map[string]string{
		"}], lables: {a: b}}": "f:2: loadBalancers a: lables is an unknown field",
		"}], Labels: {a: b}}": "f:2: loadBalancers a: Labels is an unknown field",
		", targetport: 81}]}": "f:2: loadBalancers a: listeners[0].targetport is an unknown field",
	} {
		wanted, err := parseApply("f", []byte(balancer+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		for _, dryRun := range []bool{true, false} {
			if _, err := All(t.Context(), cl, wanted, dryRun); !errors.Is(err, cloudsim.Invalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, dry run %t: got error %v, want Invalid with %q", text, dryRun, err, want)
			}
		}
	}
}

// TestApplyAddresses applies a load balancer with static addresses, and updates its addresses and
// its IP families. A second apply of the same file changes nothing.
func TestApplyAddresses(t *testing.T) {
	cl := cloudtest.Start(t)
	var ips [2]string
	for n := range ips {
		a, err := cl.CreateAddress(t.Context(), cloudsim.CreateAddress{Name: fmt.Sprintf("front-%d", n)})
		if err != nil {
			t.Fatal(err)
		}
		ips[n] = a.IP
	}
	const start = "loadBalancers:\n- {name: web, region: sim-1, listeners: [{protocol: tcp, port: 80, targetPort: 1}], healthCheck: {protocol: tcp}"
	both := ", addresses: [" + ips[1] + "], families: [ipv4, ipv6]"
	for _, x := range []struct{ more, first string }{
		{", addresses: [" + ips[0] + "]", "created "},
		{"", "unchanged "},
		{", addresses: [" + ips[1] + "]", "updated addresses"},
		{both, "updated families"},
		{both + ", drainTimeoutSeconds: 5", "updated drainTimeoutSeconds"},
		{"", "unchanged "},
	} {
		for n, want := range []string{x.first, "unchanged "} {
			if got := applyText(t, cl, start+x.more+"}\n", false)["loadBalancers web"]; got != want {
				t.Errorf("apply %d of a load balancer%s: got %q, want %q", n+1, x.more, got, want)
			}
		}
	}
	lb, err := cl.GetLoadBalancer(t.Context(), "lb-000001")
	if err != nil || len(lb.Addresses) != 2 || lb.Addresses[0].IP != ips[1] || lb.DrainTimeoutSeconds != 5 {
		t.Errorf("got %+v, error %v; want two addresses, the first is %s, and a drain timeout of 5 s", lb, err, ips[1])
	}
}
