package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/lab"
	"golang.org/x/sys/unix"
)

// memory is the content of lab.json, which the next start reads.
type memory struct {
	// Ports maps each name in portNames to a port. The next start uses the same ports, so
	// instructions that the lab printed earlier stay correct.
	Ports map[string]int `json:"ports"`
	// Networks holds the networks in which the cloud's instances have addresses.
	Networks lab.Networks `json:"networks"`
	// Seeded is true after the lab has created the first instances. The lab
	// creates these instances only once, so an instance that the user deletes
	// stays deleted.
	Seeded bool `json:"seeded"`
}

func (d Dir) memory() (memory, error) {
	var m memory
	raw, err := lab.ReadIfThere(d.path("lab.json"))
	if err != nil || raw == nil {
		return m, err
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("%s is damaged: %w; `allinone reset` deletes the lab", d.path("lab.json"), err)
	}
	return m, nil
}

func (d Dir) writeMemory(m memory) error {
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return lab.WriteDurably(d.path("lab.json"), append(raw, '\n'))
}

// process identifies a process by its pid and its start time. If the kernel later gives the pid to
// another process, the start time differs.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot
	Boot  string `json:"boot"`  // id of the boot
}

// identify returns the process that has this pid now. If no process has this pid, the function
// returns the zero value.
func identify(pid int) process {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}
	}
	// Field 2 of the file is the command in parentheses. The command can contain spaces and
	// parentheses, so the code splits only the text after the last parenthesis. Therefore fields[0]
	// is field 3 of proc(5), the state. fields[17] is the number of threads, and fields[19] is the
	// start time.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	// A zombie counts as ended if it has no other threads. Otherwise it counts as running, because
	// the other threads keep the files and ports of the process open.
	if len(fields) < 20 || fields[0] == "Z" && (fields[17] == "0" || fields[17] == "1") {
		return process{}
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return process{}
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}
	}
	return process{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}
}

// isRunning reports whether this process still runs.
func (p process) isRunning() bool { return p.PID > 0 && identify(p.PID) == p }

// signal sends sig to the process, or to its process group if group is true. It returns nil if the
// process no longer runs.
func (p process) signal(sig unix.Signal, group bool) error {
	if !p.isRunning() {
		return nil
	}
	to := p.PID
	if group {
		to = -to
	}
	if err := unix.Kill(to, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("pid %d: %w", p.PID, err)
	}
	return nil
}

// componentEntry is the entry of a component in run.json.
type componentEntry struct {
	Name     string    `json:"name"`
	Address  string    `json:"address,omitempty"`
	Log      string    `json:"log,omitempty"`
	Process  process   `json:"process"`
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`
	Ready    bool      `json:"ready"`
}

// record is the content of run.json: the running components.
type record struct {
	Supervisor process          `json:"supervisor"`
	Nodes      lab.Nodes        `json:"nodes"`
	Internet   lab.Internet     `json:"internet,omitzero"`
	Since      time.Time        `json:"since"`
	Ready      bool             `json:"ready"`
	Components []componentEntry `json:"components"` // in the order of the table
}

func (d Dir) record() (record, error) {
	var r record
	raw, err := lab.ReadIfThere(d.path("run.json"))
	if err != nil || raw == nil {
		return r, err
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return record{}, fmt.Errorf("%w: %w; `allinone down` removes it", damagedRecord(d.path("run.json")), err)
	}
	return r, nil
}

// damagedRecord is the error for a run.json with invalid JSON. Its value is the path.
type damagedRecord string

func (e damagedRecord) Error() string { return string(e) + " is damaged" }

// forgetDamaged removes a damaged run.json, so that this file does not prevent a new start. The
// caller must hold the lock, which proves that no lab runs. Without run.json, the new lab cannot
// find the processes of an earlier lab that was killed. But the kernel normally kills these
// processes together with their supervisor.
func (d Dir) forgetDamaged() error {
	_, err := d.record()
	if damaged, ok := errors.AsType[damagedRecord](err); ok {
		return os.Remove(string(damaged))
	}
	return err
}

// recordFile keeps run.json up to date while the lab runs.
type recordFile struct {
	dir Dir

	mu  sync.Mutex
	now record
}

// update changes the record and writes it to run.json.
func (d *recordFile) update(change func(*record)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.now)
	raw, err := json.MarshalIndent(d.now, "", "  ")
	if err != nil {
		return err
	}
	return lab.WriteFile(d.dir.path("run.json"), append(raw, '\n'))
}

// noteComponent changes the entry of one component.
func (d *recordFile) noteComponent(name string, change func(*componentEntry)) error {
	return d.update(func(r *record) {
		for i := range r.Components {
			if r.Components[i].Name == name {
				change(&r.Components[i])
			}
		}
	})
}

func (d *recordFile) close() error { return os.Remove(d.dir.path("run.json")) }

// killLeftovers kills the processes that a killed supervisor left, and returns their names.
// Normally the kernel kills these processes together with their supervisor. In two cases, a process
// continues to run: the supervisor died while it started the process, or the kernel failed to kill
// the process.
func (d Dir) killLeftovers(ctx context.Context) (swept []string, err error) {
	r, err := d.record()
	if err != nil {
		return nil, err
	}
	for _, c := range r.Components {
		if !c.Process.isRunning() || c.Process.PID == os.Getpid() {
			continue
		}
		swept = append(swept, c.Name)
		if err := c.Process.signal(unix.SIGKILL, true); err != nil {
			return swept, fmt.Errorf("ending the %s of an earlier run: %w", c.Name, err)
		}
		if err := c.Process.awaitEnd(ctx, sweepPatience); err != nil {
			return swept, fmt.Errorf("the %s of an earlier run does not end: %w", c.Name, err)
		}
	}
	return swept, nil
}

// sweepPatience is the time for which killLeftovers waits for the end of a killed process. If the
// process still runs after this time, killLeftovers kills it again and waits a second time. If the
// process still runs after the second wait, killLeftovers returns an error.
const sweepPatience = 5 * time.Second
