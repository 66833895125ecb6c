package process

import (
	"fmt"
	"regexp"
	"strings"
)

// envScript returns a shell script that sets the variables of the lab.
func envScript(d Dir, cloudURL string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# . %s\n", quote(d.EnvFile()))
	fmt.Fprintf(&b, "export KUBECONFIG=%s\n", quote(d.Kubeconfig()))
	fmt.Fprintf(&b, "export CLOUDSIM_URL=%s\n", quote(cloudURL))
	fmt.Fprintf(&b, "export CLOUDSIM_TOKEN_FILE=%s\n", quote(d.AdminToken()))
	fmt.Fprintf(&b, "export CLOUDSIM_DATA_DIR=%s\n", quote(string(d)))
	fmt.Fprintf(&b, "export PATH=%s:\"$PATH\"\n", quote(d.Bin()))
	return b.String()
}

// quote returns s as one word for a shell. It adds quotes only if s has a character other than
// letters, digits and %+,-./:=@_.
func quote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

var plainWord = regexp.MustCompile(`^[a-zA-Z0-9%+,\-./:=@_]+$`)
