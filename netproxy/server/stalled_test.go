package server_test

import (
	"net"
	"strings"
	"testing"
	"time"
)

// stallUpload opens a connection to a target that does not read. stallUpload sends data until
// all buffers on the way to the target are full. If floods is true, the target also fills the
// buffers on the way to the client. The function leave disconnects the client without a CLOSE_REQ.
// The function read makes the target close its socket.
func stallUpload(t *testing.T, b *bench, frontend string, floods bool) (leave, read func()) {
	t.Helper()
	stop := make(chan struct{})
	addr := target(t, func(c *net.TCPConn) {
		for floods {
			if _, err := c.Write(make([]byte, 64<<10)); err != nil {
				break
			}
		}
		<-stop
	})
	var write func() error
	if frontend == "grpc" {
		s, cancel := rawStream(t, "unix://"+b.grpc, "/ProxyService/Proxy")
		if err := s.SendMsg(dialReq(7, addr)); err != nil {
			t.Fatal(err)
		}
		packet := data(recvPacket(t, s).GetDialResponse().GetConnectID(), strings.Repeat("x", 64<<10))
		leave, write = cancel, func() error { return s.SendMsg(packet) }
	} else {
		c := mustDial(t, dialer{frontend, b.dialConnect}, addr)
		leave, write = func() { c.Close() }, func() error { _, err := c.Write(make([]byte, 64<<10)); return err }
	}
	go func() {
		for write() == nil {
		}
	}()
	b.await("the upload to stall", func() bool {
		before := b.server.Status().Connections
		time.Sleep(200 * time.Millisecond)
		after := b.server.Status().Connections
		return len(before) == 1 && len(after) == 1 && before[0].ToTarget > 0 && before[0].ToTarget == after[0].ToTarget &&
			before[0].FromTarget == after[0].FromTarget && floods == (before[0].FromTarget > 0)
	})
	return leave, func() { close(stop) }
}

// After the drain timeout, the server stops, even if a target does not read the data of its
// client.
func TestServerStopsDespiteStalledTarget(t *testing.T) {
	for _, frontend := range []string{"grpc", "http-connect"} {
		t.Run(frontend, func(t *testing.T) {
			b := newBench(t)
			b.agent("one")
			_, read := stallUpload(t, b, frontend, false)
			defer read()
			began := time.Now()
			if err := b.stop(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > testTimeout/3 {
				t.Errorf("the stop took %s with a drain timeout of 0s, want about 1s", took)
			}
		})
	}
}
