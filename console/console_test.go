package console_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/console"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

func start(t *testing.T, cloud *client.Client, cluster func(context.Context, console.Sink)) string {
	t.Helper()
	return startConfig(t, cloud, console.Config{Cluster: cluster})
}

// startConfig serves a console of the cloud with the settings in cfg until the test ends.
func startConfig(t *testing.T, cloud *client.Client, cfg console.Config) string {
	t.Helper()
	hub := *cloud
	hub.Project = "*"
	cfg.Cloud = &hub
	c := console.New(slog.New(slog.DiscardHandler), cfg)
	h, err := c.Standalone()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = c.Run(ctx) })
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		cancel()
		srv.CloseClientConnections()
		srv.Close()
		done.Wait()
	})
	return srv.URL
}

func post(t *testing.T, url, secret, body string) (status int, answer map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer
}

func secretOf(t *testing.T, c *client.Client) string {
	t.Helper()
	s, err := c.Token()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// viewer reads the stream of a console and keeps the objects of the stream by kind and id.
type viewer struct {
	mu          sync.Mutex
	objects     map[string]map[string]json.RawMessage
	differences []console.Difference
	lines       int
}

func watch(t *testing.T, url, secret string) *viewer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/console/scene", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("scene: %s", resp.Status)
	}
	v := &viewer{objects: map[string]map[string]json.RawMessage{}}
	var done sync.WaitGroup
	done.Go(func() {
		defer resp.Body.Close()
		s := bufio.NewScanner(resp.Body)
		s.Buffer(nil, 16<<20)
		for s.Scan() {
			v.take(s.Bytes())
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return v
}

func (v *viewer) take(raw []byte) {
	var l struct {
		Type        string
		Put         map[string][]json.RawMessage
		Delete      map[string][]string
		Differences []console.Difference
	}
	_ = json.Unmarshal(raw, &l)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lines++
	if l.Type == "snapshot" {
		v.objects = map[string]map[string]json.RawMessage{}
	}
	for kind, list := range l.Put {
		if v.objects[kind] == nil {
			v.objects[kind] = map[string]json.RawMessage{}
		}
		for _, o := range list {
			var h struct{ ID, Name string }
			_ = json.Unmarshal(o, &h)
			v.objects[kind][h.ID+h.Name] = o
		}
	}
	for kind, ids := range l.Delete {
		for _, id := range ids {
			for k := range v.objects[kind] {
				if strings.HasPrefix(k, id) {
					delete(v.objects[kind], k)
				}
			}
		}
	}
	v.differences = l.Differences
}

func (v *viewer) has(kind, part string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for k, o := range v.objects[kind] {
		if strings.Contains(k, part) || strings.Contains(string(o), part) {
			return true
		}
	}
	return false
}

func (v *viewer) ruleIDs() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []string
	for _, d := range v.differences {
		all = append(all, d.Rule)
	}
	return strings.Join(all, " ")
}

// A console link contains a code. The console accepts the code only once, and refuses a wrong code.
// The cloud checks the permission to create a console link.
func TestLinks(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t)
	url := start(t, cloud, nil)
	if status, _ := post(t, url+"/console/links", "", `{}`); status != http.StatusUnauthorized {
		t.Errorf("link without a token: status %d", status)
	}
	reader := cloudtest.As(t, cloud, "reader", cloudsim.RoleReader)
	if status, _ := post(t, url+"/console/links", secretOf(t, reader), `{}`); status != http.StatusForbidden {
		t.Errorf("link of a reader: status %d", status)
	}
	if status, a := post(t, url+"/console/links", secretOf(t, cloud), `{"ttlSeconds":-1}`); status != http.StatusBadRequest {
		t.Errorf("link with a negative ttl: status %d, %v", status, a)
	}
	status, link := post(t, url+"/console/links", secretOf(t, cloud), `{"readOnly":true,"project":"`+string(cloud.Project)+`"}`)
	if status != http.StatusCreated {
		t.Fatalf("link: status %d, %v", status, link)
	}
	_, code, _ := strings.Cut(link["path"].(string), "#c=")
	status, session := post(t, url+"/console/session", "", `{"code":"`+code+`"}`)
	if status != http.StatusOK {
		t.Fatalf("session: status %d, %v", status, session)
	}
	as := *cloud
	as.Token, as.Project = client.StaticToken(session["token"].(string)), ""
	if me, err := as.WhoAmI(t.Context()); err != nil || me.Grants[0].Role != cloudsim.RoleViewer {
		t.Errorf("identity of the link: %v, %v", me, err)
	}
	for _, c := range []string{code, "wrong", ""} {
		if status, _ := post(t, url+"/console/session", "", `{"code":"`+c+`"}`); status != http.StatusUnauthorized {
			t.Errorf("code %q: status %d", c, status)
		}
	}
}

