package real

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDestroyThreadedCgroup proves that the lab ends a machine in which a program has made a
// threaded cgroup. For example, libvirt makes threaded cgroups for the processors of virtual
// machines. The file cgroup.procs of a threaded cgroup cannot be read. The lab finds the processes
// in the file of a parent cgroup instead.
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

// newFrozen starts a process in a child cgroup of a new cgroup, and freezes the child cgroup.
func newFrozen(t *testing.T, flags uintptr, script string) (cgroup, *exec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	all, err := listHierarchies()
	if err != nil {
		t.Fatal(err)
	}
	machines := cgroup{all, fmt.Sprintf("cloudsim-frozen-%d", os.Getpid())}
	inside := machines.child("i-000001").child("machine")
	if err := inside.create(); err != nil {
		t.Fatal(err)
	}
	argv := inside.joinCommand("sh", "-c", script)
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // a script of this test
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: flags, Pdeathsig: unix.SIGKILL}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	freeze(t, inside, true)
	ended := make(chan struct{})
	go func() { // otherwise the ended process stays a zombie
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		if inside.isPresent() {
			freeze(t, inside, false)
		}
		_ = machines.destroy(context.WithoutCancel(t.Context()))
		_ = cmd.Process.Kill()
		<-ended
	})
	return machines, cmd
}

// TestDestroyFrozenCgroup proves that destroy ends the processes of a frozen cgroup. In cgroup v1,
// a frozen process does not end while it is frozen, even after SIGKILL.
func TestDestroyFrozenCgroup(t *testing.T) {
	machines, _ := newFrozen(t, 0, "echo; exec sleep 600")
	began := time.Now()
	if err := machines.destroy(t.Context()); err != nil {
		t.Fatalf("after %s: %v", time.Since(began), err)
	}
}

// TestPowerOffFrozenMachine proves that powerOff ends a machine with a frozen process. The first
// process of the machine cannot end before all other processes of the machine have ended.
func TestPowerOffFrozenMachine(t *testing.T) {
	h := newTestHypervisor(t, Config{Dir: t.TempDir()})
	machines, cmd := newFrozen(t, unix.CLONE_NEWPID, "sleep 600 & echo; wait")
	h.cgroup = machines
	m := h.newMachine("i-000001")
	var err error
	if m.init, err = watchProcess(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.powerOff(t.Context()) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the machine does not end")
		m.cgroup.thaw()
		<-done
	}
}
