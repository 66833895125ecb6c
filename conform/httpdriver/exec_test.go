package httpdriver

import (
	"bytes"
	"io"
	"testing"
)

// TestLimitedBuffer copies a long output to a limitedBuffer, as os/exec does. The buffer accepts
// all bytes, but does not keep the bytes beyond the limit.
func TestLimitedBuffer(t *testing.T) {
	const long = maxBody + 1000
	var l limitedBuffer
	n, err := io.Copy(&l, bytes.NewReader(make([]byte, long)))
	if n != long || err != nil || l.kept.Len() != maxBody+1 {
		t.Errorf("got %d bytes written and %d kept, error %v; want %d written and %d kept", n, l.kept.Len(), err, long, maxBody+1)
	}
}