// A code is valid for two minutes.
func TestCodeExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := cloudtest.Start(t, cloudtest.InBubble())
		c := console.New(slog.New(slog.DiscardHandler), console.Config{Cloud: cloud})
		ask := func(path, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
			r.Header.Set("Authorization", "Bearer "+secretOf(t, cloud))
			w := httptest.NewRecorder()
			c.ServeHTTP(w, r)
			return w
		}
		for age, want := range map[time.Duration]int{2*time.Minute - time.Second: http.StatusOK, 2*time.Minute + time.Second: http.StatusUnauthorized} {
			var link console.Link
			if w := ask("/console/links", "{}"); json.Unmarshal(w.Body.Bytes(), &link) != nil || link.Path == "" {
				t.Fatalf("link: status %d: %s", w.Code, w.Body)
			}
			_, code, _ := strings.Cut(link.Path, "#c=")
			time.Sleep(age)
			if w := ask("/console/session", `{"code":"`+code+`"}`); w.Code != want {
				t.Errorf("code after %s: status %d, want %d: %s", age, w.Code, want, w.Body)
			}
		}
	})
}

// The console sends each viewer a stream of lines. Compressed and plain streams contain the same
// objects. A viewer that connects later first gets all objects that exist.
func TestCompressedScene(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t)
	url := start(t, cloud, nil)
	secret := secretOf(t, cloud)
	read := func(accept string) *bufio.Scanner {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/console/scene", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		req.Header.Set("Accept-Encoding", accept)
		resp, err := (&http.Client{Transport: &http.Transport{DisableCompression: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		var body io.Reader = resp.Body
		if accept == "gzip" {
			if body, err = gzip.NewReader(resp.Body); err != nil || resp.Header.Get("Content-Encoding") != "gzip" {
				t.Fatalf("encoding %q, error %v", resp.Header.Get("Content-Encoding"), err)
			}
		}
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 1<<20)
		return lines
	}
	streams := []*bufio.Scanner{read("identity"), read("gzip")}
	for n := range 20 {
		name := fmt.Sprint("disk-", n)
		if _, err := cloud.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: name, Zone: "sim-1a", Type: "balanced", SizeGiB: 1}); err != nil {
			t.Fatal(err)
		}
		for i, lines := range streams {
			for !strings.Contains(lines.Text(), `"name":"`+name+`"`) {
				if !lines.Scan() {
					t.Fatalf("stream %d ended before %s: %v", i, name, lines.Err())
				}
				if !json.Valid(lines.Bytes()) {
					t.Fatalf("stream %d: got the line %q, want JSON", i, lines.Text())
				}
			}
		}
		if n == 10 {
			streams = append(streams, read("gzip"), read("gzip"))
		}
	}
}

