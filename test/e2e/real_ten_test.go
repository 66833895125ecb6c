package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRealTenNodes runs ten machines on one host. For each program, it prints the average memory on
// a node. It also prints the time from the call that creates an instance until the Node is Ready.
func TestRealTenNodes(t *testing.T) {
	l := newRealLab(t)
	l.must(l.allinone, "up", "--detach", "--nodes", "real", "--instances", "1", "--port-base", "0", "--profile", "instant")
	var took []string
	for i := 2; i <= 10; i++ {
		node := fmt.Sprintf("node-%d", i)
		began := time.Now()
		l.cloud("instances", "create", node, "--zone", fmt.Sprintf("sim-1%c", 'a'+i%3))
		l.untilPrints(node+" is Ready", "True", "get", "node", node, "--ignore-not-found", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		took = append(took, time.Since(began).Round(100*time.Millisecond).String())
	}
	t.Logf("time from the call until Ready, for one node after another: %s", strings.Join(took, ", "))
	all, count := l.memoryOfMachines(), 0
	for name, bytes := range all {
		t.Logf("%-24s %4d MiB a node", name, bytes>>20/10)
		count++
	}
	if count == 0 {
		t.Error("the memory of the machines was not measured")
	}
}

// memoryOfMachines returns the memory of all machines in bytes, for each program and in total. It
// uses the field Pss of proc_pid_smaps(5), which divides shared memory among its users.
func (l *labRun) memoryOfMachines() map[string]int64 {
	l.t.Helper()
	all := map[string]int64{}
	for _, p := range l.listProcesses() {
		pid, name, _ := strings.Cut(p, " ")
		raw, err := os.ReadFile(filepath.Join("/proc", pid, "smaps_rollup"))
		if err != nil {
			continue // the process ended
		}
		for s := bufio.NewScanner(bytes.NewReader(raw)); s.Scan(); {
			var kib int64
			if _, err := fmt.Sscanf(s.Text(), "Pss: %d kB", &kib); err == nil {
				all[name] += kib << 10
				all["everything"] += kib << 10
			}
		}
	}
	return all
}
