package labcli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/process"
)

// NewStatusCommand returns the command "allinone status".
func NewStatusCommand(e cli.Env) *cobra.Command {
	var dataDir string
	var o cli.Output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the components of a lab and their memory",
		Long: `Show the components of a lab with their addresses, start times and memory.

MEMORY is the proportional set size: memory that n processes share counts as 1/n for
each of them, so the sum is right. RESIDENT counts shared memory in full.

If no lab runs, the exit code is 10, with every output format.`,
		Example: `  allinone status
  allinone status -o wide
  allinone status -o json | jq -r '.components[] | select(.name == "ccm").log'`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, err := labDir(dataDir)
			if err != nil {
				return err
			}
			r, err := process.Status(dir)
			if err != nil {
				return err
			}
			return printStatus(e.Stdout, o, r)
		},
	}
	dataDirFlag(cmd.Flags(), &dataDir, e)
	o.Flags(cmd)
	return cmd
}

// printStatus prints a report about the lab. If no lab runs, printStatus always returns an error.
// In this case, it prints the report only if the format is JSON or YAML.
func printStatus(w io.Writer, o cli.Output, r process.Report) error {
	p := componentPrinter(w, o)
	switch {
	case o.Format == cli.FormatJSON || o.Format == cli.FormatYAML:
		if err := p.Encode(r); err != nil || r.PID != 0 {
			return err
		}
		return noLab(r)
	case r.PID == 0:
		return noLab(r)
	}
	if err := p.List(r.Components); err != nil || o.Format == cli.FormatName {
		return err
	}
	var total int64
	for _, c := range r.Components {
		total += c.Proportional
	}
	_, err := fmt.Fprintf(w, "\n%s of memory in total.\n", memoryCell(total))
	if err == nil && r.Nodes == lab.Real {
		_, err = fmt.Fprintf(w, "Internet: %s.\n", r.Internet)
	}
	return err
}

// noLab returns the error for a data dir without a running lab.
func noLab(r process.Report) error {
	return cloudsim.Errorf(cloudsim.Unavailable, "no lab runs in %s; start one with 'allinone up'", r.DataDir)
}

func componentPrinter(w io.Writer, o cli.Output) cli.Printer[process.ComponentReport] {
	return cli.Printer[process.ComponentReport]{
		Output: o, Writer: w,
		ID: func(c process.ComponentReport) string { return c.Name },
		Columns: []cli.Column[process.ComponentReport]{
			{Head: "COMPONENT", Cell: func(c process.ComponentReport) string { return c.Name }},
			{Head: "STATE", Cell: componentState},
			{Head: "ADDRESS", Cell: func(c process.ComponentReport) string { return c.Address }},
			{Head: "PID", Cell: func(c process.ComponentReport) string { return strings.TrimPrefix(strconv.Itoa(c.PID), "0") }},
			{Head: "MEMORY", Cell: func(c process.ComponentReport) string { return memoryCell(c.Proportional) }},
			{Head: "RESIDENT", Wide: true, Cell: func(c process.ComponentReport) string { return memoryCell(c.Resident) }},
			{Head: "RESTARTS", Wide: true, Cell: func(c process.ComponentReport) string { return strconv.Itoa(c.Restarts) }},
			{Head: "AGE", Cell: func(c process.ComponentReport) string { return cli.Age(c.Since) }},
			{Head: "LOG", Cell: func(c process.ComponentReport) string { return c.Log }},
		},
	}
}

func componentState(c process.ComponentReport) string {
	switch {
	case c.PID == 0:
		return "down"
	case !c.Ready:
		return "starting"
	case c.Inside:
		return "in lab"
	}
	return "ready"
}

func memoryCell(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
