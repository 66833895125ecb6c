package real

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// cgroup is a control group with the same path in each of the host's cgroup hierarchies. Cgroup v2
// has one hierarchy, and v1 has one for each controller or group of controllers. A machine's cgroup
// limits memory and CPUs. It also lists the machine's processes, even after the end of the
// hypervisor.
type cgroup struct {
	hierarchies []hierarchy
	name        string // path without a leading slash
}

// hierarchy is a mount point of cgroups on the host.
type hierarchy struct {
	path        string
	unified     bool     // true for cgroup v2
	controllers []string // only for v1
}

func (h hierarchy) hasController(controller string) bool {
	return slices.Contains(h.controllers, controller)
}

// listHierarchies returns the hierarchies of this mount namespace. If a hierarchy has
// several mounts, the result contains only the first mount.
func listHierarchies() ([]hierarchy, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, err
	}
	var all []hierarchy
	seen := map[string]bool{}
	for _, m := range mounts {
		h, key := hierarchy{path: m.Mountpoint, unified: m.FSType == "cgroup2"}, m.FSType
		if !h.unified {
			h.controllers = strings.Split(m.VFSOptions, ",")
			key = m.VFSOptions
		}
		if !seen[key] {
			seen[key] = true
			all = append(all, h)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted")
	}
	return all, nil
}

func (c cgroup) child(name string) cgroup {
	return cgroup{c.hierarchies, filepath.Join(c.name, name)}
}

// isPresent reports whether the cgroup exists in at least one hierarchy. The cgroup may be empty.
func (c cgroup) isPresent() bool {
	return slices.ContainsFunc(c.hierarchies, func(h hierarchy) bool {
		_, err := os.Stat(c.pathIn(h))
		return err == nil
	})
}

func (c cgroup) pathIn(h hierarchy) string { return filepath.Join(h.path, c.name) }

// size is the limit of a machine's memory and CPUs.
type size struct {
	memory int64 // bytes
	cpus   int
}

// create creates the cgroup and its parents. On cgroup v2, it also enables the controllers of
// each parent for the parent's children.
func (c cgroup) create() error {
	if parent := filepath.Dir(c.name); parent != "." {
		if err := (cgroup{c.hierarchies, parent}).create(); err != nil {
			return err
		}
	}
	for _, h := range c.hierarchies {
		dir := c.pathIn(h)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if h.hasController("cpuset") {
			if err := inheritCPUs(dir); err != nil {
				return err
			}
		}
		if h.unified {
			if err := delegate(filepath.Dir(dir)); err != nil {
				return err
			}
		}
	}
	return nil
}

// inheritCPUs copies the parent's cpuset if the cgroup's own cpuset is empty. A cgroup with an
// empty cpuset accepts no process.
func inheritCPUs(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		now, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(now)) > 0 {
			continue
		}
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), above, 0o644); err != nil { //nolint:gosec // the kernel created the file
			return err
		}
	}
	return nil
}

// delegate makes all controllers of a v2 cgroup available to its children.
func delegate(dir string) error {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(have)) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644) //nolint:gosec // the kernel created the file
		if err != nil {
			return fmt.Errorf("delegating %s below %s: %w", name, dir, err)
		}
	}
	return nil
}

// setLimits sets the limits of memory and CPUs. Each limit applies to the sum over all
// processes in the cgroup.
func (c cgroup) setLimits(s size) error {
	const period = 100_000 // microseconds
	set := func(h hierarchy, file, value string) error {
		return os.WriteFile(filepath.Join(c.pathIn(h), file), []byte(value), 0o644) //nolint:gosec // the kernel created the file
	}
	var errs []error
	for _, h := range c.hierarchies {
		memory, quota := strconv.FormatInt(s.memory, 10), strconv.Itoa(s.cpus*period)
		if h.unified && c.offersController(h, "memory") {
			errs = append(errs, set(h, "memory.max", memory), set(h, "cpu.max", fmt.Sprintf("%s %d", quota, period)))
		}
		if h.hasController("memory") {
			errs = append(errs, set(h, "memory.limit_in_bytes", memory))
		}
		if h.hasController("cpu") { // one v1 hierarchy can have both controllers
			errs = append(errs, set(h, "cpu.cfs_period_us", strconv.Itoa(period)), set(h, "cpu.cfs_quota_us", quota))
		}
	}
	return errors.Join(errs...)
}

