package labcli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// NewEnterCommand returns the command "allinone enter".
func NewEnterCommand(e cli.Env) *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "enter NODE [COMMAND [ARGUMENT...]]",
		Short: "Run a shell or a command on a real node",
		Long: `Run a shell or a command on a real node of a lab, as root, and in all Linux namespaces
and the cgroup of the node's machine. So the shell or command ends when the machine ends, and
can use only the memory and the disks of the machine. The programs of the machine are in /opt:
containerd's ctr in /opt/machine, kubectl and kubelet in /opt/kube. 'allinone enter'
needs root, and nsenter from util-linux.`,
		Example: `  sudo allinone enter node-1
  sudo allinone enter node-1 ps -ef
  sudo allinone enter node-1 /opt/machine/ctr -n k8s.io images list`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := labDir(dataDir)
			if err != nil {
				return err
			}
			return enterMachine(dir, args[0], args[1:])
		},
	}
	dataDirFlag(cmd.Flags(), &dataDir, e)
	cmd.Flags().SetInterspersed(false) // flags after the first argument belong to the command that enterMachine runs
	return cmd
}

// machineFinder is a lab on this host or a lab in containers. enterMachine uses a
// machineFinder to find the machine of a node.
type machineFinder interface {
	EnterCommand(node string, command []string) (argv []string, err error)
}

// enterMachine replaces this process by a command on a node's machine. If command is empty, the
// function runs a shell.
func enterMachine(machines machineFinder, node string, command []string) error {
	if os.Geteuid() != 0 {
		return errors.New("only root can enter the namespaces of a machine: run the command with sudo")
	}
	if _, err := exec.LookPath("nsenter"); err != nil {
		return fmt.Errorf("%w: install nsenter with 'apt-get install util-linux'", err)
	}
	if len(command) == 0 {
		command = []string{"/bin/bash"}
	}
	argv, err := machines.EnterCommand(node, command)
	if err != nil {
		return err
	}
	return unix.Exec(argv[0], argv, append(os.Environ(), "PS1="+node+"# "))
}
