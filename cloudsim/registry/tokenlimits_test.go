package registry

import (
	"fmt"
	"testing"
	"time"
)

// TestTokenLimits proves that a client can send the next request after the returned waiting time.
// The test also proves that waitTime deletes only limiters that allow a whole burst. Therefore a
// client that has used its burst keeps its limiter, and does not get a new burst.
func TestTokenLimits(t *testing.T) {
	l := tokenLimits{perSecond: 0.5, burst: 2}
	now := time.Unix(0, 0)
	for range l.burst {
		if wait := l.waitTime("busy", now); wait != 0 {
			t.Fatalf("request of the burst: got a wait of %s", wait)
		}
	}
	for n := range maxLimiters {
		l.waitTime(fmt.Sprint("other ", n), now.Add(-time.Hour)) // this limiter is full at the time now
	}
	l.waitTime("new", now)
	if len(l.of) != 2 {
		t.Errorf("got %d limiters, want only those of the clients busy and new", len(l.of))
	}
	if wait := l.waitTime("busy", now); wait != 2*time.Second {
		t.Errorf("request after the burst: got a wait of %s, want 2s", wait)
	}
	if wait := l.waitTime("busy", now.Add(2*time.Second)); wait != 0 {
		t.Errorf("request after the wait: got a wait of %s", wait)
	}
}
