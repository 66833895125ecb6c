package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/eventually"
)

func startSleep(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

func TestIdentify(t *testing.T) {
	cmd := startSleep(t)
	proc := identify(cmd.Process.Pid)
	if !proc.isRunning() {
		t.Fatalf("%+v does not run", proc)
	}
	for name, other := range map[string]process{
		"process with another start time": {proc.PID, proc.Start + 1, proc.Boot},
		"process of another boot":         {proc.PID, proc.Start, "other"},
		"process that never started":      {},
	} {
		if other.isRunning() {
			t.Errorf("%s: the process counts as running", name)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "a zombie does not count as running", func() bool { return !proc.isRunning() })
}

// A killed program can still hold its ports when its first thread has ended but other
// threads still run. The next start must wait for these other threads.
func TestIdentifyOfAProcessWhoseFirstThreadEnded(t *testing.T) {
	p := testProgram("headless")
	cmd := &exec.Cmd{Path: p.path, Args: []string{p.argv0}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	zombie := func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		return err == nil && strings.Contains(string(stat), ") Z ")
	}
	eventually.True(t, "its first thread ends", zombie)
	proc := identify(pid)
	if !proc.isRunning() {
		t.Error("the process counts as gone while its threads run")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the killed process is gone", func() bool { return !proc.isRunning() })
}

func TestDownEndsProcessesOfAKilledSupervisor(t *testing.T) {
	dir := newDir(t)
	stale, foreign := startSleep(t), startSleep(t)
	reused := identify(foreign.Process.Pid)
	reused.Start-- // the recorded process is dead and its pid belongs to another process now
	d := &recordFile{dir: dir, now: record{Components: []componentEntry{
		{Name: "stale", Process: identify(stale.Process.Pid)},
		{Name: "gone", Process: reused},
		{Name: "inside", Process: identify(os.Getpid())},
	}}}
	if err := d.update(func(*record) {}); err != nil {
		t.Fatal(err)
	}
	stopped, err := Down(t.Context(), dir, time.Minute)
	if err != nil || !stopped {
		t.Fatalf("Down = %v, %v", stopped, err)
	}
	if identify(stale.Process.Pid).PID != 0 {
		t.Error("the old process of the lab still runs")
	}
	if identify(foreign.Process.Pid).PID == 0 {
		t.Error("Down killed a process of another program")
	}
}

func TestErrorNamesDamagedFile(t *testing.T) {
	dir := newDir(t)
	for _, name := range []string{"lab.json", "run.json"} {
		if err := os.WriteFile(dir.path(name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err1 := dir.memory()
	_, err2 := dir.record()
	for name, err := range map[string]error{"lab.json": err1, "run.json": err2} {
		if err == nil || !strings.Contains(err.Error(), dir.path(name)+" is damaged") {
			t.Errorf(`damaged %s: got error %v, want its path and "is damaged"`, name, err)
		}
	}
}

// If no lab runs, a damaged run.json does not prevent a start, a Down or a Reset. If a lab runs,
// Down returns an error, because it cannot read the pid of the lab's process from run.json.
func TestDownAndResetWithDamagedRecord(t *testing.T) {
	dir := newDir(t)
	damage := func() {
		t.Helper()
		if err := os.WriteFile(dir.path("run.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damage()
	unlock, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	damage()
	if _, err := Down(t.Context(), dir, time.Minute); err == nil || !strings.Contains(err.Error(), "a lab uses this data dir") {
		t.Errorf(`Down of a running lab with a damaged record: got error %v, want "a lab uses this data dir"`, err)
	}
	unlock()
	if stopped, err := Down(t.Context(), dir, time.Minute); err != nil || stopped {
		t.Errorf("Down with a damaged record and no lab = %v, %v; want false", stopped, err)
	}
	damage()
	if err := Reset(t.Context(), dir, time.Minute); err != nil {
		t.Error(err)
	}
}