// A viewer gets the objects of its project. It gets the faults only with the permission to list
// faults.
func TestSceneShowsOnlyReadableObjects(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t)
	other, err := cloud.CreateProject(t.Context(), cloudsim.CreateProject{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	url := start(t, cloud, nil)
	admin := watch(t, url, secretOf(t, cloud))
	reader := watch(t, url, secretOf(t, cloudtest.As(t, cloud, "reader", cloudsim.RoleReader)))
	create := func(name string, project cloudsim.ProjectID) cloudsim.Instance {
		t.Helper()
		c := *cloud
		c.Project = project
		i, err := c.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small"})
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	create("hidden", other.ID)
	if _, err := cloud.CreateFault(t.Context(), cloudsim.CreateFault{Name: "secret-fault", FaultSpec: cloudsim.FaultSpec{Match: cloudsim.FaultMatch{Operation: "disks.create"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultError}}}); err != nil {
		t.Fatal(err)
	}
	shown := create("shown", cloud.Project)
	eventually.True(t, "both viewers see the instance", func() bool { return admin.has("instance", "shown") && reader.has("instance", "shown") })
	if !admin.has("instance", "hidden") || !admin.has("fault", "secret-fault") {
		t.Error("the administrator does not see all objects")
	}
	if hidden, fault := reader.has("instance", "hidden"), reader.has("fault", "secret-fault"); hidden || fault {
		t.Errorf("the reader sees the hidden instance: got %t, want false; it sees the fault: got %t, want false", hidden, fault)
	}
	if _, err := cloud.DeleteInstance(t.Context(), shown.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the deletion arrives", func() bool { return !reader.has("instance", "shown") })
}

// A grant for one project gives no rights in other projects. It also gives no right to see faults
// and logs, because they belong to the whole cloud. The identity "mixed" has two grants. One grant
// is for all projects, but permits only some reads. The other grant permits all reads, but only in
// one project. The identity must not get the right to read all objects of all projects.
func TestGrantsOfOtherProjects(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := cloud.CreateProject(t.Context(), cloudsim.CreateProject{Name: "other"})
	must(err)
	_, err = cloud.CreateFault(t.Context(), cloudsim.CreateFault{Name: "secret-fault", FaultSpec: cloudsim.FaultSpec{Match: cloudsim.FaultMatch{Operation: "disks.create"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultError}}})
	must(err)
	url := startConfig(t, cloud, console.Config{Logs: func() ([]console.Log, error) { return []console.Log{{Name: "ccm"}}, nil }})
	one := cloudtest.As(t, cloud, "one", cloudsim.RoleViewer) // in one project
	all := cloudtest.As(t, cloud, "all", cloudsim.RoleMetadata)
	_, err = cloud.CreateRoleBinding(t.Context(), cloudsim.CreateRoleBinding{Name: "all", Role: cloudsim.RoleViewer, ServiceAccount: "all", AllProjects: true})
	must(err)
	mixed := cloudtest.As(t, cloud, "mixed", cloudsim.RoleReader)
	_, err = cloud.CreateRoleBinding(t.Context(), cloudsim.CreateRoleBinding{Name: "mixed", Role: cloudsim.RoleMetadata, ServiceAccount: "mixed", AllProjects: true})
	must(err)

	_, err = cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "shown", Zone: "sim-1a", Type: "small"})
	must(err)
	viewers := []*viewer{watch(t, url, secretOf(t, one)), watch(t, url, secretOf(t, all))}
	eventually.True(t, "both viewers see the instance", func() bool { return viewers[0].has("instance", "shown") && viewers[1].has("instance", "shown") })
	if inOne, inAll := viewers[0].has("fault", "secret-fault"), viewers[1].has("fault", "secret-fault"); inOne || !inAll {
		t.Errorf("fault in the scene: got %t for the viewer of one project and %t for the viewer of all projects, want false and true", inOne, inAll)
	}
	for _, c := range []struct {
		caller  *client.Client
		project string
		path    string
		want    int
	}{
		{one, "", "logs", http.StatusForbidden}, {one, "", "logs/ccm", http.StatusForbidden},
		{all, "*", "logs", http.StatusOK},
		{mixed, "*", "scene", http.StatusForbidden}, {mixed, "other", "scene", http.StatusForbidden}, {mixed, "*", "logs", http.StatusForbidden},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/console/"+c.path, nil)
		must(err)
		req.Header.Set("Authorization", "Bearer "+secretOf(t, c.caller))
		if c.project != "" {
			req.Header.Set("Cloud-Project", c.project)
		}
		resp, err := http.DefaultClient.Do(req)
		must(err)
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s with project %q as %s: status %d, want %d", c.path, c.project, c.caller.UserAgent, resp.StatusCode, c.want)
		}
	}
}

