package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUpWithANodeThatIsNotReady proves that `allinone up` fails if a node does not become Ready in
// time. The error contains the reason, and the lab keeps running. After the cause is gone, the lab
// reports that all nodes are Ready.
func TestUpWithANodeThatIsNotReady(t *testing.T) {
	l := newLab(t)
	l.must(l.allinone, "up", "--detach", "--port-base", "0", "--profile", "instant")
	l.cloud("faults", "create", "dark", "--zone", "sim-1b", "--effect", "zoneOutage", "--scope", "data")
	l.must(l.allinone, "down")
	output, err := l.runProgram(l.allinone, "up", "--detach", "--timeout", "1m")
	const want = "2 of 3 nodes are Ready; not Ready: 1 × a fault makes zone sim-1b dark (node-2)"
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 10 || !strings.Contains(err.Error(), want) || !strings.Contains(output, want) {
		t.Fatalf("up: %v\n%s\nwant exit code 10 and %q", err, output, want)
	}
	if l.status().PID == 0 {
		t.Error("the lab stopped")
	}
	l.cloud("faults", "delete", "dark")
	l.awaitEmpty("the lab reports the node", func() string {
		raw, err := os.ReadFile(filepath.Join(l.dir, "logs", "lab.log"))
		if err != nil {
			return err.Error()
		}
		if strings.Count(string(raw), "every running instance has a Ready node") < 2 { // the first start has logged this text once
			return "it has not said that every running instance has a Ready node"
		}
		return ""
	})
	l.must(l.allinone, "down")
}
