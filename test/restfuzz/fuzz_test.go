package restfuzz

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

const (
	workers    = 3
	maxLatency = 10 * time.Second
	// minValid is the minimum share of request bodies that must pass the cloud's validation.
	minValid = 0.6
	// maxHeapGrowth is the maximum ratio of the second measured heap size to the first. The run
	// measures the heap after a fifth of the random requests, and again at its end. Before each
	// measurement, the run resets the cloud.
	maxHeapGrowth = 1.5
	// settleEvery is the number of requests between two calls of settle.
	settleEvery = 250
)

// TestREST sends random requests to a cloud. RESTFUZZ_REQUESTS sets the number of requests
// (default 10000), and RESTFUZZ_SEED sets the seed.
func TestREST(t *testing.T) {
	if testing.Short() {
		t.Skip("short mode: the test takes half a minute")
	}
	seed, requests := fromEnv(t, "RESTFUZZ_SEED", uint64(time.Now().UnixNano())), fromEnv(t, "RESTFUZZ_REQUESTS", 10_000)
	t.Logf("RESTFUZZ_SEED=%d RESTFUZZ_REQUESTS=%d", seed, requests)
	cloud := cloudtest.Start(t, cloudtest.WithConfig(func(c *engine.Config) { c.Registry, c.Meter = "127.0.0.1:5000", noTraffic{} }))
	r := &run{t: t, cloud: cloud, spec: readSpec(t), world: &world{ids: map[string][]string{}, ranges: map[string]string{}}, succeeded: map[string]bool{}, refused: map[string]string{}}
	r.secret, _ = r.cloud.Token() // reading the token of a test cloud cannot fail
	g := r.generator(seed)
	r.explore(g)
	r.sendRandom(seed, requests/5) // fills caches of a fixed size before the first heap measurement
	r.reset(g)
	before := heap()
	r.sendRandom(seed+workers, requests-requests/5)
	r.finish(g)
	r.reset(g)
	r.report(before)
}

// sendRandom sends random requests from all workers. Delete and reset requests are less frequent
// than other requests, so that the number of objects grows.
func (r *run) sendRandom(seed, requests uint64) {
	var sent atomic.Uint64
	var all sync.WaitGroup
	for n := range workers {
		g := r.generator(seed + uint64(n))
		all.Go(func() {
			for i := sent.Add(1); i <= requests && !r.t.Failed(); i = sent.Add(1) {
				if i%settleEvery == 0 {
					r.settle(g)
				}
				op := r.spec.operations[g.IntN(len(r.spec.operations))]
				for op.method == http.MethodDelete && g.chance(60) || op.id == "states.reset" && !g.chance(5) {
					op = r.spec.operations[g.IntN(len(r.spec.operations))]
				}
				r.send(g, op, g.chance(25))
			}
		})
	}
	all.Wait()
}

func fromEnv(t *testing.T, name string, fallback uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return fallback
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// heap returns the size of live objects in bytes.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // the first collection only queues finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// noTraffic reports traffic counters that are always zero. The run has no data plane, because the
// load balancers of a data plane would connect to random addresses.
type noTraffic struct{}

func (noTraffic) LoadBalancerStats(cloudsim.LoadBalancerID) (cloudsim.LoadBalancerStats, bool) {
	return cloudsim.LoadBalancerStats{}, true
}

// run is one execution of the fuzzer.
type run struct {
	t      *testing.T
	cloud  *client.Client
	secret string
	spec   spec
	world  *world

	mu             sync.Mutex
	bodies, valid  int
	answers        int
	slowest        time.Duration
	slowestRequest string
	succeeded      map[string]bool
	refused        map[string]string // the cloud's last refusal of each operation that has not succeeded, by operation id
}

func (r *run) generator(seed uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 1)), spec: r.spec, world: r.world}
}

// explore lists every collection, so that the generator knows the zones, types and regions of a new
// cloud.
func (r *run) explore(g *generator) {
	for _, op := range r.spec.operations {
		if op.method == http.MethodGet && op.path == "/v1/"+op.collection() {
			r.send(g, op, false)
		}
	}
}

// settle deletes faults and holds, and sets the clock to real time. Otherwise faults, holds and a
// stopped clock would make other requests fail.
func (r *run) settle(g *generator) {
	for _, id := range []string{"faults.list", "holds.list"} {
		r.send(g, r.operation(id), false)
	}
	for collection, id := range map[string]string{"faults": "faults.delete", "holds": "holds.delete"} {
		for range maxKept {
			if g.id(collection) == "unknown-1" {
				break
			}
			r.send(g, r.operation(id), false)
		}
	}
	r.exchange(g, request{op: r.operation("clock.set"), path: "/v1/clock", body: []byte(`{"real":true}`), contentType: "application/json"})
}

