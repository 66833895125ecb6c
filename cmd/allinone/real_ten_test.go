package main

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

// TestRealTenNodes has ten machines on one host, and prints what a node takes:
// the time from the call that makes its instance until Kubernetes calls it
// Ready, alone and with eight others at once, and its memory.
func TestRealTenNodes(t *testing.T) {
	l := newRealLab(t)
	l.must(l.allinone, "up", "--detach", "--nodes", "real", "--instances", "1", "--port-base", "0", "--profile", "instant")
	ready := func(n int) {
		t.Helper()
		for i := 1; i <= n; i++ {
			l.untilPrints(fmt.Sprintf("node-%d is Ready", i), "True", "get", "node", fmt.Sprintf("node-%d", i), "--ignore-not-found",
				"-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		}
	}
	create := func(i int) {
		t.Helper()
		l.cloud("instances", "create", fmt.Sprintf("node-%d", i), "--zone", fmt.Sprintf("sim-1%c", 'a'+i%3))
	}
	began := time.Now()
	create(2)
	ready(2)
	t.Logf("one node: Ready %s after the call", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	for i := 3; i <= 10; i++ {
		create(i)
	}
	ready(10)
	t.Logf("eight nodes at once: all Ready %s after the first call", time.Since(began).Round(time.Millisecond))
	all, count := l.memoryOfMachines(), 0
	for name, bytes := range all {
		t.Logf("%-24s %4d MiB a node", name, bytes>>20/10)
		count++
	}
	if count == 0 {
		t.Error("no machine takes memory")
	}
}

// memoryOfMachines is what all machines take together, by program and in sum:
// what several share is counted in parts (proc_pid_smaps(5), Pss).
func (l *labRun) memoryOfMachines() map[string]int64 {
	l.t.Helper()
	all := map[string]int64{}
	for _, p := range l.processes() {
		pid, name, _ := strings.Cut(p, " ")
		raw, err := os.ReadFile(filepath.Join("/proc", pid, "smaps_rollup"))
		if err != nil {
			continue // it ended
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
