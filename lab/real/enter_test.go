package real

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/loop"
)

// TestEnterCommand proves that the device rules of a machine also apply to a command that a user
// runs on the machine. The command cannot open the disk of another machine.
func TestEnterCommand(t *testing.T) {
	b := newDeviceBench(t)
	b.attach(attachedTo("i-000001"))
	one, two := b.machine("i-000001"), b.machine("i-000002")
	first := exec.Command("sleep", "600")
	first.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Process.Kill(); _ = first.Wait() })
	if err := errors.Join(writeName(two.folder, "node-2"), two.cgroup.child("machine").join(first.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	steal := fmt.Sprintf("cd '%s' && mknod stolen b %d %d && head -c 1 stolen", two.folder.path("dev"), loop.Major, one.have["disk-000001"].number)
	for script, works := range map[string]bool{"head -c 1 /dev/zero": true, steal: false} {
		argv, err := EnterCommand(b.h.cfg.Dir, b.h.cfg.Name, "node-2", []string{"sh", "-c", script})
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput() //nolint:gosec // a script of this test
		if (err == nil) != works || !works && !strings.Contains(string(out), "not permitted") {
			t.Errorf("%s: got %v, want success %t: %s", script, err, works, out)
		}
	}
}
