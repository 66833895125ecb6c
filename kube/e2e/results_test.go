package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

var results = flag.String("results", "", "file to write what became of each test to, as Markdown")

// Each process of a test run registers this function. Ginkgo calls the function
// in one process only, with the report of all processes.
var _ = ginkgo.ReportAfterSuite("results", func(r ginkgo.Report) {
	if *results == "" || r.SuiteConfig.DryRun {
		return
	}
	if err := os.WriteFile(*results, []byte(tableOf(r.SpecReports)), 0o644); err != nil { //nolint:gosec // the report is public
		ginkgo.Fail(err.Error())
	}
})

// The variable noise matches the parts of a test's name that the table of results omits. These
// parts are the prefix "External Storage", and labels that serve only to select tests.
var noise = regexp.MustCompile(`\[(Driver: [^]]*|Feature[^]]*|LinuxOnly|Beta)\] ?|External Storage `)

// tableOf returns a table of the selected tests. Ginkgo gives the state "skipped",
// without a reason, to each test that was not selected. So the table omits skipped
// tests without a reason.
func tableOf(specs types.SpecReports) string {
	var rows []string
	count := map[types.SpecState]int{}
	for _, s := range specs {
		if s.LeafNodeType != types.NodeTypeIt || s.State == types.SpecStateSkipped && s.Failure.Message == "" {
			continue // not selected
		}
		count[s.State]++
		why, _, _ := strings.Cut(s.Failure.Message, "\n")
		name := strings.Join(strings.Fields(noise.ReplaceAllString(s.FullText(), "")), " ")
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |\n", name, s.State, cmp.Or(why, s.RunTime.Round(1e9).String())))
	}
	slices.Sort(rows)
	return fmt.Sprintf("%d passed, %d failed, %d skipped.\n\n| test | | |\n|---|---|---|\n%s", count[types.SpecStatePassed],
		len(rows)-count[types.SpecStatePassed]-count[types.SpecStateSkipped], count[types.SpecStateSkipped], strings.Join(rows, ""))
}
