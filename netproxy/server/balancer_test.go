package server_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// balancer starts a load balancer. The load balancer forwards each connection
// to the next address from the channel addrs, and puts this address back at the
// end of the channel.
func balancer(t testing.TB, addrs chan string) (addr string) {
	return target(t, func(c *net.TCPConn) {
		to := <-addrs
		addrs <- to
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer up.Close()
		var back sync.WaitGroup
		back.Go(func() { _, _ = io.Copy(c, up); c.Close() })
		_, _ = io.Copy(up, c)
		up.Close()
		back.Wait()
	})
}
