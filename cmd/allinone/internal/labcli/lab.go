package labcli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/docs/labs"
	"github.com/cloudsim-dev/allinone/internal/shell"
	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/course"
	"github.com/cloudsim-dev/allinone/lab/process"
)

// verifyTimeout is the time for which "allinone lab verify" repeats its checks before it reports a
// failure. A check can fail at first, because the cluster may need time for a change.
const verifyTimeout = 5 * time.Second

// solveTimeout is the time for which "allinone lab solve" repeats the failed checks of a step. If
// the field Until of a command is true, solve also repeats this command until its output is as
// expected, but not longer than solveTimeout.
const solveTimeout = time.Minute

// labCLI contains the environment and the flag --data-dir of all subcommands of "allinone lab".
type labCLI struct {
	cli.Env
	dataDir string
}

// NewLabCommand returns the command "allinone lab".
func NewLabCommand(e cli.Env) *cobra.Command {
	c := &labCLI{Env: e}
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Work through the guided labs, step by step",
		Long: `Work through the guided labs of docs/labs on the lab that 'allinone up' runs. Each
step explains what will happen, shows commands for your terminal, and checks the
result. Some steps break something and repair it.

Your commands change the cluster and the cloud of this lab. 'verify' only reads.
The data dir holds your progress.`,
		Example: `  allinone up --detach
  allinone lab list
  allinone lab start 1
  allinone lab verify
  allinone lab next`,
	}
	cmd.PersistentFlags().StringVar(&c.dataDir, "data-dir", cli.DefaultDataDir(e.Getenv), "folder of the lab (CLOUDSIM_DATA_DIR)")
	cmd.AddCommand(c.list(), c.start(), c.next(), c.verify(), c.hint(), c.solve(), c.reset())
	return cmd
}

// courseState contains the data dir and the status of the user's lab, the pages of the course, and
// the user's progress. The course consists of the guided labs in docs/labs.
type courseState struct {
	*labCLI
	dir      process.Dir
	report   process.Report
	labs     []course.Lab
	progress course.Progress
}

func (c *labCLI) courseState() (*courseState, error) {
	dir, err := labDir(c.dataDir)
	if err != nil {
		return nil, err
	}
	p := &courseState{labCLI: c, dir: dir}
	raw, err := dir.CourseProgress()
	if err != nil {
		return nil, err
	}
	if p.progress, err = course.ReadProgress(raw); err != nil {
		return nil, fmt.Errorf("%w; delete %s to start again", err, dir.CourseFile())
	}
	if p.report, err = process.Status(dir); err != nil {
		return nil, err
	}
	p.labs, err = course.Read(labs.Pages)
	return p, err
}

// checkReady returns an error if no lab runs, or if the lab is not ready.
func (p *courseState) checkReady() error {
	if p.report.PID == 0 {
		return noLab(p.report)
	}
	if !p.report.Ready {
		return cloudsim.Errorf(cloudsim.Unavailable, "the lab in %s is still starting; see 'allinone status'", p.dir)
	}
	return nil
}

// currentStep returns the current lab of the course and the current step of the user. If the
// user has done all steps of this lab, isDone is true.
func (p *courseState) currentStep() (l course.Lab, step course.Step, isDone bool, err error) {
	if err := p.checkReady(); err != nil {
		return l, step, false, err
	}
	if p.progress.Now == "" {
		return l, step, false, cloudsim.Errorf(cloudsim.Conflict, "you have not started a guided lab; 'allinone lab list' lists the labs, 'allinone lab start 1' starts the first lab")
	}
	if l, err = course.Find(p.labs, p.progress.Now); err != nil {
		return l, step, false, err
	}
	if p.progress.Over(l) {
		return l, step, true, nil
	}
	return l, l.Steps[p.progress.Steps[l.ID]], false, nil
}

func (p *courseState) saveState() error {
	raw, err := json.MarshalIndent(p.progress, "", "  ")
	if err != nil {
		return err
	}
	return p.dir.KeepCourseProgress(append(raw, '\n'))
}