func (r *run) operation(id string) operation {
	i := slices.IndexFunc(r.spec.operations, func(o operation) bool { return o.id == id })
	if i < 0 {
		r.t.Fatalf("openapi.json has no operation %s", id)
	}
	return r.spec.operations[i]
}

func (r *run) reset(g *generator) {
	r.settle(g)
	r.exchange(g, request{op: r.operation("states.reset"), path: "/v1/states/reset"})
	r.explore(g)
}

// hold creates a hold for all operations. Then it sends requests that create instances. The hold
// keeps the operations of these requests open, so that later requests can release or cancel the
// operations.
func (r *run) hold(g *generator) {
	r.exchange(g, request{
		op: r.operation("holds.create"), path: "/v1/holds", contentType: "application/json",
		body: fmt.Appendf(nil, `{"name":%q,"kind":"*","verb":"*"}`, g.name()),
	})
	for range 10 {
		r.send(g, r.operation("instances.create"), false)
	}
	r.send(g, r.operation("operations.list"), false)
}

// sendNotices announces a maintenance and a preemption for one instance, and withdraws each notice.
func (r *run) sendNotices(g *generator) {
	path := "/v1/instances/" + g.id("instances") + "/notices"
	for _, kind := range []string{"maintenance", "preemption"} {
		r.exchange(g, request{
			op: r.operation("instances.announce"), path: path, contentType: "application/json",
			body: fmt.Appendf(nil, `{"type":%q,"inSeconds":60}`, kind),
		})
		r.exchange(g, request{op: r.operation("instances.withdraw"), path: path + "/" + kind})
	}
}

// finish sends valid requests for the API operations that have not succeeded yet. These operations
// may need objects that do not exist, so finish also creates objects of every kind.
func (r *run) finish(g *generator) {
	for range 60 {
		missing := slices.DeleteFunc(slices.Clone(r.spec.operations), func(o operation) bool { return r.succeeded[o.id] })
		if len(missing) == 0 || r.t.Failed() {
			return
		}
		r.reset(g) // removes old operations, because a list begins with the oldest operation
		r.hold(g)
		for range maxKept {
			r.send(g, r.operation("holds.release"), false)
			r.send(g, r.operation("operations.cancel"), false)
		}
		r.settle(g)
		for range 2 { // snapshots, for example, need the disks of the first pass
			for _, op := range r.spec.operations {
				if op.method == http.MethodPost && op.path == "/v1/"+op.collection() {
					r.send(g, op, false)
				}
			}
			r.waitForWork(g)
		}
		r.sendNotices(g)
		for _, op := range missing {
			for range 8 {
				r.send(g, op, false)
			}
		}
	}
}

// waitForWork waits until all operations have ended. Until then the cloud refuses many requests for
// the objects that these operations change.
func (r *run) waitForWork(g *generator) {
	r.settle(g) // a held operation does not end
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	operations, err := r.cloud.ListOperations(ctx, cloudsim.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range operations.Items {
		if _, err := r.cloud.WaitOperation(ctx, operations.Items[i].ID); err != nil && !errors.Is(err, cloudsim.NotFound) {
			r.t.Fatal(err)
		}
	}
}

func (r *run) send(g *generator, op operation, mutate bool) {
	r.exchange(g, g.request(op, mutate))
}

// exchange sends a request, checks the answer and remembers the objects in the answer.
func (r *run) exchange(g *generator, q request) {
	if q.op.id == "tokens.delete" && q.target == "tok-000001" {
		return // the run uses this token for its own requests
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, q.op.method, r.cloud.URL+q.path, bytes.NewReader(q.body))
	if err != nil {
		return // a mutated path that is not a URL
	}
	req.Header.Set("Authorization", "Bearer "+r.secret)
	req.Header.Set("Cloud-Project", string(r.cloud.Project))
	if q.op.collection() == "projects" {
		req.Header.Set("Cloud-Project", "*") // a request with one project cannot read other projects
	}
	if q.contentType != "" {
		req.Header.Set("Content-Type", q.contentType)
	}
	if q.op.method == http.MethodPost && g.chance(5) {
		req.Header.Set("Idempotency-Key", g.name())
	}
	began := time.Now()
	resp, err := r.cloud.HTTP.Do(req)
	if err != nil {
		r.t.Errorf("%s %s: %v; body %.300s", q.op.method, q.path, err, q.body)
		return
	}
	raw, err := io.ReadAll(resp.Body)
	took := time.Since(began)
	_ = resp.Body.Close()
	if err != nil {
		r.t.Errorf("%s %s: reading the answer: %v", q.op.method, q.path, err)
	}
	r.check(q, resp.StatusCode, raw, took)
	if resp.StatusCode < 300 {
		r.learn(q, raw)
	} else if resp.StatusCode == http.StatusNotFound && strings.HasSuffix(q.op.path, "}") && q.op.id != "instances.withdraw" {
		r.world.remove(q.op.collection(), q.target)
	}
}

func (r *run) check(q request, status int, raw []byte, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers++
	if status >= 500 {
		r.t.Errorf("%s %s: status %d: %.300s; body %.300s", q.op.method, q.path, status, raw, q.body)
	}
	if took > r.slowest {
		r.slowest, r.slowestRequest = took, fmt.Sprintf("%s %s, status %d", q.op.method, q.path, status)
	}
	if q.op.body != nil {
		r.bodies++
		if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
			r.valid++
		}
	}
	if status < 300 {
		r.succeeded[q.op.id] = true
	} else if !q.mutated {
		r.refused[q.op.id] = fmt.Sprintf("%d %.200s for %.200s", status, raw, q.body)
	}
}