// offersController reports whether a v2 cgroup has a controller. The cgroup lacks controllers that
// the host uses with cgroup v1.
func (c cgroup) offersController(h hierarchy, controller string) bool {
	have, err := os.ReadFile(filepath.Join(c.pathIn(h), "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(have)), controller)
}

// join moves a process into the cgroup in every hierarchy.
func (c cgroup) join(pid int) error {
	for _, h := range c.hierarchies {
		err := os.WriteFile(filepath.Join(c.pathIn(h), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644) //nolint:gosec // the kernel created the file
		if err != nil {
			return fmt.Errorf("cgroup %s: %w", c.pathIn(h), err)
		}
	}
	return nil
}

// pids returns the pids in the cgroup and its children. If the cgroup does not
// exist, the result is empty.
func (c cgroup) pids() ([]int, error) {
	var pids []int
	for _, h := range c.hierarchies {
		err := filepath.WalkDir(c.pathIn(h), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return ignoreGone(err)
			}
			raw, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			if errors.Is(err, unix.EOPNOTSUPP) {
				return nil // in a threaded cgroup, a parent cgroup lists the processes: see the kernel's cgroup-v2 documentation
			}
			if err != nil {
				return ignoreGone(err)
			}
			for field := range strings.FieldsSeq(string(raw)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// thaw lets the frozen processes in the cgroup and its children run again. In cgroup v1, SIGKILL
// does not end a frozen process. In cgroup v2, SIGKILL also ends frozen processes, so thaw does
// nothing.
func (c cgroup) thaw() error {
	for _, h := range c.hierarchies {
		if !h.hasController("freezer") {
			continue
		}
		err := filepath.WalkDir(c.pathIn(h), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return ignoreGone(err)
			}
			return ignoreGone(os.WriteFile(filepath.Join(path, "freezer.state"), []byte("THAWED"), 0o644)) //nolint:gosec // the kernel created the file
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// destroy kills all processes in the cgroup and removes the cgroup. If this takes more than 15
// seconds, it returns an error that lists the remaining processes.
func (c cgroup) destroy(ctx context.Context) error {
	const timeout = 15 * time.Second
	deadline := time.Now().Add(timeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		left, err := c.pids()
		if err != nil {
			return err
		}
		for _, pid := range left {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("killing pid %d of cgroup %s: %w", pid, c.name, err)
			}
		}
		if err := c.thaw(); err != nil {
			return err
		}
		if len(left) == 0 {
			if err = c.remove(); err == nil {
				return nil
			}
		}
		if time.Now().After(deadline) {
			if len(left) > 0 {
				return fmt.Errorf("cgroup %s does not end within %s: these processes still run: %v", c.name, timeout, left)
			}
			return fmt.Errorf("cgroup %s cannot be removed within %s: %w", c.name, timeout, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("cgroup %s is still ending: %w", c.name, context.Cause(ctx))
		}
	}
}

// remove removes the empty folders of the cgroup, the deepest first.
func (c cgroup) remove() error {
	var errs []error
	for _, h := range c.hierarchies {
		var dirs []string
		err := filepath.WalkDir(c.pathIn(h), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return ignoreGone(err)
		})
		errs = append(errs, err)
		for _, dir := range slices.Backward(dirs) {
			errs = append(errs, ignoreGone(os.Remove(dir)))
		}
	}
	return errors.Join(errs...)
}
