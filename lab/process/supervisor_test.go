package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// rig is a supervisor that runs real processes.
type rig struct {
	dir     Dir
	journal string
	units   []*unit
	stop    context.CancelFunc
	done    chan error

	mu       sync.Mutex
	messages []string
}

func newDir(t *testing.T) Dir {
	t.Helper()
	d := Dir(t.TempDir())
	if err := d.claim(); err != nil {
		t.Fatal(err)
	}
	return d
}

func freeAddr(t *testing.T) string {
	t.Helper()
	p, err := freePorts()
	if err != nil {
		t.Fatal(err)
	}
	return p.addr("etcd")
}

// supervise calls makeComponents and runs the components in its result. It stops
// the components when the test ends. The grace period is long. On a busy machine,
// the supervisor therefore does not kill programs that only need more time to stop.
func supervise(t *testing.T, makeComponents func(r *rig) []component) *rig {
	t.Helper()
	return superviseFor(t, testTimeout, makeComponents)
}

func superviseFor(t *testing.T, grace time.Duration, make func(r *rig) []component) *rig {
	t.Helper()
	r := &rig{dir: newDir(t), journal: filepath.Join(t.TempDir(), "journal")}
	table := make(r)
	d := &recordFile{dir: r.dir}
	for _, c := range table {
		d.now.Components = append(d.now.Components, componentEntry{Name: c.name})
	}
	var err error
	if r.units, err = newUnits(table); err != nil {
		t.Fatal(err)
	}
	s := &supervisor{dir: r.dir, diary: d, grace: grace, say: func(format string, args ...any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.messages = append(r.messages, fmt.Sprintf(format, args...))
	}}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.done = newResult(func() error { return s.runUnits(ctx, r.units) })
	t.Cleanup(func() { r.stop(); <-r.done })
	return r
}

func (r *rig) waitResult(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(2 * testTimeout):
		t.Fatal("the supervisor does not end")
		return nil
	}
}

// newResult runs f in a goroutine. It returns a channel. The first read from the channel returns
// the result of f, and later reads return nil.
func newResult(f func() error) chan error {
	c := make(chan error, 1)
	go func() {
		err := f()
		c <- err
		close(c)
	}()
	return c
}

func (r *rig) awaitReady(t *testing.T) {
	t.Helper()
	for _, u := range r.units {
		select {
		case <-u.ready:
		case err := <-r.done:
			t.Fatalf("the supervisor ended: %v", err)
		case <-time.After(testTimeout):
			t.Fatalf("%s is not ready", u.name)
		}
	}
}

func (r *rig) component(t *testing.T, name string) componentEntry {
	t.Helper()
	rec, err := r.dir.record()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rec.Components, func(c componentEntry) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("component %s is missing in %+v", name, rec)
	}
	return rec.Components[i]
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

func TestStartsInOrderAndStopsInReverse(t *testing.T) {
	t.Setenv("ETCD_NAME", "of the user")
	r := supervise(t, func(r *rig) []component {
		first := testServer("first", freeAddr(t), r.journal)
		first.then = func(context.Context) error { return note(r.journal, "then first") }
		second := testServer("second", freeAddr(t), r.journal)
		second.startAfter = []string{"first"}
		second.before = func(context.Context) error { return note(r.journal, "before second") }
		began := make(chan struct{})
		inside := component{name: "inside", startAfter: []string{"second"}, run: func(ctx context.Context) error {
			if err := note(r.journal, "start inside"); err != nil {
				return err
			}
			close(began)
			<-ctx.Done()
			return note(r.journal, "stop inside")
		}}
		inside.ready = func(context.Context) error {
			if !isClosed(began) {
				return errors.New("it has not begun")
			}
			return nil
		}
		third := testServer("third", freeAddr(t), r.journal)
		third.startAfter = []string{"inside"}
		return []component{first, second, inside, third}
	})
	r.awaitReady(t)
	pids := []componentEntry{r.component(t, "first"), r.component(t, "second"), r.component(t, "third")}
	r.stop()
	if err := r.waitResult(t); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"start first", "then first", "before second", "start second", "start inside", "start third",
		"stop third", "stop inside", "stop second", "stop first",
	}
	if diff := cmp.Diff(want, lines(t, r.journal)); diff != "" {
		t.Error(diff)
	}
	for _, c := range pids {
		if c.Process.PID == 0 || c.Process.isRunning() {
			t.Errorf("%s still runs, or has no pid: %+v", c.Name, c)
		}
	}
}

