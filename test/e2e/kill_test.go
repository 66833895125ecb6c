package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

var killSeed = flag.Uint64("kill-seed", 0, "TestKill: repeat the run of this seed; 0 for a new one")

// TestKill kills a cloud under load many times, at random times. After a restart, the cloud has
// all acknowledged changes and no incomplete changes. It continues its unfinished operations, and
// clients can resume their watches.
func TestKill(t *testing.T) {
	kills := 200
	if testing.Short() {
		kills = 12
	}
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -kill-seed=%d", seed)
	v := &victim{t: t, dir: t.TempDir(), ledger: newLedger(), rng: rand.New(rand.NewPCG(seed, 0))}
	for w := range 4 {
		v.writers = append(v.writers, &writer{v: v, n: w, rng: rand.New(rand.NewPCG(seed, uint64(w)+1)), deleteSent: map[string]bool{}})
	}
	for v.kills < kills && !t.Failed() {
		if v.rng.IntN(6) == 0 {
			v.stillborn()
		} else {
			v.killBusy()
		}
		v.kills++
		if err := v.ledger.auditFile(v.dir); err != nil {
			t.Fatalf("after %d kills: %v", v.kills, err)
		}
		if v.kills%20 == 0 || v.kills == kills {
			v.killIdle()
		}
	}
	t.Logf("%d kills; the journal is at revision %d; %d answers, %d unknown, %d refusals", v.kills, v.ledger.checked, v.answers, v.unknown, len(v.ledger.refused))
	if v.answers == 0 || v.unknown == 0 {
		t.Errorf("got %d answers and %d calls without an answer, want both more than 0", v.answers, v.unknown)
	}
}

// victim is a cloud that the test kills and starts again. Each new process uses the folder of the
// killed process.
type victim struct {
	t       *testing.T
	dir     string
	ledger  *ledger
	rng     *rand.Rand
	writers []*writer
	breaks  sync.Once
	kills   int
	answers int // guarded by ledger.mu
	unknown int // guarded by ledger.mu

	cmd    *exec.Cmd
	args   []string // additional arguments of the cloud
	stderr bytes.Buffer
}

func (v *victim) start() {
	allinone, err := program()
	if err != nil {
		v.t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(v.dir, "url"))
	v.stderr.Reset()
	v.cmd = exec.Command(allinone, append([]string{"cloudsim", "--listen", "127.0.0.1:0", "--data-dir", v.dir,
		"--ready-file", filepath.Join(v.dir, "url"), "--journal-keep", "20000", "--network-ranges", "10.0.0.0/8"}, v.args...)...)
	v.cmd.Stderr = &v.stderr
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
}

// kill sends SIGKILL and returns when the process has ended.
func (v *victim) kill() {
	v.t.Helper()
	_ = v.cmd.Process.Kill()
	if err := v.cmd.Wait(); v.cmd.ProcessState.Exited() {
		v.t.Fatalf("the cloud ended without a signal: %v\n%s", err, v.stderr.String())
	}
}

// client waits until the cloud is ready, and returns a client.
func (v *victim) client() *client.Client {
	v.t.Helper()
	var raw []byte
	for end := time.Now().Add(time.Minute); !bytes.HasSuffix(raw, []byte("\n")); time.Sleep(2 * time.Millisecond) {
		if raw, _ = os.ReadFile(filepath.Join(v.dir, "url")); time.Now().After(end) {
			v.kill()
			v.t.Fatalf("the cloud did not start:\n%s", v.stderr.String())
		}
	}
	return &client.Client{
		URL: strings.TrimSpace(string(raw)), Token: client.TokenFile(filepath.Join(v.dir, "admin.token")),
		HTTP: &http.Client{Timeout: 20 * time.Second, Transport: requestIDTransport{&http.Transport{}}},
	}
}

// stillborn kills the cloud while the cloud starts.
func (v *victim) stillborn() {
	v.start()
	<-time.After(time.Duration(v.rng.IntN(120)) * time.Millisecond)
	v.kill()
}

// killBusy kills the cloud while the cloud serves four writers and a watcher.
func (v *victim) killBusy() {
	v.start()
	c := v.client()
	ctx, cancel := context.WithCancel(v.t.Context())
	defer cancel()
	v.breaks.Do(func() { v.breakCalls(ctx, c) }) // the faults survive a restart of the cloud
	var wg sync.WaitGroup
	wg.Go(func() { v.readEvents(ctx, c, 0) })
	for _, w := range v.writers {
		wg.Go(func() { w.work(ctx, c) })
	}
	<-time.After(time.Duration(v.rng.IntN(250)) * time.Millisecond)
	v.kill()
	cancel()
	wg.Wait()
	c.HTTP.CloseIdleConnections()
}

