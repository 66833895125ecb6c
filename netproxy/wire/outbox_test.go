package wire

import (
	"errors"
	"testing"
)

// If the peer does not read its stream, only a limited number of packets from Post wait. If Post
// has no space for a packet, Run returns an error.
func TestOutboxBoundsPostedPackets(t *testing.T) {
	o := NewOutbox()
	for range 2 * maxPosted {
		o.Post(CloseRequest(1))
	}
	if n := len(o.posted); n != maxPosted {
		t.Errorf("%d packets wait, want %d", n, maxPosted)
	}
	err := o.Run(t.Context(), func(*Packet) error { return nil })
	if !errors.Is(err, errFull) {
		t.Errorf("Run: got error %v, want %v", err, errFull)
	}
}