// runWithCourse returns a RunE function for a command. The RunE function reads the state of the
// course and calls fn with this state.
func (c *labCLI) runWithCourse(fn func(ctx context.Context, p *courseState, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		p, err := c.courseState()
		if err != nil {
			return err
		}
		return fn(cmd.Context(), p, args)
	}
}

// atStep returns a RunE function for a command. The RunE function finds the current step and
// calls fn with this step.
func (c *labCLI) atStep(fn func(ctx context.Context, p *courseState, l course.Lab, s course.Step) error) func(*cobra.Command, []string) error {
	return c.runWithCourse(func(ctx context.Context, p *courseState, _ []string) error {
		l, s, over, err := p.currentStep()
		if err != nil {
			return err
		}
		if over {
			p.sayOver(l)
			return nil
		}
		return fn(ctx, p, l, s)
	})
}

type labRow struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	Minutes int    `json:"minutes"`
	Nodes   string `json:"nodes"`
	Steps   int    `json:"steps"`
	State   string `json:"state,omitempty"`
}

func (c *labCLI) list() *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "list", Short: "List the guided labs and your progress", Args: cobra.NoArgs,
		Example: `  allinone lab list`,
		RunE: c.runWithCourse(func(_ context.Context, p *courseState, _ []string) error {
			var rows []labRow
			for _, l := range p.labs {
				rows = append(rows, labRow{l.ID, l.Title, l.Minutes, l.Nodes, len(l.Steps), p.progress.State(l)})
			}
			return labPrinter(c.Env, o).List(rows)
		}),
	}
	o.Flags(cmd)
	return cmd
}

func labPrinter(e cli.Env, o cli.Output) cli.Printer[labRow] {
	return cli.Printer[labRow]{
		Output: o, Writer: e.Stdout,
		ID: func(r labRow) string { return r.ID },
		Columns: []cli.Column[labRow]{
			{Head: "LAB", Cell: func(r labRow) string { return r.ID }},
			{Head: "TITLE", Cell: func(r labRow) string { return r.Title }},
			{Head: "MINUTES", Cell: func(r labRow) string { return strconv.Itoa(r.Minutes) }},
			{Head: "NODES", Cell: func(r labRow) string { return r.Nodes }},
			{Head: "STEPS", Wide: true, Cell: func(r labRow) string { return strconv.Itoa(r.Steps) }},
			{Head: "STATE", Cell: func(r labRow) string { return r.State }},
		},
	}
}

func (c *labCLI) start() *cobra.Command {
	return &cobra.Command{
		Use: "start LAB", Short: "Start a guided lab, or show your current step again", Args: cobra.ExactArgs(1),
		Example:           "  allinone lab start 1",
		ValidArgsFunction: c.complete,
		RunE: c.runWithCourse(func(ctx context.Context, p *courseState, args []string) error {
			l, err := course.Find(p.labs, args[0])
			if err != nil {
				return cloudsim.Errorf(cloudsim.NotFound, "%w", err)
			}
			if err := p.mayStart(ctx, l); err != nil {
				return err
			}
			if p.progress.Now != l.ID {
				if err := p.mayBegin(ctx, l); err != nil {
					return err
				}
				p.progress.Begin(l)
				if err := p.saveState(); err != nil {
					return err
				}
				fmt.Fprint(c.Stdout, l.Intro)
				fmt.Fprintf(c.Stdout, "Type the commands in a terminal. First set the variables of this lab there:\n\n    . %s\n\n", shell.Word(p.report.EnvFile))
			}
			p.sayStep(l)
			return nil
		}),
	}
}

