package shell_test

import (
	"os/exec"
	"testing"

	"github.com/cloudsim-dev/allinone/internal/shell"
)

func TestWord(t *testing.T) {
	for _, s := range []string{"", "plain-1.txt", "/a/b:c", "~/a", "it's", `a "b" $(false) \ *`, "two\nlines", "-x"} {
		out, err := exec.Command("sh", "-c", "printf -- %s "+shell.Word(s)).CombinedOutput()
		if err != nil || string(out) != s {
			t.Errorf("%q: the shell read %q, error %v", s, out, err)
		}
	}
	if got := shell.Word("/var/lib/cloudsim"); got != "/var/lib/cloudsim" {
		t.Errorf("got %s, want no quotes", got)
	}
}
