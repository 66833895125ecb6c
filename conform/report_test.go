package conform_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/conform"
)

// TestIncompleteRunInFiles proves that the files for CI systems show that a run ended early, even
// if no check failed.
func TestIncompleteRunInFiles(t *testing.T) {
	r := conform.Report{Results: []conform.Result{{ID: "node.a", Verdict: conform.Skip}}}
	const sentence = "The run is not complete: the driver does not answer"
	for name, c := range map[string]struct {
		writeFn  func(conform.Report, io.Writer) error
		contains []string
	}{
		"JUnit":    {conform.Report.WriteJUnit, []string{`tests="2" failures="1" skipped="1"`, `<failure message="` + sentence}},
		"Markdown": {conform.Report.WriteMarkdown, []string{sentence + "\n"}},
	} {
		for _, reason := range []string{"", "the driver does not answer"} {
			r.Incomplete = reason
			var b bytes.Buffer
			if err := c.writeFn(r, &b); err != nil {
				t.Fatal(err)
			}
			for _, text := range c.contains {
				if got, want := strings.Contains(b.String(), text), reason != ""; got != want {
					t.Errorf("%s with the reason %q: contains %q: got %v, want %v\n%s", name, reason, text, got, want, b.String())
				}
			}
		}
	}
}
