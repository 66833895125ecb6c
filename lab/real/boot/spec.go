// Package boot implements the first process of a machine. The first process is PID 1 in the
// namespaces that the hypervisor created for an instance. It builds the root folder from the host's
// programs and the instance's disk. It starts the machine's programs, and restarts programs that
// end. It reaps orphans, and shuts the machine down on SIGTERM. The first process does not depend
// on the cloud or on Kubernetes, because a Spec contains all settings.
//
// The package imports only the standard library and x/sys, to keep the memory of each
// machine small.
package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Spec holds the settings of one boot of a machine. All paths are absolute. A path in the
// machine begins at the machine's root folder.
type Spec struct {
	Hostname string `json:"hostname"`
	// Root is an empty folder of the host. The first process mounts the machine's root folder at
	// this path. The machine's root folder is a tmpfs.
	Root string `json:"root"`
	// Dirs are folders to create in the machine.
	Dirs []string `json:"dirs"`
	// Binds lists the files and folders of the host that the machine can use. The first process
	// mounts them in the order of the list.
	Binds []Bind `json:"binds"`
	// Tunables maps paths of kernel settings to values. The settings belong to the whole host, so
	// the machine must not change them. Instead, the machine reads and writes a file that hides the
	// setting.
	Tunables map[string]string `json:"tunables"`
	// Programs lists the machine's programs. The first process starts the programs independently
	// of each other, and restarts each program that ends.
	Programs []Program `json:"programs"`
	// Env is the environment of all programs.
	Env []string `json:"env"`
	// Grace is the maximum time for which the first process waits after it has sent SIGTERM to all
	// processes. Then the machine stops, even if some processes still run.
	Grace time.Duration `json:"grace"`
}

// Bind makes a file or folder of the host visible in the machine.
type Bind struct {
	From     string `json:"from"`
	To       string `json:"to"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Recursive makes the mounts below From visible too.
	Recursive bool `json:"recursive,omitempty"`
	// Optional means that From need not exist. If From does not exist and Optional is false, the
	// machine does not boot.
	Optional bool `json:"optional,omitempty"`
}

// Program is a program that runs from the start of the machine until the machine is off.
type Program struct {
	Name string   `json:"name"` // also the zeroth argument
	Path string   `json:"path"`
	Args []string `json:"args"`
	Log  string   `json:"log"`
	// Env is the environment of this program in addition to Spec.Env.
	Env []string `json:"env,omitempty"`
	// Await is the path of a Unix socket. The machine's first process (PID 1) starts the program
	// when this socket accepts connections. If Await is "", PID 1 starts the program at once.
	Await string `json:"await,omitempty"`
}

// Load reads a Spec and validates it.
func Load(path string) (Spec, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, err
	}
	var s Spec
	if err := json.Unmarshal(raw, &s); err != nil {
		return Spec{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, s.Validate()
}

// Validate returns one error that lists all invalid fields of s.
func (s Spec) Validate() error {
	var errs []error
	abs := func(field, path string) {
		if !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s must be an absolute path, got %q", field, path))
		}
	}
	if s.Hostname == "" {
		errs = append(errs, errors.New("hostname is required"))
	}
	abs("root", s.Root)
	for _, d := range s.Dirs {
		abs("dirs", d)
	}
	for _, b := range s.Binds {
		abs("binds.from", b.From)
		abs("binds.to", b.To)
	}
	for t := range s.Tunables {
		abs("tunables", t)
	}
	for _, p := range s.Programs {
		abs("programs."+p.Name+".path", p.Path)
		abs("programs."+p.Name+".log", p.Log)
	}
	if s.Grace < 0 {
		errs = append(errs, fmt.Errorf("grace must not be negative, got %s", s.Grace))
	}
	return errors.Join(errs...)
}
