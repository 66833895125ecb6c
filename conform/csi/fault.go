package csi

import (
	"context"
	"errors"
	"sync"

	"github.com/cloudsim-dev/allinone/conform"
)

// maxCrashes is the maximum number of crashes in one RPC. In the mode Crash, the driver crashes at
// the first call to the cloud in the first attempt, at the second call in the second attempt, and
// so on. A driver that polls the cloud can make many calls in each attempt. Without this limit,
// this driver could crash in every attempt, and the RPC would never succeed.
const maxCrashes = 20

// faultSelector chooses which of the driver's calls to the cloud get a fault. The forwarder sends
// an RPC to the driver, and the driver then calls the cloud. If this attempt of the RPC fails
// because of a fault, the forwarder begins another attempt.
type faultSelector struct {
	mode Mode
	kill func() error

	mu      sync.Mutex // protects all fields below
	running bool       // true during an attempt
	attempt int
	calls   int             // number of calls in this attempt
	seen    map[string]bool // names of calls whose reply was lost during this RPC
	pending sync.WaitGroup  // disturbed calls for which killDriver has not returned yet
	hit     bool            // true if a fault has disturbed this attempt
	err     error           // errors that the function kill returned
	total   int             // number of disturbed calls
}

func newFaults(m Mode, kill func() error) *faultSelector {
	return &faultSelector{mode: m, kill: kill, seen: map[string]bool{}}
}

// begin begins an attempt. The first attempt of an RPC has the number 1.
func (f *faultSelector) begin(attempt int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if attempt == 1 {
		clear(f.seen)
	}
	f.running, f.attempt, f.calls, f.hit = true, attempt, 0, false
}

// end finishes an attempt. The result hit reports whether a fault has disturbed the attempt. In the
// mode Crash, killDriver kills the driver during each disturbed call. So this method waits until
// all calls of killDriver have returned. If ctx ends earlier, or if killDriver has failed, this
// method returns an error.
func (f *faultSelector) end(ctx context.Context) (hit bool, err error) {
	f.mu.Lock()
	f.running = false
	f.mu.Unlock()
	done := make(chan struct{})
	go func() { f.pending.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return false, errors.New("the cloud does not answer a call of the driver")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit, f.err
}

func (f *faultSelector) choose(name string, writes bool) conform.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.running {
		return conform.Fault{}
	}
	f.calls++
	switch f.mode {
	case Sanity:
		return conform.Fault{}
	case LostReply:
		if !writes || f.seen[name] {
			return conform.Fault{}
		}
		f.seen[name] = true
	case Crash:
		if f.calls != f.attempt || f.attempt > maxCrashes {
			return conform.Fault{}
		}
	}
	f.hit = true
	f.total++
	f.pending.Add(1)
	return conform.Fault{Kind: conform.FaultLoseReply}
}

// killDriver kills the driver in the mode Crash. The proxy calls killDriver for each disturbed
// call, after the cloud has executed the call. The proxy then drops the cloud's reply, so the
// driver never gets the reply.
func (f *faultSelector) killDriver() {
	defer f.pending.Done()
	if f.mode != Crash {
		return
	}
	err := f.kill()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = errors.Join(f.err, err)
}

func (f *faultSelector) disturbedCalls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total
}