func TestRestartsComponentsThatDie(t *testing.T) {
	r := supervise(t, func(r *rig) []component {
		return []component{testServer("mortal", freeAddr(t), r.journal)}
	})
	r.awaitReady(t)
	before := r.component(t, "mortal")
	if err := unix.Kill(before.Process.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually.NoError(t, "the killed component is ready again", func() error {
		if now := r.component(t, "mortal"); !now.Ready || now.Process.PID == before.Process.PID {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	if got := r.component(t, "mortal").Restarts; got != 1 {
		t.Errorf("%d restarts, want 1", got)
	}
	r.stop()
	if err := r.waitResult(t); err != nil {
		t.Error(err)
	}
	output := strings.Join(r.messages, "\n")
	for _, want := range []string{"mortal does not run: signal: killed; starting it again in 200ms", "mortal is ready again after"} {
		if !strings.Contains(output, want) {
			t.Errorf("the supervisor did not report %q:\n%s", want, output)
		}
	}
}

func TestKillsProcessesThatDoNotStop(t *testing.T) {
	const grace = 500 * time.Millisecond
	r := superviseFor(t, grace, func(r *rig) []component {
		return []component{{name: "stubborn", program: testProgram("stubborn"), args: []string{r.journal}}}
	})
	r.awaitReady(t)
	eventually.NoError(t, "it starts", func() error { _, err := os.Stat(r.journal); return err })
	proc := r.component(t, "stubborn").Process
	began := time.Now()
	r.stop()
	if err := r.waitResult(t); err != nil {
		t.Fatal(err)
	}
	if proc.isRunning() {
		t.Error("the process still runs")
	}
	if took := time.Since(began); took < grace {
		t.Errorf("the process had no grace period: killed after %s", took)
	}
}

func TestComponentThatCannotStartEndsLab(t *testing.T) {
	r := supervise(t, func(r *rig) []component {
		good := testServer("good", freeAddr(t), r.journal)
		bad := testServer("bad", freeAddr(t), r.journal)
		bad.program, bad.args = testProgram("fail"), []string{"bad"}
		bad.startAfter = []string{"good"}
		never := testServer("never", freeAddr(t), r.journal)
		never.startAfter = []string{"bad"}
		return []component{good, bad, never}
	})
	err := r.waitResult(t)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"bad does not start: exit status 1", r.dir.LogFile("bad"), "no such luck: bad"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in the error %v", want, err)
		}
	}
	if diff := cmp.Diff([]string{"start good", "stop good"}, lines(t, r.journal)); diff != "" {
		t.Error(diff)
	}
}

// A component in the lab's process writes to the log of the lab, so its errors name this log.
func TestFunctionThatCannotStartNamesTheLogOfTheLab(t *testing.T) {
	r := supervise(t, func(*rig) []component {
		return []component{{
			name: "inside", run: func(context.Context) error { return errors.New("boom") },
			ready: func(context.Context) error { return errors.New("not yet") },
		}}
	})
	if err := r.waitResult(t); err == nil || !strings.Contains(err.Error(), r.dir.LogFile(labLog)) {
		t.Errorf("got error %v, want one that names %s", err, r.dir.LogFile(labLog))
	}
}

func TestFunctionComponentRestarts(t *testing.T) {
	runs := 0 // runs do not overlap
	r := supervise(t, func(r *rig) []component {
		return []component{{name: "inside", run: func(ctx context.Context) error {
			if runs++; runs == 1 {
				return errors.New("boom")
			}
			if err := note(r.journal, "runs"); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}}}
	})
	eventually.NoError(t, "the function runs again", func() error { _, err := os.Stat(r.journal); return err })
	r.stop()
	if err := r.waitResult(t); err != nil {
		t.Error(err)
	}
}

func TestLeavesNoGrandchild(t *testing.T) {
	var pidFile string
	r := supervise(t, func(r *rig) []component {
		pidFile = filepath.Join(t.TempDir(), "pid")
		return []component{testServer("parent", freeAddr(t), r.journal, pidFile)}
	})
	r.awaitReady(t)
	var grandchild process
	eventually.NoError(t, "the grandchild runs", func() error {
		raw, err := os.ReadFile(pidFile)
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(string(raw))
		if err != nil {
			return err
		}
		if grandchild = identify(pid); !grandchild.isRunning() {
			return fmt.Errorf("%+v does not run", grandchild)
		}
		return nil
	})
	r.stop()
	if err := r.waitResult(t); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "a grandchild ends with its parent", func() bool { return !grandchild.isRunning() })
}

func TestComponentOrderIsChecked(t *testing.T) {
	_, err := newUnits([]component{{name: "a", startAfter: []string{"b"}}, {name: "b"}})
	if err == nil || !strings.Contains(err.Error(), "component a depends on b, which must come before it in the table") {
		t.Errorf(`newUnits with a wrong order: got error %v, want "component a depends on b, which must come before it in the table"`, err)
	}
}

// startSupervisor starts a supervisor with two components in another process (see the function
// testSupervise). It waits until both components run.
func startSupervisor(t *testing.T) (Dir, *exec.Cmd, record) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := newDir(t)
	journal := filepath.Join(t.TempDir(), "journal")
	cmd := exec.Command(self)
	cmd.Args = []string{"supervise", string(dir), freeAddr(t), journal}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var rec record
	eventually.NoError(t, "the lab starts", func() error {
		rec, err = dir.record()
		started, _ := os.ReadFile(journal)
		if err == nil && (!strings.Contains(string(started), "start stubborn") || len(rec.Components) != 2 || rec.Components[1].Process.PID == 0) {
			err = fmt.Errorf("the state is still %+v", rec)
		}
		return err
	})
	return dir, cmd, rec
}

