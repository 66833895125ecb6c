package real

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/informer"
)

// newTestHypervisor returns a hypervisor without machines. It moves the test into a new network
// namespace, which represents the host. It skips the test if the test does not run as root.
func newTestHypervisor(t *testing.T, cfg Config) *hypervisor {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	onHostOfItsOwn(t)
	bridge, err := hostBridge(Network{Link: "vpc"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bridge.link.Close() })
	return &hypervisor{
		log: slog.New(slog.DiscardHandler), cfg: cfg, bridge: bridge, cables: newCables(), inputs: map[cloudsim.InstanceID]*machineInput{},
	}
}

// A hypervisor runs only machines of the zones in Config.Zones. If Config.Zones no longer
// contains a machine's zone, the hypervisor switches the machine off and keeps the disk.
func TestZones(t *testing.T) {
	h := newTestHypervisor(t, Config{Dir: t.TempDir(), Zones: []string{"here"}})
	h.update(t.Context(), cloudsim.Instance{ID: "i-000001", Zone: "there", State: cloudsim.InstanceRunning}, false)
	if len(h.inputs) > 0 || len(h.cables.cut()) > 0 {
		t.Errorf("the hypervisor keeps a machine of another zone")
	}
	for zone, want := range map[string]bool{"here": true, "there": false, "": false} {
		if h.servesZone(zone) != want {
			t.Errorf("the hypervisor serves zone %q: got %v", zone, !want)
		}
	}
	m := h.newMachine("i-000002")
	disk := m.folder.path("disk")
	if err := os.MkdirAll(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if m.init, err = watchProcess(bareMachine(t).Process.Pid); err != nil {
		t.Fatal(err)
	}
	k := &machineInput{changed: newNotification()}
	k.set(cloudsim.Instance{ID: m.id, Zone: "there", State: cloudsim.InstanceRunning}, false)
	if done, err := h.reconcile(t.Context(), m, k); done || err != nil || m.isOn() {
		t.Errorf("machine of a zone that the hypervisor no longer serves: got deleted %v, running %v, error %v; want false, false, no error", done, m.isOn(), err)
	}
	if _, err := os.Stat(disk); err != nil {
		t.Errorf("disk of a machine that is switched off: Stat returned %v, want no error", err)
	}
	k.set(cloudsim.Instance{ID: m.id, Zone: "there"}, true)
	if done, err := h.reconcile(t.Context(), m, k); !done || err != nil {
		t.Errorf("machine without an instance: got deleted %v, error %v; want true, no error", done, err)
	}
	if _, err := os.Stat(filepath.Dir(disk)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory of the deleted machine: Stat returned %v, want fs.ErrNotExist", err)
	}
}

// The function Run can fail before it has taken over the machines of an earlier hypervisor. If the
// context of Run has ended by then, Run ends these machines. Otherwise the machines continue to
// run.
func TestFailsWithoutEndingMachines(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	onHostOfItsOwn(t)
	cfg := Config{
		Cloud: &client.Client{URL: "http://127.0.0.1:1", HTTP: http.DefaultClient}, Dir: t.TempDir(), Name: fmt.Sprintf("cloudsim-fails-%d", os.Getpid()),
		Network: testNetwork(), Router: &Services{Metadata: &client.Client{}}, Registry: Registry{Name: "registry", CA: "ca"},
		Identify: func(string, netip.Addr) (map[string][]byte, error) { return nil, nil },
		NodeOf:   func(context.Context, string) (string, error) { return "", nil },
		NotReady: func(context.Context, string, string) error { return nil },
		Say:      t.Logf,
		Disks:    Disks{Dir: t.TempDir()},
	}
	t.Cleanup(func() { _ = Clean(context.WithoutCancel(t.Context()), cfg.Dir, cfg.Name, cfg.Network.Link) })
	all, err := listHierarchies()
	if err != nil {
		t.Fatal(err)
	}
	inside := cgroup{all, cfg.Name}.child("i-000001").child("machine")
	if err := inside.create(); err != nil {
		t.Fatal(err)
	}
	machine := bareMachine(t)
	if err := inside.join(machine.Process.Pid); err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context) (left bool) {
		t.Helper()
		// Run fails because there are no images.
		if err := Run(ctx, slog.New(slog.DiscardHandler), cfg); err == nil || !strings.Contains(err.Error(), "make build machine") {
			t.Fatalf("Run: got error %v, want an error that contains make build machine", err)
		}
		pids, err := inside.pids()
		if err != nil {
			t.Fatal(err)
		}
		return len(pids) == 1 && isNetNS(filepath.Join(cfg.Dir, vpcFile))
	}
	if !run(t.Context()) {
		t.Error("a failure stopped the machines or deleted their network")
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if run(ctx) {
		t.Error("the hypervisor ended without stopping its machines")
	}
}

// If a process has ended before the call of watchProcess, watchProcess still reports the end. The
// test calls watchProcess before Wait, because after Wait the kernel can give the pid to another
// process. After the end of the process, the method signal does nothing and returns nil.
func TestWatchEndedProcess(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	p, err := watchProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	<-p.ended
	for _, state := range []string{"before", "after"} {
		if err := p.signal(unix.SIGKILL); err != nil {
			t.Errorf("signal %s Wait: %v", state, err)
		}
		_ = cmd.Wait() // the second call returns an error
	}
	if err := p.fd.Close(); err != nil {
		t.Error(err)
	}
}

// If a hypervisor starts and cannot take over a machine, it leaves the machine running and
// continues. The hypervisor takes the machine over in a later attempt.
func TestAdoptsLater(t *testing.T) {
	h := newTestHypervisor(t, Config{Dir: t.TempDir()})
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	// The test creates a file at the path of the cgroup folder, so that the first attempts to
	// take over the machine fail.
	groups, group := filepath.Join(t.TempDir(), "groups"), filepath.Join(t.TempDir(), "group")
	if err := os.WriteFile(groups, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.cgroup = cgroup{[]hierarchy{{path: groups}}, "test"}
	m := h.newMachine("i-000001")
	if err := os.MkdirAll(string(m.folder), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.folder.path("booted"), []byte("op-1"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := h.adopt(ended); err != nil || h.inputs[m.id] == nil {
		t.Errorf("a machine that cannot be adopted: got error %v and %d machines", err, len(h.inputs))
	}
	h.wg.Wait()
	if err := m.adopt(t.Context()); err == nil {
		t.Fatal("the hypervisor adopted a machine whose state it cannot read")
	}
	k := &machineInput{changed: newNotification()}
	k.set(cloudsim.Instance{ID: m.id, State: cloudsim.InstanceRunning, Meta: cloudsim.Meta{Operation: "op-1"}}, false)
	if done, err := h.reconcile(t.Context(), m, k); done || err == nil {
		t.Errorf("reconcile of a machine that cannot be adopted: got deleted %v, error %v; want false and an error", done, err)
	}
	if err := os.MkdirAll(filepath.Join(group, "test/i-000001/machine"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(group, "test/i-000001/machine/cgroup.procs"), fmt.Appendln(nil, cmd.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(groups), os.Rename(group, groups)); err != nil {
		t.Fatal(err)
	}
	if done, err := h.reconcile(t.Context(), m, k); done || err != nil {
		t.Fatalf("machine that can be adopted again: got deleted %v, error %v; want false, no error", done, err)
	}
	if !m.isOn() || m.init.pid != cmd.Process.Pid || m.bootOperation != "op-1" {
		t.Errorf("adopted machine: got running %v, boot %q, process %+v; want true, op-1, pid %d", m.isOn(), m.bootOperation, m.init, cmd.Process.Pid)
	}
}

// After the cloud has loaded a saved state, the revision of an instance can be lower than the
// revision that the hypervisor has stored. TestListAfterLoadState proves that the hypervisor still
// accepts the loaded version of the instance.
func TestListAfterLoadState(t *testing.T) {
	cloud := cloudtest.Start(t)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	i, err := cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "one", Zone: "sim-1a", Type: "small"})
	ok(err)
	_, err = cloud.WaitOperation(t.Context(), i.Operation)
	ok(err)
	_, err = cloud.SaveState(t.Context(), cloudsim.SaveState{Name: "s"})
	ok(err)
	i, err = cloud.StopInstance(t.Context(), i.ID)
	ok(err)
	_, err = cloud.WaitOperation(t.Context(), i.Operation)
	ok(err)
	k := &machineInput{changed: newNotification(), devices: &machineDevices{changed: newNotification()}}
	log := slog.New(slog.DiscardHandler)
	h := &hypervisor{log: log, cfg: Config{Cloud: cloud}, cables: newCables(), inputs: map[cloudsim.InstanceID]*machineInput{i.ID: k}}
	list := func(want cloudsim.InstanceState) {
		t.Helper()
		_, err := (&follower{h, informer.OutageLogger{Log: log}}).List(t.Context())
		ok(err)
		if i, gone := k.latest(); gone || i.State != want {
			t.Errorf("got an instance in the state %s, deleted: %v; want %s", i.State, gone, want)
		}
	}
	list(cloudsim.InstanceStopped)
	ok(cloud.LoadState(t.Context(), "s", cloudsim.LoadState{}))
	list(cloudsim.InstanceRunning)
}

// writerFunc is a function that receives the lines of a log.
type writerFunc func(line []byte) (int, error)

func (f writerFunc) Write(line []byte) (int, error) { return f(line) }

// While the hypervisor deletes a machine, the cloud may restore the instance of the machine from a
// saved state. TestRestoreDuringDeletion proves that the hypervisor then keeps its goroutine for
// this instance.
func TestRestoreDuringDeletion(t *testing.T) {
	h := newTestHypervisor(t, Config{Dir: t.TempDir()})
	restored := cloudsim.Instance{ID: "i-000001", State: cloudsim.InstanceStopped, Meta: cloudsim.Meta{Operation: "op-1", Revision: 9}}
	h.log = slog.New(slog.NewTextHandler(writerFunc(func(line []byte) (int, error) {
		if strings.Contains(string(line), "machine is off") { // the deletion has begun, but has not ended
			h.update(t.Context(), restored, false)
		}
		return len(line), nil
	}), nil))
	m := h.newMachine(restored.ID)
	m.crashOperation = restored.Operation
	var err error
	if m.init, err = watchProcess(bareMachine(t).Process.Pid); err != nil {
		t.Fatal(err)
	}
	k := &machineInput{changed: newNotification()}
	h.inputs[m.id] = k
	k.set(cloudsim.Instance{ID: m.id, Meta: cloudsim.Meta{Revision: 8}}, true)
	if done, err := h.reconcile(t.Context(), m, k); done || err != nil {
		t.Errorf("deleted machine whose instance is restored: goroutine ended %v, %v", done, err)
	}
	if h.inputs[m.id] != k || m.isOn() || m.crashOperation != "" {
		t.Errorf("restored instance: goroutine known %v, running %v, crashed in operation %q", h.inputs[m.id] == k, m.isOn(), m.crashOperation)
	}
	h.update(t.Context(), restored, true)
	if done, err := h.reconcile(t.Context(), m, k); !done || err != nil || len(h.inputs) > 0 {
		t.Errorf("deleted machine: goroutine ended %v, %d machines known, %v", done, len(h.inputs), err)
	}
}

// Before a machine boots, the hypervisor waits until the cluster no longer has the Node of an
// earlier instance with the same name. TestDeletionWhileNameIsTaken proves that the hypervisor
// deletes the machine if a user deletes the machine's instance during this wait.
func TestDeletionWhileNameIsTaken(t *testing.T) {
	called := newNotification()
	h := newTestHypervisor(t, Config{Dir: t.TempDir(), NodeOf: func(context.Context, string) (string, error) {
		called.notify()
		return "cloudsim://sim-1/sim-1a/i-000001", nil
	}})
	m := h.newMachine("i-000002")
	k := &machineInput{changed: newNotification()}
	h.inputs[m.id] = k
	k.set(cloudsim.Instance{ID: m.id, ProviderID: "cloudsim://sim-1/sim-1a/i-000002", State: cloudsim.InstanceRunning, Meta: cloudsim.Meta{Name: "one", Operation: "op-1", Revision: 1}}, false)
	ctx, stop := context.WithTimeout(t.Context(), 10*nameEvery)
	defer stop()
	ended := make(chan struct{})
	go func() { h.manage(ctx, m, k); close(ended) }()
	<-called
	k.set(cloudsim.Instance{ID: m.id, Meta: cloudsim.Meta{Name: "one", Revision: 2}}, true)
	<-ended
	if ctx.Err() != nil || len(h.inputs) > 0 {
		t.Errorf("the hypervisor still manages the machine of a deleted instance: %v", ctx.Err())
	}
}
