package real

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

// EnterCommand returns a command line that runs the given command on the machine with the given
// host name. The command runs as root, in all namespaces and in the cgroup of the machine. So the
// limits and device rules of the machine apply to the command, and the command ends when the
// machine ends. The parameters dir and name are the fields Dir and Name of the hypervisor's Config.
// The command line needs a shell, and nsenter from util-linux. EnterCommand returns an error if the
// machine is off or does not exist.
func EnterCommand(dir, name, host string, command []string) ([]string, error) {
	all, err := listHierarchies()
	if err != nil {
		return nil, err
	}
	folders, err := glob(dir, "machines/*")
	if err != nil {
		return nil, err
	}
	for _, f := range folders {
		node, err := folder(f).hostname()
		if err != nil {
			return nil, err
		}
		if node != host {
			continue
		}
		id := filepath.Base(f)
		c := cgroup{all, name}.child(id)
		pid, err := c.firstPID()
		if err != nil {
			return nil, err
		}
		if pid == 0 {
			return nil, fmt.Errorf("the machine of %s, instance %s, is off: start the lab, or start the instance with 'allinone cloud instances start %s'; after a crash of the machine, use 'allinone cloud instances reboot %s'", host, id, id, id)
		}
		return c.enterCommand(pid, command...), nil
	}
	return nil, fmt.Errorf("no machine has the name %q in %s", host, dir)
}

// enterCommand returns the result of EnterCommand for the machine with cgroup c. The argument pid
// is the pid of the machine's first process.
func (c cgroup) enterCommand(pid int, command ...string) []string {
	return c.child("machine").joinCommand(slices.Concat([]string{"nsenter", "--target", strconv.Itoa(pid), "--all", "--"}, command)...)
}

// joinScript moves the shell into cgroups, and then runs a command in place of the shell. The
// arguments before "--" are the files cgroup.procs of the cgroups. The arguments after "--" are the
// command.
const joinScript = `while [ "$1" != -- ]; do echo $$ >"$1" || exit; shift; done; shift; exec "$@"`

// joinCommand returns the arguments of a shell that runs a command in the cgroup c.
func (c cgroup) joinCommand(command ...string) []string {
	argv := []string{"/bin/sh", "-c", joinScript, "sh"}
	for _, h := range c.hierarchies {
		argv = append(argv, filepath.Join(c.pathIn(h), "cgroup.procs"))
	}
	return slices.Concat(argv, []string{"--"}, command)
}
