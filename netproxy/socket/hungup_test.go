package socket_test

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/netproxy/socket"
)

// HungUp detects that the peer has disconnected, even if the peer's data are unread. A peer that
// has ended only its own direction is still connected.
func TestHungUp(t *testing.T) {
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "sock")} {
		t.Run(network, func(t *testing.T) {
			ln, err := net.Listen(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			peer, err := net.Dial(network, ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			conn, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			wrapped := tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS13})
			check := func(state string, want bool) {
				t.Helper()
				for range 100 {
					if socket.HungUp(conn) == want && socket.HungUp(wrapped) == want {
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
				t.Errorf("%s: HungUp did not return %t", state, want)
			}
			check("connected", false)
			if _, err := peer.Write([]byte("unread")); err != nil {
				t.Fatal(err)
			}
			if err := socket.CloseWrite(peer); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
			check("the peer has ended its direction", false)
			socket.Abort(peer)
			check("the peer has disconnected", true)
			conn.Close()
			check("closed", true)
		})
	}
}
