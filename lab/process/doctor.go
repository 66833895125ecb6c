package process

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/lab/real"
)

// Check is the result of one check of Doctor.
type Check struct {
	Name    string     `json:"name"`
	For     string     `json:"for"` // purpose: ForLab or ForReal
	State   CheckState `json:"state"`
	Problem string     `json:"problem,omitempty"`
	Fix     string     `json:"fix,omitempty"` // advice, set only with a problem
}

// CheckState says whether a Check found a problem, and how severe the problem is.
type CheckState string

// States of a Check.
const (
	CheckOK       CheckState = "ok"
	CheckDegraded CheckState = "degraded" // the lab runs with restrictions
	CheckMissing  CheckState = "missing"  // the lab does not run
)

// Values of Check.For.
const (
	ForLab  = "lab"
	ForReal = "real nodes"
)

// Recommended memory in bytes: for the control plane alone, and for the control plane
// with three real nodes.
const (
	labMemory  = 1 << 30
	realMemory = 4 << 30
)

// Doctor checks whether this machine can run a lab with the settings in c, and whether it
// can run real nodes. It starts no programs and changes nothing.
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
		check("disk space", ForLab, "choose another --data-dir", checkSpace(nearestExisting(c.DataDir), minSpace)),
		checkMemory(ForLab, labMemory),
		checkMemory(ForReal, realMemory),
	}
	for _, f := range real.Doctor(string(c.DataDir), c.realPrograms()) {
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

// nearestExisting returns d, or its nearest parent folder that exists.
func nearestExisting(d Dir) Dir {
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
		k.State, k.Problem = CheckDegraded, fmt.Sprintf("the lab will be slow: this host has %d MiB of memory, but the lab needs %d MiB", have>>20, need>>20)
		k.Fix = "start fewer instances, with --instances"
	}
	return k
}
