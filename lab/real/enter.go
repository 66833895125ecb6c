package real

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// First returns the pid of the first process of the machine with the given host name. The
// parameters dir and name are the Dir and Name of the hypervisor's Config.
func First(dir, name, host string) (pid int, err error) {
	all, err := listHierarchies()
	if err != nil {
		return 0, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "machines", "*", "etc", "hostname"))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		said, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		if strings.TrimSpace(string(said)) != host {
			continue
		}
		id := filepath.Base(filepath.Dir(filepath.Dir(file)))
		pid, err := cgroup{all, name}.child(id).firstPID()
		if err == nil && pid == 0 {
			err = fmt.Errorf("the machine of %s, instance %s, is off", host, id)
		}
		return pid, err
	}
	return 0, fmt.Errorf("no machine has the name %q in %s", host, dir)
}
