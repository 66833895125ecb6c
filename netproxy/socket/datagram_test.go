package socket

import (
	"net"
	"testing"

	"google.golang.org/grpc/mem"
)

// TestRefusedDatagram proves that a refused datagram does not end a UDP connection. The system
// reports the refusal at the next write.
func TestRefusedDatagram(t *testing.T) {
	free, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.LocalAddr().String()
	free.Close()
	conn, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := NewWriter(conn)
	for range 5 {
		if err := w.Write(mem.BufferSlice{mem.SliceBuffer("x")}); err != nil {
			t.Errorf("got error %v, want none", err)
		}
	}
}
