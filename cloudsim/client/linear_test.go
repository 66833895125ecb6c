package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestLinearizable proves that the API is linearizable. Many callers create, read, change and
// delete the same few load balancers, and some answers are lost. The checker must find one order of
// the calls that explains all answers. In this order, each call takes effect at one instant between
// its start and its end. If the answer of a call is lost, the call takes effect once at any time
// after its start, or it has no effect.
func TestLinearizable(t *testing.T) {
	calls := 2000
	if testing.Short() {
		calls = 400
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := cloudtest.Start(t)
	var history []porcupine.Operation
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now()
	for n := range 8 {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		k := &caller{c: *c}
		http := *c.HTTP
		http.Transport = losingTransport{http.Transport, rng}
		k.c.HTTP = &http
		wg.Go(func() {
			for range calls / 8 {
				in := k.choose(rng)
				op := porcupine.Operation{ClientId: n, Input: in, Call: int64(time.Since(begin))}
				out := k.do(t, in)
				op.Output, op.Return = out, int64(time.Since(begin))
				if out.err == cloudsim.Unavailable {
					op.Return = math.MaxInt64
				}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	checkLinearizable(t, history)
	// The checker must also find errors. The test therefore changes one answer of the history.
	// The checker must then find no order of the calls that explains all answers.
	for i, op := range history {
		if out := op.Output.(output); op.Input.(input).verb == "read" && out.err == 0 && out.port != 0 {
			out.port += 100
			history[i].Output = out
			break
		}
	}
	if model := registerModel(); porcupine.CheckOperationsTimeout(model, history, time.Minute) != porcupine.Illegal {
		t.Error("the checker accepts a wrong answer")
	}
}

func checkLinearizable(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	kinds := map[string]int{}
	for _, op := range history {
		kinds[op.Input.(input).verb+" "+op.Output.(output).err.Error()]++
	}
	t.Logf("%v", kinds) // "internal" means success here, because the kind 0 has this name; after an internal error, caller.do fails the test
	if result := porcupine.CheckOperationsTimeout(registerModel(), history, time.Minute); result != porcupine.Ok {
		t.Fatalf("%d calls are not linearizable: %v", len(history), result)
	}
}

// losingTransport is a transport that sometimes loses a call, or the answer to a call.
type losingTransport struct {
	next http.RoundTripper
	rng  *rand.Rand
}

func (l losingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	switch l.rng.IntN(25) {
	case 0:
		return nil, errors.New("the call is lost")
	case 1:
		if resp, err := l.next.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
		}
		return nil, errors.New("the answer is lost")
	}
	return l.next.RoundTrip(r)
}

// input is a call for the load balancer with the given name. An update or a delete contains the id
// from the caller's last answer for this name.
type input struct {
	name, verb string
	id         cloudsim.LoadBalancerID
	rev        uint64 // If-Match; 0: none
	port       int
}

// output is an answer. The field err is 0 for success, and Unavailable if the call or its answer
// was lost. Otherwise it is the kind of the error in the answer.
type output struct {
	err  cloudsim.Kind
	id   cloudsim.LoadBalancerID
	rev  uint64
	port int
}

// caller is a client that stores the last answer for each name.
type caller struct {
	c    client.Client
	seen [3]output
}

func (k *caller) choose(rng *rand.Rand) input {
	n := rng.IntN(len(k.seen))
	in := input{name: fmt.Sprint("key-", n), verb: "read", port: 80 + rng.IntN(5)}
	seen := k.seen[n]
	switch v := rng.IntN(8); {
	case v < 2 || seen.id == "" && v < 6:
		in.verb = "create"
	case v < 5 && seen.id != "":
		in.verb, in.id = "update", seen.id
		if rng.IntN(3) > 0 {
			in.rev = seen.rev
		}
	case v == 5 && seen.id != "":
		in.verb, in.id = "delete", seen.id
	}
	return in
}

func (k *caller) do(t *testing.T, in input) output {
	spec := cloudsim.LoadBalancerSpec{
		Listeners:   []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: in.port, TargetPort: 30080}},
		HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP},
	}
	ctx := context.Background()
	var l cloudsim.LoadBalancer
	var err error
	switch in.verb {
	case "create":
		l, err = k.c.CreateLoadBalancer(ctx, cloudsim.CreateLoadBalancer{Name: in.name, Region: "sim-1", LoadBalancerSpec: spec})
	case "update":
		l, err = k.c.UpdateLoadBalancer(ctx, in.id, cloudsim.UpdateLoadBalancer{LoadBalancerSpec: spec}, in.rev)
	case "delete":
		_, err = k.c.DeleteLoadBalancer(ctx, in.id)
	default:
		var page cloudsim.List[cloudsim.LoadBalancer]
		if page, err = k.c.ListLoadBalancers(ctx, cloudsim.ListOptions{Name: in.name}); len(page.Items) > 0 {
			l = page.Items[0]
		}
	}
	if err != nil {
		if cloudsim.KindOf(err) == cloudsim.Internal {
			t.Errorf("%+v: got the internal error %v", in, err)
		}
		return output{err: cloudsim.KindOf(err)}
	}
	out := output{id: l.ID, rev: l.Revision}
	if len(l.Listeners) > 0 {
		out.port = l.Listeners[0].Port
	}
	k.seen[in.name[len(in.name)-1]-'0'] = out
	return out
}

// register is the state that the model expects for the load balancer with a given name. If an
// answer was lost, the new id or revision is unknown until the next answer. An unknown id is "?",
// and an unknown revision is 0.
type register struct {
	exists bool
	id     cloudsim.LoadBalancerID
	rev    uint64
	after  uint64 // the unknown revision is greater than this value
	port   int
}

const unknownID cloudsim.LoadBalancerID = "?"

// bind fills in an unknown id or revision from an answer. It returns false if the answer
// contradicts the known state.
func (b register) bind(id cloudsim.LoadBalancerID, rev uint64) (register, bool) {
	if !b.exists || b.id != unknownID && b.id != id || b.rev != 0 && b.rev != rev || rev <= b.after {
		return b, false
	}
	b.id, b.rev = id, rev
	return b, true
}

func registerModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{register{}} },
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byName := map[string][]porcupine.Operation{}
			for _, op := range history {
				name := op.Input.(input).name
				byName[name] = append(byName[name], op)
			}
			var all [][]porcupine.Operation
			for _, ops := range byName {
				all = append(all, ops)
			}
			return all
		},
		Step: func(s, in, out any) []any {
			var all []any
			for _, next := range step(s.(register), in.(input), out.(output)) {
				all = append(all, next)
			}
			return all
		},
	}
	return m.ToModel()
}

