package labcli

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/compose"
)

// TestComposeCloudKeepsNoOtherRange proves that 'allinone compose cloud' does not silently replace
// an address range from the command line. If the range does not fit --nodes, the command returns an
// error.
func TestComposeCloudKeepsNoOtherRange(t *testing.T) {
	for name, value := range compose.CloudFlags(lab.Hollow) {
		for _, c := range []struct {
			args  []string
			valid bool
		}{{nil, true}, {[]string{"--" + name + "=" + value}, true}, {[]string{"--" + name + "=fd00:1234::/112"}, false}} {
			cmd := newComposeCloudCommand(cli.Env{Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: io.Discard})
			if err := cmd.ParseFlags(c.args); err != nil {
				t.Fatal(err)
			}
			err := cmd.PreRunE(cmd, nil)
			if c.valid && err != nil || !c.valid && (!errors.Is(err, cloudsim.Invalid) || !strings.Contains(err.Error(), "--"+name)) {
				t.Errorf("%q: got error %v, want valid: %t", c.args, err, c.valid)
			}
		}
	}
}
