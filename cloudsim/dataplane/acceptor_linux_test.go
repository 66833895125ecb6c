package dataplane_test

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
)

// A machine that is out of descriptors is waited for: who came meanwhile is
// served when there are some again, and what he said is heard and counted.
func TestAcceptFailureIsOutlived(t *testing.T) {
	f := newFleet(t, 1, each(echo))
	f.lb.HealthCheck = cloudsim.HealthCheck{Protocol: cloudsim.HealthNone}
	f.cloud.putLB(f.lb)
	log := make(warnings, 10)
	counters := dataplane.NewCounters()
	runLogged(t, slog.NewTextHandler(log, nil), f.cloud, dataplane.Config{Counters: counters})
	f.cloud.await(t, lbID, ready)
	free := takeDescriptors(t)
	free(1) // the client's own
	c := dial(t, f.address())
	if line := <-log; !strings.Contains(line, "cannot accept connections") || !strings.Contains(line, syscall.EMFILE.Error()) {
		t.Errorf("it says %q", line)
	}
	if _, err := io.WriteString(c, "early\n"); err != nil {
		t.Fatal(err)
	}
	free(100)
	if got := c.line(); got != "early" {
		t.Errorf("the echo is %q", got)
	}
	dial(t, f.address()).alive()
	if s, _ := counters.LoadBalancerStats(lbID); s.Targets[0].BytesIn != uint64(len("early\nping\n")) {
		t.Errorf("counted %d bytes", s.Targets[0].BytesIn)
	}
	if len(log) > 0 {
		t.Errorf("it says again: %q", <-log)
	}
}

// warnings are the lines of a log that warn.
type warnings chan string

func (w warnings) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "level=WARN") {
		w <- string(line)
	}
	return len(line), nil
}

// takeDescriptors leaves this process none, until they are freed or the test
// ends.
func takeDescriptors(t *testing.T) (free func(n int)) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = min(limit.Cur, 1000)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	var taken []*os.File
	free = func(n int) {
		for ; n > 0 && len(taken) > 0; n-- {
			taken[len(taken)-1].Close()
			taken = taken[:len(taken)-1]
		}
	}
	t.Cleanup(func() {
		free(len(taken))
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	})
	for {
		file, err := os.Open(os.DevNull)
		if err != nil {
			return free
		}
		taken = append(taken, file)
	}
}
