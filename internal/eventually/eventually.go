// Package eventually waits in tests for conditions that depend on other
// goroutines or processes. Only tests use this package. The programs of this
// project wait on channels, watches and contexts instead.
package eventually

import "time"

const (
	// Timeout is the time after which this package fails a test if the condition
	// is still not true. It is long, because a machine under load may be slow.
	// Only a failed test waits for this time.
	Timeout = 2 * time.Minute

	interval = 5 * time.Millisecond
)

// T is the part of testing.TB that this package needs. testscript.TestScript
// also implements T.
type T interface {
	Fatalf(format string, args ...any)
}

// True calls conditionFn repeatedly until conditionFn returns true. After
// Timeout it fails the test with a message that contains the given text.
func True(t T, condition string, conditionFn func() bool) {
	helper(t)
	if !poll(conditionFn) {
		t.Fatalf("waited %s for: %s", Timeout, condition)
	}
}

// NoError calls tryFn repeatedly until tryFn returns nil. After Timeout it
// fails the test with a message that contains the given text and the last
// error.
func NoError(t T, condition string, tryFn func() error) {
	helper(t)
	var last error
	if !poll(func() bool { last = tryFn(); return last == nil }) {
		t.Fatalf("waited %s for: %s: %v", Timeout, condition, last)
	}
}

// Empty calls diffFn repeatedly until diffFn returns an empty text. After
// Timeout it fails the test with the last text.
func Empty(t T, diffFn func() string) {
	helper(t)
	var last string
	if !poll(func() bool { last = diffFn(); return last == "" }) {
		t.Fatalf("still after %s: %s", Timeout, last)
	}
}

func poll(condition func() bool) bool {
	for end := time.Now().Add(Timeout); !condition(); time.Sleep(interval) { //nolint:forbidigo // this package is the wait on a condition
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// helper calls the method Helper of t, if t has this method. A failure message
// then contains a line number of the test instead of a line number of this package.
func helper(t T) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
}
