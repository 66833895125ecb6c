package wire

import "testing"

// If the peer does not read its stream, the packets of Post use a limited amount of memory.
func TestOutboxBoundsPostedPackets(t *testing.T) {
	o := NewOutbox()
	for range 2 * maxPosted {
		o.Post(CloseRequest(1))
	}
	if n := len(o.posted); n != maxPosted {
		t.Errorf("%d packets wait, want %d", n, maxPosted)
	}
}
