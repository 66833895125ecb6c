package lab

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Report says what runs.
type Report struct {
	DataDir    Dir               `json:"dataDir"`
	CloudURL   string            `json:"cloudURL,omitempty"`
	Kubeconfig string            `json:"kubeconfig"`
	EnvFile    string            `json:"envFile"`
	Nodes      Nodes             `json:"nodes,omitempty"`
	Host       string            `json:"host"` // what is this lab's on the host has it in its name
	PID        int               `json:"pid"`  // of the process that runs the lab; 0 when none does
	Since      time.Time         `json:"since,omitzero"`
	Ready      bool              `json:"ready"`
	Components []ComponentReport `json:"components"`

	// Machines says which nodes are Ready, in the report of a start.
	Machines *NodesReport `json:"machines,omitempty"`
}

// ComponentReport is one component of a Report. Memory is in bytes: Resident
// counts what is shared with others in full, Proportional by its share, so
// that it adds up.
type ComponentReport struct {
	Name         string    `json:"name"`
	Address      string    `json:"address,omitempty"`
	PID          int       `json:"pid,omitempty"` // 0 when it does not run
	Inside       bool      `json:"inside"`        // it is a part of the process that runs the lab
	Ready        bool      `json:"ready"`
	Since        time.Time `json:"since,omitzero"`
	Restarts     int       `json:"restarts"`
	Resident     int64     `json:"resident,omitempty"`
	Proportional int64     `json:"proportional,omitempty"`
	Log          string    `json:"log,omitempty"`
}

// Status reports on the lab in a data dir. PID is 0 if none runs.
func Status(d Dir) (Report, error) {
	r, err := d.record()
	if err != nil {
		return Report{}, err
	}
	m, err := d.memory()
	if err != nil {
		return Report{}, err
	}
	out := Report{DataDir: d, Kubeconfig: d.Kubeconfig(), EnvFile: d.EnvFile(), Host: d.hash(), Nodes: r.Nodes, Components: []ComponentReport{}}
	if m.Ports != nil { // it was started before
		out.CloudURL = ports(m.Ports).url("http", "cloudsim")
	}
	if r.Supervisor.runs() {
		out.PID, out.Since, out.Ready = r.Supervisor.PID, r.Since, r.Ready
	}
	for _, c := range r.Components {
		cr := ComponentReport{Name: c.Name, Address: c.Address, Log: c.Log, Restarts: c.Restarts, Inside: c.Process == r.Supervisor}
		if c.Process.runs() {
			cr.PID, cr.Ready, cr.Since = c.Process.PID, c.Ready, c.Since
			if !cr.Inside {
				cr.Resident, cr.Proportional = memoryOf(cr.PID)
			}
		}
		out.Components = append(out.Components, cr)
	}
	if out.PID != 0 {
		lab := ComponentReport{Name: "lab", PID: out.PID, Ready: out.Ready, Since: r.Since, Log: d.LogFile(labLog)}
		lab.Resident, lab.Proportional = memoryOf(out.PID)
		out.Components = append(out.Components, lab)
	}
	return out, nil
}

// memoryOf is what the kernel says of a process; 0 for one that has gone.
func memoryOf(pid int) (resident, proportional int64) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return 0, 0
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		var kib int64
		if _, err := fmt.Sscanf(value, "%d kB", &kib); err != nil {
			continue
		}
		switch key {
		case "Rss":
			resident = kib << 10
		case "Pss":
			proportional = kib << 10
		}
	}
	return resident, proportional
}
