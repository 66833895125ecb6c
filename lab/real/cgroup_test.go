package real

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestDestroyThreadedCgroup proves that the lab ends a machine in which a program has made a threaded
// cgroup. For example, libvirt makes threaded cgroups for the processors of virtual machines. The
// file cgroup.procs of a threaded cgroup cannot be read.
func TestDestroyThreadedCgroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	all, err := listHierarchies()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(h hierarchy) bool { return h.unified })
	if at < 0 {
		t.Skip("the test needs cgroup v2")
	}
	machines := cgroup{all, fmt.Sprintf("cloudsim-threaded-%d", os.Getpid())}
	inside := machines.child("i-000001").child("machine")
	if err := inside.create(); err != nil {
		t.Fatal(err)
	}
	threads := filepath.Join(inside.pathIn(all[at]), "threads")
	t.Cleanup(func() {
		_ = os.Remove(threads)
		_ = machines.destroy(context.WithoutCancel(t.Context()))
	})
	machine := bareMachine(t)
	if err := inside.join(machine.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(threads, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(threads, "cgroup.type"), []byte("threaded"), 0o600); err != nil {
		t.Fatal(err)
	}
	if pids, err := inside.pids(); err != nil || !slices.Equal(pids, []int{machine.Process.Pid}) {
		t.Errorf("processes: got %v, %v, want %d", pids, err, machine.Process.Pid)
	}
	if err := machines.destroy(t.Context()); err != nil || machines.isPresent() {
		t.Errorf("the cgroup exists after its destruction: %v, %v", machines.isPresent(), err)
	}
}
