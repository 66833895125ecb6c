package process

import (
	"bufio"
	"bytes"
	"fmt"
	"github.com/cloudsim-dev/allinone/lab"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Report describes the lab of a data dir.
type Report struct {
	DataDir    Dir               `json:"dataDir"`
	CloudURL   string            `json:"cloudURL,omitempty"`
	ConsoleURL string            `json:"consoleURL,omitempty"`
	Kubeconfig string            `json:"kubeconfig"`
	EnvFile    string            `json:"envFile"`
	Nodes      lab.Nodes         `json:"nodes,omitempty"`
	Internet   lab.Internet      `json:"internet,omitzero"` // internet access of real nodes, set only while a lab runs
	Host       string            `json:"host"`              // hash in the names of the lab's resources on the host
	PID        int               `json:"pid"`               // pid of the process that runs the lab, 0 if no lab runs
	Since      time.Time         `json:"since,omitzero"`
	Ready      bool              `json:"ready"`
	Components []ComponentReport `json:"components"`

	// Machines contains the number of Ready nodes. This field is set only in the report for
	// the function Config.OnReady.
	Machines *NodesReport `json:"machines,omitempty"`
}

// ComponentReport is one component of a Report. Memory is in bytes. Resident
// includes all of the memory that the process shares with other processes.
// Proportional counts only the process's share of this memory. The sum of
// Proportional over all processes is therefore the memory that these processes
// really use.
type ComponentReport struct {
	Name         string    `json:"name"`
	Address      string    `json:"address,omitempty"`
	PID          int       `json:"pid,omitempty"` // 0 if the component does not run
	Inside       bool      `json:"inside"`        // true for a part of the process that runs the lab
	Ready        bool      `json:"ready"`
	Since        time.Time `json:"since,omitzero"`
	Restarts     int       `json:"restarts"`
	Resident     int64     `json:"resident,omitempty"`
	Proportional int64     `json:"proportional,omitempty"`
	Log          string    `json:"log,omitempty"`
}

// Status reports on the lab in a data dir. The PID is 0 if no lab runs.
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
	if m.Ports != nil { // a lab was started here before
		out.CloudURL = portsByName(m.Ports).url("http", "cloudsim")
		if m.Ports["console"] != 0 { // lab.json of an earlier version may not contain this port
			out.ConsoleURL = portsByName(m.Ports).url("http", "console")
		}
	}
	if r.Supervisor.isRunning() {
		out.PID, out.Since, out.Ready, out.Internet = r.Supervisor.PID, r.Since, r.Ready, r.Internet
	}
	for _, c := range r.Components {
		cr := ComponentReport{Name: c.Name, Address: c.Address, Log: c.Log, Restarts: c.Restarts, Inside: c.Process == r.Supervisor}
		if c.Process.isRunning() {
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

// memoryOf returns the resident and proportional memory of a process in bytes. It returns
// zeros if the process has ended.
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
