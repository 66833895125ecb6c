package real

import (
	"fmt"
	"path/filepath"
)

// First returns the pid of the first process of the machine with the given host name. The
// parameters dir and name are the Dir and Name of the hypervisor's Config.
func First(dir, name, host string) (pid int, err error) {
	all, err := listHierarchies()
	if err != nil {
		return 0, err
	}
	folders, err := filepath.Glob(filepath.Join(dir, "machines", "*"))
	if err != nil {
		return 0, err
	}
	for _, f := range folders {
		node, err := folder(f).hostname()
		if err != nil {
			return 0, err
		}
		if node != host {
			continue
		}
		id := filepath.Base(f)
		pid, err := cgroup{all, name}.child(id).firstPID()
		if err == nil && pid == 0 {
			err = fmt.Errorf("the machine of %s, instance %s, is off", host, id)
		}
		return pid, err
	}
	return 0, fmt.Errorf("no machine has the name %q in %s", host, dir)
}
