// Package boot is the first process of a machine: what runs as PID 1 in the
// namespaces that the hypervisor made for an instance. It builds the root
// folder out of the host's programs and the instance's own disk, starts the
// machine's programs, keeps them running, buries orphans, and on SIGTERM shuts
// down. It knows nothing of the cloud or of Kubernetes: a Spec says all of it.
//
// It is small on purpose, because each machine pays for it: the standard
// library and x/sys only.
package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Spec is one boot of a machine. Paths on the host are absolute; paths in the
// machine are absolute in its own root.
type Spec struct {
	Hostname string `json:"hostname"`
	// Root is an empty folder of the host: the machine's root is put together
	// there, in memory.
	Root string `json:"root"`
	// Dirs are made in the machine.
	Dirs []string `json:"dirs"`
	// Binds are what the machine sees of the host, in this order.
	Binds []Bind `json:"binds"`
	// Tunables are kernel settings that belong to the whole host. The machine
	// reads these values and writes into a file of its own.
	Tunables map[string]string `json:"tunables"`
	// Programs are started in this order and started again when they end.
	Programs []Program `json:"programs"`
	// Env is the environment of all programs.
	Env []string `json:"env"`
	// Grace is between SIGTERM for all and the end of the machine.
	Grace time.Duration `json:"grace"`
}

// Bind makes a file or folder of the host visible in the machine.
type Bind struct {
	From     string `json:"from"`
	To       string `json:"to"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Recursive takes along what is mounted below From.
	Recursive bool `json:"recursive,omitempty"`
	// Optional forgives that From is not there.
	Optional bool `json:"optional,omitempty"`
}

// Program is one that runs as long as the machine.
type Program struct {
	Name string   `json:"name"` // also its zeroth argument
	Path string   `json:"path"`
	Args []string `json:"args"`
	Log  string   `json:"log"`
	// Await is a Unix socket that must answer before the program starts.
	Await string `json:"await,omitempty"`
}

// Load reads a Spec, and says everything that is wrong with it.
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

// Validate says everything that is wrong with s.
func (s Spec) Validate() error {
	var errs []error
	abs := func(what, path string) {
		if !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s must be an absolute path, got %q", what, path))
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
