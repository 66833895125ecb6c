//go:build !portable

package dataplane

import (
	"testing"
	"time"
)

// Time in which a stopped program did not run is no silence; time in which it
// slept for as long as it was to is.
func TestStoppedTimeIsLost(t *testing.T) {
	const slept = time.Minute
	for _, tc := range []struct {
		name    string
		allowed time.Duration
		passed  time.Duration
	}{
		{"it slept", slept, slept},
		{"it slept until something happened", never, slept},
		{"it was stopped", 0, 0},
		{"it was stopped in its sleep", slept / 4, slept / 4},
	} {
		l := &loop{now: time.Since(began) - slept}
		before := l.now
		l.tick(tc.allowed)
		if got := l.now - before; got < tc.passed || got > tc.passed+time.Second {
			t.Errorf("%s: %s passed, want %s", tc.name, got, tc.passed)
		}
		l.tick(0)
		if late := l.now - before - tc.passed; late > time.Second {
			t.Errorf("%s: the clock jumped by %s afterwards", tc.name, late)
		}
	}
}

// Few connections stay where they were taken in; many are shared.
func TestLoopsShare(t *testing.T) {
	f := &forwarder{}
	for range 3 {
		l, err := newLoop(f)
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		f.loops = append(f.loops, l)
	}
	home := f.home()
	for range 3 * 2 * spread {
		f.laziest(home).open.Add(1)
	}
	var open []int64
	for _, l := range f.loops {
		open = append(open, l.open.Load())
		if n := l.open.Load(); n < 2*spread-spread || n > 3*spread {
			t.Errorf("a loop has %d connections of %d", n, 3*2*spread)
		}
	}
	if open[0] < spread {
		t.Errorf("%v: the first few were handed over", open)
	}
	if next := f.home(); next == home {
		t.Error("two listeners have one home")
	}
}

// Numbers of what is watched survive the way through the kernel.
func TestEventNumbers(t *testing.T) {
	for _, id := range []uint64{0, 1, 1<<31 + 5, 1<<32 - 1, 1 << 32, 1<<63 + 7} {
		if got := number(*event(id, reads)); got != id {
			t.Errorf("%d came back as %d", id, got)
		}
	}
}
