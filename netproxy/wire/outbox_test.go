package wire

import (
	"errors"
	"testing"
)

// If the peer does not read its stream, the packets of Post use a limited amount of memory. When
// they have used this amount, the stream ends with an error.
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
