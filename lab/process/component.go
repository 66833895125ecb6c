package process

import (
	"context"
	"fmt"
	"github.com/cloudsim-dev/allinone/lab"
	"os"
	"path/filepath"
)

// component is one part of a lab. It is a program that the supervisor keeps running, or a
// function of this process. A component starts when all components in its list startAfter are
// ready. At the end of the lab, it stops before these components.
type component struct {
	name       string
	address    string // address in texts for users, "" if the component does not listen
	program    program
	args       []string
	run        func(context.Context) error // runs instead of a program and returns when its context ends
	startAfter []string
	before     func(context.Context) error // called before each start
	ready      lab.Probe                   // nil means ready as soon as the component runs
	then       func(context.Context) error // called each time the component is ready, before dependent components start
}

// logName returns the name of the log to which the component writes. If the component is a function
// of this process, this is the name of the lab's log.
func (c component) logName() string {
	if c.run != nil {
		return labLog
	}
	return c.name
}

// program is a file to execute. Kubernetes' multi-call binary chooses its program by
// the zeroth argument, argv0.
type program struct {
	path  string
	argv0 string
}

// programSet finds Kubernetes' programs. It prefers a separate binary in binDir, then the
// multi-call binary in binDir, then the multi-call binary at the path kube.
type programSet struct {
	kube   string
	binDir string // "" means none
}

func (p programSet) find(name string) program {
	if p.binDir != "" {
		for _, own := range []string{name, "kube"} {
			if path := filepath.Join(p.binDir, own); isExecutable(path) == nil {
				return program{path, name}
			}
		}
	}
	return program{p.kube, name}
}

// isExecutable returns nil if path is a file that at least one user may execute. Otherwise it
// returns an error with the reason.
func isExecutable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder", path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable", path)
	}
	return nil
}