// step returns the possible states after a call with the given answer. It returns an empty list if
// the answer is impossible.
func step(b register, in input, out output) []register {
	if out.err == cloudsim.Unavailable {
		return append(statesAfterLoss(b, in), b)
	}
	one := func(next register, ok bool) []register {
		if !ok {
			return nil
		}
		return []register{next}
	}
	mine := b.exists && (b.id == in.id || b.id == unknownID)
	switch {
	case in.verb == "read" && out.id == "":
		return one(b, !b.exists)
	case in.verb == "read", in.verb == "create" && b.exists && out.err == 0:
		next, ok := b.bind(out.id, out.rev)
		return one(next, ok && b.port == out.port && (in.verb == "read" || in.port == b.port))
	case in.verb == "create" && out.err == cloudsim.Exists:
		return one(b, b.exists && b.port != in.port)
	case in.verb == "create":
		return one(register{exists: true, id: out.id, rev: out.rev, after: b.after, port: in.port}, out.err == 0 && out.rev > b.after)
	case out.err == cloudsim.NotFound:
		return one(b, !b.exists || b.id != in.id)
	case out.err == cloudsim.Stale:
		return one(b, mine && in.rev != 0 && b.rev != in.rev)
	case out.err != 0 || !mine:
		return nil
	case in.verb == "delete":
		return one(register{after: max(b.after, b.rev)}, true)
	}
	if in.rev != 0 {
		var ok bool
		if b, ok = b.bind(in.id, in.rev); !ok {
			return nil
		}
	}
	if in.port == b.port { // no change
		return one(b.bind(in.id, out.rev))
	}
	return one(register{exists: true, id: in.id, rev: out.rev, after: max(b.after, b.rev), port: in.port}, out.rev > max(b.after, b.rev))
}

// statesAfterLoss assumes that the cloud changed the object, but that the answer of the call was
// lost. It returns the possible new states, or nil if the call cannot change the object.
func statesAfterLoss(b register, in input) []register {
	after := max(b.after, b.rev)
	mine := b.exists && (b.id == in.id || b.id == unknownID)
	switch {
	case in.verb == "create" && !b.exists:
		return []register{{exists: true, id: unknownID, after: after, port: in.port}}
	case in.verb == "delete" && mine:
		return []register{{after: after}}
	case in.verb == "update" && mine && in.port != b.port && (in.rev == 0 || b.rev == 0 || b.rev == in.rev):
		return []register{{exists: true, id: in.id, after: max(after, in.rev), port: in.port}}
	}
	return nil
}
