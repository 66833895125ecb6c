package labcli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/process"
)

// NewDoctorCommand returns the command "allinone doctor".
func NewDoctorCommand(e cli.Env) *cobra.Command {
	f := upFlags{Config: process.Default()}
	var o cli.Output
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine can run a lab",
		Long: `Check whether this machine can run a lab with hollow nodes and with real nodes. The
command prints each missing requirement, the effect, and what to do. It starts and
changes nothing. It fails if this machine does not meet a requirement of the kind of
nodes in --nodes.`,
		Example: `  allinone doctor
  sudo allinone doctor --nodes real`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) (err error) {
			if all := []lab.Nodes{lab.Hollow, lab.Real, lab.None}; !slices.Contains(all, f.Nodes) {
				return cli.BadFlag("nodes", string(f.Nodes), "hollow, real or none")
			}
			if f.DataDir, err = labDir(f.dataDir); err != nil {
				return err
			}
			if f.Self, err = os.Executable(); err != nil {
				return err
			}
			f.Kube = filepath.Join(filepath.Dir(f.Self), "kube")
			f.MachineDir = filepath.Join(filepath.Dir(f.Self), "machine")
			checks := process.Doctor(f.Config)
			if err := checkPrinter(e, o).List(checks); err != nil {
				return err
			}
			return checkMachine(f.Nodes, checks)
		},
	}
	fl := cmd.Flags()
	dataDirFlag(fl, &f.dataDir, e)
	fl.StringVar((*string)(&f.Nodes), "nodes", string(f.Nodes), "kind of nodes whose requirements must be met: hollow, real or none")
	fl.StringVar(&f.KubeBinDir, "kube-bin-dir", "", "folder with the programs of a Kubernetes release, instead of the program bin/kube")
	_ = cmd.RegisterFlagCompletionFunc("nodes", cli.Fixed(lab.Hollow, lab.Real, lab.None))
	o.Flags(cmd)
	return cmd
}

// checkMachine returns an error if a lab with the given nodes cannot run on this machine.
func checkMachine(nodes lab.Nodes, checks []process.Check) error {
	missing := 0
	for _, c := range checks {
		if c.State == process.CheckMissing && (c.For == process.ForLab || nodes == lab.Real) {
			missing++
		}
	}
	if missing > 0 {
		return cloudsim.Errorf(cloudsim.Unavailable, "a lab with %s nodes cannot run on this machine; missing requirements in the list above: %d", nodes, missing)
	}
	return nil
}

func checkPrinter(e cli.Env, o cli.Output) cli.Printer[process.Check] {
	return cli.Printer[process.Check]{
		Output: o, Writer: e.Stdout,
		ID: func(c process.Check) string { return c.Name },
		Columns: []cli.Column[process.Check]{
			{Head: "CHECK", Cell: func(c process.Check) string { return c.Name }},
			{Head: "FOR", Cell: func(c process.Check) string { return c.For }},
			{Head: "STATE", Cell: func(c process.Check) string { return string(c.State) }},
			{Head: "PROBLEM", Cell: func(c process.Check) string {
				if c.Problem == "" {
					return ""
				}
				return fmt.Sprintf("%s: %s", c.Problem, c.Fix)
			}},
		},
	}
}