// learn remembers the objects that an answer contains.
func (r *run) learn(q request, raw []byte) {
	collection := q.op.collection()
	switch {
	case q.op.id == "states.export":
		r.world.mu.Lock()
		r.world.state = raw
		r.world.mu.Unlock()
		return
	case q.op.method == http.MethodDelete && (q.op.path == "/v1/"+collection+"/{id}" || q.op.path == "/v1/"+collection+"/{name}"):
		r.world.remove(collection, q.target)
		return
	case q.op.id == "states.reset" || q.op.id == "states.load":
		r.world.mu.Lock()
		clear(r.world.ranges)
		for name := range r.world.ids {
			if name != "states" && name != "zones" && name != "regions" && name != "instance-types" && name != "disk-types" && name != "roles" {
				delete(r.world.ids, name)
			}
		}
		r.world.mu.Unlock()
		return
	}
	var answer struct {
		object
		Items []object
	}
	if json.Unmarshal(raw, &answer) != nil {
		return
	}
	for _, o := range append(answer.Items, answer.object) {
		if strings.HasPrefix(o.Operation, "op-") { // in the audit log, this field is the name of a request
			r.world.add("operations", o.Operation)
		}
		switch {
		case strings.HasPrefix(o.ID, "op-"):
			r.world.add("operations", o.ID)
		case o.ID != "":
			r.world.add(collection, o.ID)
		case o.Name != "": // states and types have a name but no id
			r.world.add(collection, o.Name)
		}
		if collection == "networks" && strings.HasPrefix(o.IPv4, "10.") && strings.HasSuffix(o.IPv4, ".0.0/16") {
			r.world.mu.Lock()
			r.world.ranges[o.ID] = o.IPv4
			r.world.mu.Unlock()
		}
	}
}

// object contains the resource fields that learn reads.
type object struct{ ID, Name, IPv4, Operation string }

func (r *run) report(before uint64) {
	t := r.t
	after := heap()
	for _, op := range r.spec.operations {
		if !r.succeeded[op.id] {
			t.Errorf("%s never succeeded; last refusal: %s", op.id, r.refused[op.id])
		}
	}
	share := float64(r.valid) / float64(max(1, r.bodies))
	t.Logf("%d answers; %.0f %% of %d bodies passed validation; slowest %s (%s); heap %.1f MiB before, %.1f MiB after",
		r.answers, 100*share, r.bodies, r.slowest.Round(time.Millisecond), r.slowestRequest, float64(before)/(1<<20), float64(after)/(1<<20))
	if share < minValid {
		t.Errorf("only %.0f %% of the bodies passed validation, want at least %.0f %%", 100*share, 100*minValid)
	}
	if r.slowest > maxLatency {
		t.Errorf("%s took %s, want at most %s", r.slowestRequest, r.slowest, maxLatency)
	}
	if ratio := float64(after) / float64(before); ratio > maxHeapGrowth {
		t.Errorf("the heap grew to %.2f of its size before the run, want at most %.2f", ratio, maxHeapGrowth)
	}
}
