package lab

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/lab/real"
)

// Check is one thing that Doctor looked at.
type Check struct {
	Name    string     `json:"name"`
	For     string     `json:"for"` // what needs it: lab, or real nodes
	State   CheckState `json:"state"`
	Problem string     `json:"problem,omitempty"`
	Fix     string     `json:"fix,omitempty"` // what to do; only with a problem
}

// CheckState says how bad a Check's problem is.
type CheckState string

// States of a Check.
const (
	CheckOK       CheckState = "ok"
	CheckDegraded CheckState = "degraded" // it runs, and something is missing
	CheckMissing  CheckState = "missing"  // it does not run
)

// What a Check is for.
const (
	ForLab  = "lab"
	ForReal = "real nodes"
)

// Memory that a lab takes, in bytes: the control plane, and three real nodes
// with it.
const (
	labMemory  = 1 << 30
	realMemory = 4 << 30
)

// Doctor looks at this machine: whether c would run, and whether real nodes
// would. It starts and changes nothing.
func Doctor(c Config) []Check {
	check := func(name, purpose, fix string, err error) Check {
		if err == nil {
			return Check{Name: name, For: purpose, State: CheckOK}
		}
		return Check{Name: name, For: purpose, State: CheckMissing, Problem: err.Error(), Fix: fix}
	}
	all := []Check{
		check("programs", ForLab, "make build", checkPrograms(c)),
		check("open files", ForLab, "ulimit -Hn 4096", checkFileLimit()),
		check("disk space", ForLab, "choose another --data-dir", checkSpace(existing(c.DataDir), minSpace)),
		checkMemory(ForLab, labMemory),
		checkMemory(ForReal, realMemory),
	}
	for _, f := range real.Doctor(string(c.DataDir), realPrograms(c)) {
		k := Check{Name: f.Name, For: ForReal, State: CheckOK, Problem: f.Problem}
		if f.Problem != "" {
			k.Fix, k.State = f.Fix, CheckDegraded
			if f.Needed {
				k.State = CheckMissing
			}
		}
		all = append(all, k)
	}
	return all
}

// existing is the nearest folder above d that is there.
func existing(d Dir) Dir {
	for {
		var fs unix.Statfs_t
		above := Dir(filepath.Dir(string(d)))
		if unix.Statfs(string(d), &fs) == nil || d == above {
			return d
		}
		d = above
	}
}

func checkMemory(purpose string, need int64) Check {
	k := Check{Name: "memory", For: purpose, State: CheckOK}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		k.State, k.Problem = CheckDegraded, err.Error()
		return k
	}
	if have := int64(info.Totalram) * int64(info.Unit); have < need { //nolint:gosec // no machine has 8 EiB
		k.State, k.Problem = CheckDegraded, fmt.Sprintf("it will be slow: there are %d MiB, and it likes %d", have>>20, need>>20)
		k.Fix = "start fewer instances, with --instances"
	}
	return k
}
