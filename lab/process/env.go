package process

import (
	"fmt"
	"strings"

	"github.com/cloudsim-dev/allinone/internal/shell"
)

// envScript returns a shell script that sets the variables of the lab.
func envScript(d Dir, cloudURL string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# . %s\n", shell.Word(d.EnvFile()))
	fmt.Fprintf(&b, "export KUBECONFIG=%s\n", shell.Word(d.Kubeconfig()))
	fmt.Fprintf(&b, "export CLOUDSIM_URL=%s\n", shell.Word(cloudURL))
	fmt.Fprintf(&b, "export CLOUDSIM_TOKEN_FILE=%s\n", shell.Word(d.AdminToken()))
	fmt.Fprintf(&b, "export CLOUDSIM_DATA_DIR=%s\n", shell.Word(string(d)))
	fmt.Fprintf(&b, "export PATH=%s:\"$PATH\"\n", shell.Word(d.Bin()))
	return b.String()
}