// Each rule finds one kind of difference between cloud and cluster. After the test has removed the
// difference, the rule finds nothing.
func TestDifferences(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t)
	made, err := cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "node-1", Zone: "sim-1a", Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	sinks := make(chan console.Sink, 1)
	url := start(t, cloud, func(ctx context.Context, s console.Sink) { sinks <- s; <-ctx.Done() })
	v := watch(t, url, secretOf(t, cloud))
	sink := <-sinks
	sink.State("")
	expect := func(rules string) {
		t.Helper()
		eventually.True(t, "the differences are "+rules, func() bool { return v.ruleIDs() == rules })
	}
	good := func() console.Node {
		return console.Node{Name: "node-1", ProviderID: made.ProviderID, Zone: "sim-1a", Ready: "True", Addresses: []console.NodeAddress{{Type: "InternalIP", Address: made.InternalIP()}}}
	}
	put := func(change func(*console.Node)) {
		n := good()
		change(&n)
		sink.Put(console.KindNode, "node-1", n)
	}
	none := func(*console.Node) {}
	expect("no-node")
	put(none)
	expect("")
	for rule, change := range map[string]func(*console.Node){
		"uninitialized": func(n *console.Node) {
			n.Taints = []string{"node.cloudprovider.kubernetes.io/uninitialized:NoSchedule"}
		},
		"taint-without-stop": func(n *console.Node) { n.Taints = []string{"node.cloudprovider.kubernetes.io/shutdown:NoSchedule"} },
		"running-not-ready":  func(n *console.Node) { n.Ready = "Unknown" },
		"zone":               func(n *console.Node) { n.Zone = "sim-1b" },
		"address":            func(n *console.Node) { n.Addresses[0].Address = "192.0.2.1" },
		"provider-id":        func(n *console.Node) { n.ProviderID = "cloudsim://sim-1/sim-1a/i-999999" },
	} {
		put(change)
		expect(rule)
		put(none)
		expect("")
	}
	for _, id := range []string{"hcloud://1", "aws:///sim-1a/i-00000000000000001"} { // ids of cloud controller managers that use a dialect
		put(func(n *console.Node) { n.ProviderID, n.Ready = id, "Unknown" })
		expect("running-not-ready")
	}
	put(none)
	expect("")
	sink.Put(console.KindNode, "node-9", console.Node{Name: "node-9", Ready: "True"})
	expect("no-instance")
	sink.Delete(console.KindNode, "node-9")
	expect("")

	if _, err := cloud.StopInstance(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	expect("stopped-without-taint")
	put(func(n *console.Node) { n.Taints = []string{"node.cloudprovider.kubernetes.io/shutdown:NoSchedule"} })
	expect("")
	if _, err := cloud.StartInstance(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	put(none)
	expect("")
	if _, err := cloud.CrashInstance(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	expect("crashed-but-ready")
	put(func(n *console.Node) { n.Ready = "Unknown" })
	expect("")

	disk, err := cloud.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: "data", Zone: "sim-1a", Type: "balanced", SizeGiB: 1})
	if err != nil {
		t.Fatal(err)
	}
	sink.Put(console.KindVolumeAttachment, "csi-1", console.VolumeAttachment{Name: "csi-1", Node: "node-1", Disk: string(disk.ID), Attached: true})
	expect("attachment")
	sink.Delete(console.KindVolumeAttachment, "csi-1")
	expect("")

	lb := cloudsim.CreateLoadBalancer{Name: "shop", Region: "sim-1", LoadBalancerSpec: cloudsim.LoadBalancerSpec{HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP}}, Labels: map[string]string{"kubernetes.io/service-uid": "u-1"}}
	if _, err := cloud.CreateLoadBalancer(t.Context(), lb); err != nil {
		t.Fatal(err)
	}
	expect("no-service")
	sink.Put(console.KindService, "default/shop", console.Service{Namespace: "default", Name: "shop", UID: "u-1"})
	expect("")
	sink.State("the cluster does not answer")
	sink.Delete(console.KindNode, "node-1") // the hub compares nothing while the watch of the cluster fails
	expect("")
}

// counter is an HTTP transport that counts the requests by their paths.
type counter struct {
	http.RoundTripper
	mu    sync.Mutex
	calls map[string]int
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.calls[r.URL.Path]++
	c.mu.Unlock()
	return c.RoundTripper.RoundTrip(r)
}

func (c *counter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.calls
	c.calls = map[string]int{}
	return all
}

// visit acts as a viewer of a console for the duration d. It returns the text that the console
// streams at the path /console/scene.
func visit(ctx context.Context, c *console.Console, secret string, d time.Duration) string {
	ctx, leave := context.WithTimeout(ctx, d)
	defer leave()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/console/scene", nil)
	r.Header.Set("Authorization", "Bearer "+secret)
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w.Body.String()
}