// All programs end when SIGKILL ends their supervisor. A second Ctrl-C has the same effect as
// SIGKILL: the supervisor ends at once and cannot clean up.
func TestNothingOutlivesTheSupervisor(t *testing.T) {
	dir, cmd, rec := startSupervisor(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	for _, c := range rec.Components {
		eventually.True(t, c.Name+" ends with its supervisor", func() bool { return !c.Process.isRunning() })
	}
	unlock, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatalf("the data directory stays locked: %v", err)
	}
	unlock()
}

// lockDir waits for the lock of a lab that was just killed, and then returns
// without an error.
func TestLockDirWaitsForKilledLab(t *testing.T) {
	dir := Dir(t.TempDir())
	unlock, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(lockRelease/4, unlock)
	secondUnlock, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatalf("lock of a released directory: %v", err)
	}
	secondUnlock()
}

func TestDown(t *testing.T) {
	dir, cmd, rec := startSupervisor(t)
	if _, err := lockDir(t.Context(), dir); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("a lab already runs in %s (pid %d)", dir, cmd.Process.Pid)) {
		t.Errorf(`lock of a running lab's data directory: got error %v, want "a lab already runs in %s (pid %d)"`, err, dir, cmd.Process.Pid)
	}
	stopped, err := Down(t.Context(), dir, time.Minute)
	if err != nil || !stopped {
		t.Fatalf("Down = %v, %v", stopped, err)
	}
	for _, c := range rec.Components {
		if c.Process.isRunning() {
			t.Errorf("%s still runs", c.Name)
		}
	}
	if stopped, err := Down(t.Context(), dir, time.Minute); stopped || err != nil {
		t.Errorf("second Down = %v, %v; want false", stopped, err)
	}
	if err := Reset(t.Context(), dir, time.Minute); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(string(dir)); err != nil || len(left) != 0 {
		t.Errorf("Reset did not remove %v, %v", left, err)
	}
}

// A lab that is just starting holds the lock and has not written its pid yet. Down waits for the
// pid, and then waits until the lab has released the lock.
func TestDownWaitsForAStartingLab(t *testing.T) {
	dir := newDir(t)
	if stopped, err := Down(t.Context(), Dir(dir.path("new")), time.Minute); stopped || err != nil {
		t.Errorf("Down in a directory without a lab = %v, %v", stopped, err)
	}
	unlock, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if stopped, err := Down(t.Context(), dir, 50*time.Millisecond); stopped || err == nil || !strings.Contains(err.Error(), "a lab is starting in "+string(dir)) {
		t.Errorf("Down of a lab whose record is incomplete = %v, %v", stopped, err)
	}
	if err := Reset(t.Context(), dir, 50*time.Millisecond); err == nil || dir.checkOurs() != nil {
		t.Errorf("Reset of a lab whose record is incomplete: got error %v, want an error and an unchanged folder", err)
	}
	stopped := false
	downed := newResult(func() (err error) {
		stopped, err = Down(t.Context(), dir, testTimeout)
		return err
	})
	starting := startSleep(t)
	select {
	case err := <-downed:
		t.Fatalf("Down did not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	d := &recordFile{dir: dir, now: record{Supervisor: identify(starting.Process.Pid)}}
	if err := d.update(func(*record) {}); err != nil {
		t.Fatal(err)
	}
	if err := starting.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("the lab ended: %v", err)
	}
	select {
	case err := <-downed:
		t.Fatalf("Down did not wait until the lab ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	unlock()
	if err := <-downed; err != nil || !stopped {
		t.Errorf("Down = %v, %v", stopped, err)
	}
}
