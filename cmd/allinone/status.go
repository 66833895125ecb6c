package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab"
)

func newStatusCommand(e env) *cobra.Command {
	var dataDir string
	var o output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what of a lab runs, and what it takes",
		Long: `Show what of a lab runs, where, since when, and how much memory it takes.

MEMORY is the proportional set size: what processes share counts for each by its
share, so that it adds up. RESIDENT counts what is shared in full.

Where no lab runs, the exit code is 10, whatever the output.`,
		Example: `  allinone status
  allinone status -o wide
  allinone status -o json | jq -r '.components[] | select(.name == "ccm").log'`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, err := labDir(dataDir)
			if err != nil {
				return err
			}
			r, err := lab.Status(dir)
			if err != nil {
				return err
			}
			return printStatus(e.stdout, o, r)
		},
	}
	dataDirFlag(cmd.Flags(), &dataDir, e)
	o.flags(cmd)
	return cmd
}

// printStatus prints a report. If no lab runs, it returns an error. In JSON and YAML it prints
// the whole report also in this case.
func printStatus(w io.Writer, o output, r lab.Report) error {
	p := componentPrinter(w, o)
	switch {
	case o.format == formatJSON || o.format == formatYAML:
		if err := p.encode(r); err != nil || r.PID != 0 {
			return err
		}
		return noLab(r)
	case r.PID == 0:
		return noLab(r)
	}
	if err := p.list(r.Components); err != nil || o.format == formatName {
		return err
	}
	var total int64
	for _, c := range r.Components {
		total += c.Proportional
	}
	_, err := fmt.Fprintf(w, "\n%s of memory in all.\n", memoryCell(total))
	return err
}

// noLab returns the error for a data dir without a running lab.
func noLab(r lab.Report) error {
	return cloudsim.Errorf(cloudsim.Unavailable, "no lab runs in %s; start one with 'allinone up'", r.DataDir)
}

func componentPrinter(w io.Writer, o output) printer[lab.ComponentReport] {
	return printer[lab.ComponentReport]{
		output: o, w: w,
		id: func(c lab.ComponentReport) string { return c.Name },
		columns: []column[lab.ComponentReport]{
			{head: "COMPONENT", cell: func(c lab.ComponentReport) string { return c.Name }},
			{head: "STATE", cell: componentState},
			{head: "ADDRESS", cell: func(c lab.ComponentReport) string { return c.Address }},
			{head: "PID", cell: func(c lab.ComponentReport) string { return strings.TrimPrefix(strconv.Itoa(c.PID), "0") }},
			{head: "MEMORY", cell: func(c lab.ComponentReport) string { return memoryCell(c.Proportional) }},
			{head: "RESIDENT", wide: true, cell: func(c lab.ComponentReport) string { return memoryCell(c.Resident) }},
			{head: "RESTARTS", wide: true, cell: func(c lab.ComponentReport) string { return strconv.Itoa(c.Restarts) }},
			{head: "AGE", cell: func(c lab.ComponentReport) string { return age(c.Since) }},
			{head: "LOG", cell: func(c lab.ComponentReport) string { return c.Log }},
		},
	}
}

func componentState(c lab.ComponentReport) string {
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