// mayStart returns an error if the user must not start the guided lab l now, for one of these
// reasons:
//   - The lab in the data dir is not ready.
//   - The lab in the data dir does not have the kind of nodes that l needs.
//   - The user has started another guided lab, and has not finished that guided lab.
//
// If the user has finished the current guided lab, mayStart undoes the changes of that guided lab.
func (p *courseState) mayStart(ctx context.Context, l course.Lab) error {
	if err := p.checkReady(); err != nil {
		return err
	}
	if string(p.report.Nodes) != l.Nodes {
		sudo := ""
		if l.Nodes == string(lab.Real) {
			sudo = "sudo "
		}
		return cloudsim.Errorf(cloudsim.Conflict, "guided lab %s needs a lab with --nodes %s, but the lab in %s runs with --nodes %s; "+
			"'%sallinone up --detach --nodes %s --data-dir ANOTHER --port-base 0' starts such a lab", l.ID, l.Nodes, p.dir, p.report.Nodes, sudo, l.Nodes)
	}
	if p.progress.Now == "" || p.progress.Now == l.ID && !p.progress.Over(l) {
		return nil
	}
	before, err := course.Find(p.labs, p.progress.Now)
	if err != nil {
		return err
	}
	if !p.progress.Over(before) {
		return cloudsim.Errorf(cloudsim.Conflict, "lab %s is not finished: it is at %s; continue it, or leave it with 'allinone lab reset'", before.ID, p.progress.State(before))
	}
	return p.undo(ctx, before)
}

// mayBegin checks the conditions that the page of the guided lab l contains. If the cluster or the
// cloud does not meet them, mayBegin prints the results of the checks and returns an error.
func (p *courseState) mayBegin(ctx context.Context, l course.Lab) error {
	found, err := course.Step{Checks: l.Begin}.Verify(ctx, p.shell(), verifyTimeout)
	if err != nil || course.Good(found) {
		return err
	}
	for _, f := range found {
		f.Print(p.Stdout)
	}
	return cloudsim.Errorf(cloudsim.Conflict, "lab %s cannot start: the cluster or the cloud does not meet its conditions; fix the findings above, or start a separate cluster for the labs: "+
		"'allinone up --detach --data-dir ANOTHER --port-base 0'", l.ID)
}

func (c *labCLI) next() *cobra.Command {
	return &cobra.Command{
		Use: "next", Short: "Verify your current step, and go to the next step", Args: cobra.NoArgs,
		Example: `  allinone lab next`,
		RunE: c.atStep(func(ctx context.Context, p *courseState, l course.Lab, s course.Step) error {
			if err := p.look(ctx, s, verifyTimeout); err != nil {
				return err
			}
			p.progress.Advance(l)
			if err := p.saveState(); err != nil {
				return err
			}
			if p.progress.Over(l) {
				p.sayOver(l)
				return nil
			}
			p.sayStep(l)
			return nil
		}),
	}
}

func (c *labCLI) verify() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "verify", Short: "Check whether your current step is done", Args: cobra.NoArgs,
		Long: `Check whether your current step is done. The output has each check with its command,
the result and the expected result.`,
		Example: `  allinone lab verify
  allinone lab verify --wait 1m`,
		RunE: c.atStep(func(ctx context.Context, p *courseState, _ course.Lab, s course.Step) error {
			if err := p.look(ctx, s, timeout); err != nil {
				return err
			}
			fmt.Fprintln(c.Stdout, "\n'allinone lab next' shows the next step.")
			return nil
		}),
	}
	cmd.Flags().DurationVar(&timeout, "wait", verifyTimeout, "time limit until the checks succeed")
	return cmd
}

// look verifies a step and prints the results of its checks. If a check fails, the method returns
// an error.
func (p *courseState) look(ctx context.Context, s course.Step, timeout time.Duration) error {
	if len(s.Checks) == 0 {
		fmt.Fprintln(p.Stdout, "This step has no checks.")
		return nil
	}
	found, err := s.Verify(ctx, p.shell(), timeout)
	if err != nil {
		return err
	}
	for _, f := range found {
		f.Print(p.Stdout)
	}
	if !course.Good(found) {
		return cloudsim.Errorf(cloudsim.Conflict, "step %q is not done; 'allinone lab hint' shows a hint, 'allinone lab solve' runs the solution", s.Title)
	}
	return nil
}

func (c *labCLI) hint() *cobra.Command {
	return &cobra.Command{
		Use: "hint", Short: "Show a hint for your current step", Args: cobra.NoArgs,
		Example: `  allinone lab hint`,
		RunE: c.atStep(func(_ context.Context, _ *courseState, _ course.Lab, s course.Step) error {
			if s.Hint == "" {
				fmt.Fprintln(c.Stdout, "This step has no hint: type the commands of the step. 'allinone lab next' shows the next step.")
				return nil
			}
			fmt.Fprintln(c.Stdout, strings.TrimSpace(s.Hint))
			return nil
		}),
	}
}