// killIdle waits until the cloud has finished all operations. Then it kills the idle cloud and
// checks the data file. The test fails if an operation stays open or if the watcher misses an
// event.
func (v *victim) killIdle() {
	v.start()
	c := v.client()
	ctx, cancel := context.WithTimeout(v.t.Context(), 2*time.Minute)
	defer cancel()
	ops, rev, err := cloudsim.All(ctx, c.ListOperations, cloudsim.ListOptions{Limit: cloudsim.MaxPageSize})
	for _, op := range ops {
		for now := op; err == nil && !now.Over(); {
			if now, err = c.WaitOperation(ctx, op.ID); err != nil {
				v.t.Errorf("after %d kills: operation %s (%s of %s) remains in the state %s", v.kills, op.ID, op.Verb, op.Target, op.State)
			}
		}
	}
	if err != nil {
		v.t.Errorf("after %d kills: %v", v.kills, err)
	}
	v.readEvents(ctx, c, rev)
	v.kill()
	c.HTTP.CloseIdleConnections()
	if err := v.ledger.auditFile(v.dir); err != nil {
		v.t.Fatalf("after %d kills and the last checks: %v", v.kills, err)
	}
	if v.ledger.lastRev < rev {
		v.t.Errorf("the watcher received events up to revision %d of %d", v.ledger.lastRev, rev)
	}
}

// readEvents reads events, beginning after the last received event. The method ends when the test
// kills the cloud. If lastRevision is not 0, the method also ends after the event with this
// revision.
func (v *victim) readEvents(ctx context.Context, c *client.Client, lastRevision uint64) {
	if lastRevision != 0 && v.ledger.lastRev >= lastRevision {
		return
	}
	for e, err := range c.Watch(ctx, cloudsim.WatchOptions{Since: v.ledger.lastRev}) {
		if errors.Is(err, cloudsim.Unavailable) || errors.Is(err, context.Canceled) {
			return // the test has killed the cloud, and may have cancelled ctx before the connection broke
		}
		if err == nil {
			err = v.ledger.hear(e)
		}
		if err != nil {
			v.t.Errorf("after %d kills: %v", v.kills, err)
			return
		}
		if lastRevision != 0 && e.Rev >= lastRevision {
			return
		}
	}
}

// requestIDTransport reads a request id from the context of a request, and adds this id to the
// request's headers. With this id, the test finds the request's events in the journal.
type requestIDTransport struct{ next *http.Transport }

type signKey struct{}

func (s requestIDTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if id, ok := r.Context().Value(signKey{}).(string); ok {
		r = r.Clone(r.Context())
		r.Header.Set("X-Request-Id", id)
	}
	return s.next.RoundTrip(r)
}

func (s requestIDTransport) CloseIdleConnections() { s.next.CloseIdleConnections() }

// errDead is the error of a request with an unknown result: the cloud may or may not have carried
// out the request. The result is unknown if the test killed the cloud or if a fault affected the
// call.
var errDead = errors.New("no answer")

// say makes a request, and records the answer or the refusal in the ledger. If the result is
// unknown, say returns errDead.
func say[T cloudsim.Resource](ctx context.Context, w *writer, kind cloudsim.ResourceKind, id func(T) string, do func(context.Context) (T, error)) (T, error) {
	w.requests++
	request := fmt.Sprintf("writer-%d-%d", w.n, w.requests)
	out, err := do(context.WithValue(ctx, signKey{}, request))
	l := w.v.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, cloudsim.Unavailable), errors.Is(err, context.Canceled):
		w.v.unknown++
		return out, errDead
	case err != nil:
		if cloudsim.KindOf(err) == cloudsim.Internal {
			w.v.t.Errorf("%s: %v", request, err)
		}
		l.refused[request] = true
		return out, err
	}
	w.v.answers++
	a := ack{request: request, kind: kind, id: id(out), rev: out.Head().Revision}
	if a.rev != 0 {
		a.object, _ = json.Marshal(out)
	}
	l.acks = append(l.acks, a)
	return out, nil
}
