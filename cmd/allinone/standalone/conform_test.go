package standalone_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/standalone"
)

// TestMistakesAreUsageErrors proves that a mistake in the command line has the exit code of a usage
// error. The exit code 1 would mean that a check failed.
func TestMistakesAreUsageErrors(t *testing.T) {
	for _, line := range []string{"runn", "run extra", "run --bogus", "run --limit soon", "version extra", "run --driver bogus"} {
		var stdout, stderr bytes.Buffer
		got := standalone.Conform(func(string) string { return "" }, strings.NewReader(""), &stdout, &stderr, strings.Fields(line))
		if got != cli.ExitUsage {
			t.Errorf("cloudconform %s: exit code %d, want %d; it printed %q", line, got, cli.ExitUsage, stderr.String())
		}
	}
}
