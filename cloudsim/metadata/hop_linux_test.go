package metadata_test

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
)

// TestRepliesCrossNoRouter proves that replies have a TTL of 1. A caller that accepts only
// packets with a TTL of at least 1 can connect. A caller that accepts only packets with a
// TTL of at least 2 cannot connect.
func TestRepliesCrossNoRouter(t *testing.T) {
	address := strings.TrimPrefix(serve(t, nil, metadata.Config{Instance: cloudsim.InstanceID("i-000001")}), "http://")
	dial := func(minTTL int, timeout time.Duration) error {
		d := net.Dialer{Timeout: timeout, Control: func(_, _ string, c syscall.RawConn) (err error) {
			bad := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MINTTL, minTTL) })
			if bad != nil {
				return bad
			}
			return err
		}}
		d.SetMultipathTCP(false)
		conn, err := d.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := dial(1, time.Minute); err != nil {
		t.Fatalf("dial with one hop: got error %v", err)
	}
	if err := dial(2, 500*time.Millisecond); err == nil {
		t.Error("dial that accepts only packets with a TTL of at least 2: got a connection, want none")
	}
}
