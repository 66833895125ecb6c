package wire

import (
	"errors"
	"testing"
)

// At most maxPosted packets from Post wait for Run. If Post has dropped a packet because of this
// limit, Run returns errFull.
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
