package dataplane_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// If the process has no free file descriptors, the data plane logs the error once and tries again.
// If a client connects while there are no free descriptors, the data plane accepts the connection
// later. The data plane then also forwards and counts the bytes that the client has already sent.
func TestAcceptContinuesAfterFailure(t *testing.T) {
	percent := debug.SetGCPercent(-1) // the garbage collector would close splice pipes of earlier tests, which would free descriptors
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	f := newFleet(t, 1, each(echo))
	f.lb.HealthCheck = cloudsim.HealthCheck{Protocol: cloudsim.HealthNone}
	f.cloud.putLB(f.lb)
	log := make(warnings, 10)
	counters := dataplane.NewCounters()
	runLogged(t, slog.NewTextHandler(log, nil), f.cloud, dataplane.Config{Counters: counters})
	f.cloud.await(t, lbID, unreadyReason)
	dial(t, f.address()).checkEcho() // this connection stays open, so that it frees no descriptor during the test
	second, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	other := os.NewFile(uintptr(second), "a client")
	t.Cleanup(func() { other.Close() })
	giveOne, giveAll := takeDescriptors(t)
	giveOne() // frees one descriptor for the socket of the test's client
	c := dial(t, f.address())
	if err := syscall.Connect(second, &syscall.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(f.lb.IP).As4()}); err != nil {
		t.Fatal(err)
	}
	if line := <-log; !strings.Contains(line, "cannot accept connections") || !strings.Contains(line, syscall.EMFILE.Error()) {
		t.Errorf("log line %q, want cannot accept connections", line)
	}
	if _, err := io.WriteString(c, "early\n"); err != nil {
		t.Fatal(err)
	}
	giveAll()
	if got := c.line(); got != "early" {
		t.Errorf(`echo: got %q, want "early"`, got)
	}
	pong := make([]byte, len("ping\n"))
	if _, err := other.WriteString("ping\n"); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(other, pong); err != nil {
		t.Error(err)
	}
	eventually.Empty(t, func() string {
		if s, _ := counters.LoadBalancerStats(lbID); s.Targets[0].BytesIn != uint64(len("ping\nearly\nping\n")) {
			return fmt.Sprintf("counted %d bytes", s.Targets[0].BytesIn)
		}
		return ""
	})
	if len(log) > 0 {
		t.Errorf("got the second log line %q, want one line", <-log)
	}
}
