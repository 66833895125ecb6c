package conformcli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/conform"
)

// reportFlags contains the flags for reports and call budgets. A call budget is the measured number
// of calls to the cloud for one action. It is not a limit.
type reportFlags struct{ report, baseline, writeBaseline string }

func (f *reportFlags) addTo(fl *pflag.FlagSet) {
	fl.StringVar(&f.report, "report", "", "folder for the reports, and for the output of the programs that the command starts (default no reports)")
	fl.StringVar(&f.baseline, "baseline", "", "file from --write-baseline of an earlier run; the command fails if the calls of an action grow by more than 20 % and by more than 2 calls, or if an action was not measured")
	fl.StringVar(&f.writeBaseline, "write-baseline", "", "file for the call budgets of this run, for --baseline of later runs")
}

// verdict returns an error if ctx has ended, if the report r is not complete, or if a check with
// the level MUST has failed. It also returns an error if the method Grown of r finds a call budget
// that is larger than the baseline permits. A budget of the baseline that is missing in r is also
// an error.
func (f *reportFlags) verdict(ctx context.Context, r conform.Report, baseline map[string]int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r.Incomplete != "" {
		return cloudsim.Errorf(cloudsim.Unavailable, "the run is not complete: %s", r.Incomplete)
	}
	var errs []error
	if must, _ := r.Failed(); must > 0 {
		errs = append(errs, fmt.Errorf("failed checks of the level MUST: %d", must))
	}
	for _, text := range r.Grown(baseline) {
		errs = append(errs, fmt.Errorf("--baseline: %s", text))
	}
	return errors.Join(errs...)
}

// readBaseline returns the call budgets in the file of --baseline. Without this flag, it returns
// nil.
func (f *reportFlags) readBaseline() (map[string]int, error) {
	if f.baseline == "" {
		return nil, nil
	}
	file, err := os.Open(f.baseline)
	if err != nil {
		return nil, cloudsim.Misuse(fmt.Errorf("--baseline: %w", err))
	}
	defer file.Close()
	budgets, err := conform.ReadBaseline(file)
	if err != nil {
		return nil, cloudsim.Misuse(fmt.Errorf("--baseline: %s: %w", f.baseline, err))
	}
	return budgets, nil
}

func printResult(out io.Writer, r conform.Result) {
	fmt.Fprintf(out, "%-11s  %-6s  %-16s  %5.1f s\n", r.Verdict, r.Level, r.ID, r.Took.Seconds())
	if r.Reason != "" {
		fmt.Fprintln(out, "    "+strings.ReplaceAll(r.Reason, "\n", "\n    "))
	}
}

// writeReports writes the file of --write-baseline and the reports in the folder of --report.
func (f *reportFlags) writeReports(r conform.Report) error {
	if f.writeBaseline != "" && len(r.Budgets) > 0 {
		only := conform.Report{Run: r.Run, Provider: r.Provider, Kubernetes: r.Kubernetes, Began: r.Began, Results: []conform.Result{}, Budgets: r.Budgets}
		if err := writeFile(f.writeBaseline, only.WriteJSON); err != nil {
			return fmt.Errorf("--write-baseline: %w", err)
		}
	}
	if f.report == "" {
		return nil
	}
	if err := os.MkdirAll(f.report, 0o700); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	for name, write := range map[string]func(io.Writer) error{"report.json": r.WriteJSON, "report.html": r.WriteHTML, "report.md": r.WriteMarkdown, "junit.xml": r.WriteJUnit} {
		if err := writeFile(filepath.Join(f.report, name), write); err != nil {
			return fmt.Errorf("--report: %w", err)
		}
	}
	return nil
}

func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