// Without viewers, the hub makes no calls. It stops its watches 30 seconds after the last viewer
// has left, and starts new watches for the next viewer.
func TestNoCallsWithoutViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := cloudtest.Start(t, cloudtest.InBubble())
		secret := secretOf(t, cloud)
		calls := &counter{RoundTripper: cloud.HTTP.Transport, calls: map[string]int{}}
		hub := *cloud
		hub.Project, hub.HTTP = "*", &http.Client{Transport: calls}
		var clusters atomic.Int32
		c := console.New(slog.New(slog.DiscardHandler), console.Config{Cloud: &hub, Cluster: func(ctx context.Context, s console.Sink) {
			clusters.Add(1)
			defer clusters.Add(-1)
			s.State("")
			s.Put(console.KindNode, "node-1", console.Node{Name: "node-1"})
			<-ctx.Done()
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = c.Run(ctx) })
		idle := func() {
			t.Helper()
			if n := clusters.Load(); n != 0 {
				t.Errorf("%d watches of the cluster without viewers", n)
			}
			calls.take()
			time.Sleep(time.Hour)
			if made := calls.take(); len(made) > 0 {
				t.Errorf("calls in an hour without viewers: %v", made)
			}
		}
		idle()
		for range 2 {
			if lines := visit(ctx, c, secret, time.Second); !strings.HasPrefix(lines, `{"type":"delta"`) || !strings.Contains(lines, `"type":"snapshot"`) || !strings.Contains(lines, "sim-1a") || !strings.Contains(lines, "node-1") {
				t.Errorf("a viewer got no new snapshot of cloud and cluster: %s", lines)
			}
			if n := calls.take()["/v1/watch"]; n != 1 {
				t.Errorf("watches that the viewer started: got %d, want 1", n)
			}
			time.Sleep(20 * time.Second)
			lines := visit(ctx, c, secret, time.Second)
			if n := calls.take()["/v1/watch"]; !strings.HasPrefix(lines, `{"type":"snapshot"`) || n != 0 {
				t.Errorf("second viewer: got %d new watches and the lines %s, want no new watch and first a snapshot", n, lines)
			}
			time.Sleep(31 * time.Second)
			idle()
		}
		cancel()
		running.Wait()
	})
}

// The checksums of the vendored libraries are equal to those in the file SHA256SUMS.
func TestVendoredFiles(t *testing.T) {
	t.Parallel()
	sums, err := os.ReadFile("assets/vendor/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("assets/vendor")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Count(string(sums), "\n") + 2; len(entries) != want { // README.md and SHA256SUMS have no sum
		t.Errorf("got %d files, want %d", len(entries), want)
	}
	for line := range strings.Lines(string(sums)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		raw, err := os.ReadFile("assets/vendor/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if got := sha256.Sum256(raw); hex.EncodeToString(got[:]) != want {
			t.Errorf("%s does not have the checksum in SHA256SUMS", name)
		}
	}
}

// When a browser opens the console, it loads at most 80 KB. The server sends a
// Content-Security-Policy with each file.
func TestAssets(t *testing.T) {
	t.Parallel()
	url := start(t, cloudtest.Start(t), nil)
	total := 0
	for _, name := range []string{
		"", "console.css", "app.js", "store.js", "parts.js", "actions.js", "map.js", "tables.js", "object.js", "tools.js", "logs.js",
		"vendor/preact.js", "vendor/hooks.js", "vendor/htm.js", "vendor/htm-preact.js", "vendor/signals.js", "vendor/signals-core.js",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/console/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", "gzip")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		n, err := bufio.NewReader(resp.Body).WriteTo(discard{})
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s: got status %s, encoding %q, error %v; want 200 and gzip", name, resp.Status, resp.Header.Get("Content-Encoding"), err)
		}
		if p := resp.Header.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || !strings.Contains(p, "require-trusted-types-for 'script'") {
			t.Errorf("%s: got the Content-Security-Policy %q, want default-src 'none' and require-trusted-types-for 'script'", name, p)
		}
		total += int(n)
	}
	t.Logf("first load: %d bytes", total)
	if total > 80_000 {
		t.Errorf("first load: %d bytes, want at most 80000", total)
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