func (c *labCLI) solve() *cobra.Command {
	return &cobra.Command{
		Use: "solve", Short: "Run the solution of your current step", Args: cobra.NoArgs,
		Long: `Run all commands of your current step, and print their output. A command that you
already ran may fail. Only the result of 'verify' counts.`,
		Example: `  allinone lab solve && allinone lab next`,
		RunE: c.atStep(func(ctx context.Context, p *courseState, _ course.Lab, s course.Step) error {
			for _, do := range s.Do {
				fmt.Fprintf(c.Stdout, "$ %s\n", do.Line)
				printed, err := do.Run(ctx, p.shell(), solveTimeout)
				if differs := (*course.Differs)(nil); err != nil && !errors.As(err, &differs) {
					return err
				}
				fmt.Fprint(c.Stdout, printed)
			}
			fmt.Fprintln(c.Stdout)
			return p.look(ctx, s, solveTimeout)
		}),
	}
}

func (c *labCLI) reset() *cobra.Command {
	return &cobra.Command{
		Use: "reset [LAB]", Short: "Undo the changes of a guided lab", Args: cobra.MaximumNArgs(1),
		Long: `Undo your current lab, or the lab LAB: delete the objects that the lab created,
repair the faults that the lab caused, and forget your progress in the lab. Other
objects in the cluster and the cloud do not change. 'allinone lab start LAB' then
starts the lab again at its first step.`,
		Example:           `  allinone lab reset`,
		ValidArgsFunction: c.complete,
		RunE: c.runWithCourse(func(ctx context.Context, p *courseState, args []string) error {
			if err := p.checkReady(); err != nil {
				return err
			}
			name := p.progress.Now
			if len(args) > 0 {
				name = args[0]
			}
			if name == "" {
				return cloudsim.Errorf(cloudsim.Conflict, "you have not started a guided lab, so there is nothing to undo; 'allinone lab reset LAB' undoes the changes of the lab LAB")
			}
			l, err := course.Find(p.labs, name)
			if err != nil {
				return cloudsim.Errorf(cloudsim.NotFound, "%w", err)
			}
			return p.undo(ctx, l)
		}),
	}
}

// undo runs the reset commands that the page of the lab l contains. It ignores resources that do
// not exist.
func (p *courseState) undo(ctx context.Context, l course.Lab) error {
	began := time.Now()
	var errs []error
	for _, c := range l.Reset {
		printed, code, err := p.shell()(ctx, c.Line)
		if err != nil {
			return err
		}
		if code != 0 && code != cli.CodeOf(cloudsim.NotFound) {
			errs = append(errs, fmt.Errorf("%s: exit code %d: %s", c.Line, code, strings.TrimSpace(printed)))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	p.progress.Forget(l)
	fmt.Fprintf(p.Stdout, "All changes of lab %s are undone (%.1f s).\n", l.ID, time.Since(began).Seconds())
	return p.saveState()
}

func (p *courseState) sayStep(l course.Lab) {
	fmt.Fprint(p.Stdout, l.Steps[p.progress.Steps[l.ID]].Text)
	fmt.Fprintf(p.Stdout, "-- %s, %s. Next commands: allinone lab verify, hint, solve or next\n", l.ID, p.progress.State(l))
}

func (p *courseState) sayOver(l course.Lab) {
	fmt.Fprintf(p.Stdout, "\nLab %s is done. 'allinone lab reset' undoes the changes of this lab", l.ID)
	at := slices.IndexFunc(p.labs, func(o course.Lab) bool { return o.ID == l.ID })
	if at+1 < len(p.labs) {
		fmt.Fprintf(p.Stdout, "; 'allinone lab start %d' also undoes the changes, and starts the next lab:\n%s", at+2, p.labs[at+1].Title)
	}
	fmt.Fprintln(p.Stdout)
}

// complete is a shell completion for the ids of labs.
func (c *labCLI) complete(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := course.Read(labs.Pages)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, l := range all {
		ids = append(ids, l.ID)
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func (p *courseState) shell() course.Shell { return course.NewShell(p.dir.EnvFile()) }
