package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testVolumesDevices proves that an attach operation creates the device of a disk, and that a
// detach operation removes this device. Only the machine with the disk has the device.
func (l *labRun) testVolumesDevices(t *testing.T) {
	l.cloud("disks", "create", "by-hand", "--zone", "sim-1a", "--size", "1", "--wait")
	devices := func(node string) []string {
		all := strings.Fields(l.must(l.allinone, "enter", node, "ls", "/dev/disk/by-id"))
		slices.Sort(all)
		return all
	}
	id := strings.Fields(l.cloud("disks", "get", "by-hand", "-o", "name"))[0]
	var n int
	if _, err := fmt.Sscanf(id, "disk-%x", &n); err != nil {
		t.Fatal(id, err)
	}
	want := []string{"cloudsim-" + id, fmt.Sprintf("scsi-0HC_Volume_%d", n)}
	for range 3 {
		l.cloud("disks", "attach", "by-hand", "node-1", "--wait")
		if got := devices("node-1"); !slices.Equal(got, want) {
			t.Errorf("devices after the attachment: got %v, want %v", got, want)
		}
		if got := devices("node-2"); len(got) > 0 {
			t.Errorf("devices of the other machine: got %v", got)
		}
		l.must(l.allinone, "enter", "node-1", "dd", "if=/dev/zero", "of=/dev/disk/by-id/cloudsim-"+id, "bs=4096", "count=1", "status=none")
		l.cloud("disks", "detach", "by-hand", "node-1", "--wait")
		if got := devices("node-1"); len(got) > 0 {
			t.Errorf("devices after the detachment: got %v", got)
		}
	}

	// After a restart, a machine has all disks that are attached to its instance, and no other
	// disks.
	l.cloud("disks", "attach", "by-hand", "node-2", "--wait")
	l.cloud("instances", "reboot", "node-2", "--wait")
	l.awaitEmpty("the restarted machine has its disk", func() string {
		out, err := l.runProgram(l.allinone, "enter", "node-2", "ls", "/dev/disk/by-id")
		if got := strings.Fields(out); err != nil || len(got) != len(want) {
			return fmt.Sprint(got, err)
		}
		return ""
	})
	l.cloud("disks", "detach", "by-hand", "node-2", "--wait")
	l.cloud("disks", "delete", "by-hand", "--wait")
	l.kubectl("wait", "node", "node-2", "--for=condition=Ready", "--timeout=90s")
}

// TestYourProviderGuide runs the commands of the guide docs/howto/your-provider.md. The commands
// start Hetzner's unmodified cloud controller manager and CSI driver, and connect to a load
// balancer. A pod of a StatefulSet writes to a volume, moves to another node and reads its data.
func TestYourProviderGuide(t *testing.T) {
	foreignProgram(t, "hcloud-cloud-controller-manager")
	programs := filepath.Dir(foreignProgram(t, "hcloud-csi-driver"))
	l := newRealLab(t)
	work := t.TempDir()
	l.dir = filepath.Join(work, "lab")
	own := filepath.Dir(l.allinone)
	if _, err := os.Stat(filepath.Join(own, "csi", "csi-sidecars")); err != nil {
		t.Fatalf("%v: run make csi", err)
	}
	guide, err := os.ReadFile("../../docs/howto/your-provider.md")
	if err != nil {
		t.Fatal(err)
	}
	script := guideCommands(t, string(guide), "## Run Hetzner's programs in a lab")
	// Labs of tests use free ports, so that they can run at the same time as other labs.
	script = strings.Replace(script, "allinone up ", "allinone up --port-base 0 --timeout "+scaled(5*time.Minute).String()+" ", 1)

	log, err := os.Create(filepath.Join(work, "output"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), scaled(15*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -e -o pipefail\n"+script)
	cmd.Dir, cmd.Stdout, cmd.Stderr = work, log, log
	cmd.Env = append(os.Environ(), "PATH="+strings.Join([]string{own, filepath.Join(own, "csi"), programs, os.Getenv("PATH")}, ":"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to end the programs that the script starts in the background
	err = cmd.Run()
	if cmd.Process != nil {
		t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // an error means that all programs have ended
	}
	output, readErr := os.ReadFile(log.Name())
	if err := errors.Join(err, readErr, log.Close()); err != nil {
		logs, _ := filepath.Glob(filepath.Join(work, "*.log"))
		for _, path := range logs {
			raw, _ := os.ReadFile(path)
			output = fmt.Appendf(output, "--- last lines of %s\n%s", path, raw[max(0, len(raw)-1000):])
		}
		t.Fatalf("%v\n%s", err, output)
	}
	for _, want := range []string{"hcloud://1\n", "hcloud://2\n", "\nweb-", "mount-tester new file"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("the output of the commands does not contain %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", output)
	}
}

// guideCommands returns the commands in a section of a guide. The commands are in blocks of the
// type console. Each command begins with "$ ".
func guideCommands(t *testing.T, guide, heading string) string {
	t.Helper()
	_, section, found := strings.Cut(guide, heading+"\n")
	if !found {
		t.Fatalf("the guide has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	commands, inside := "", false
	for line := range strings.Lines(section) {
		line = strings.TrimPrefix(line, "   ") // the blocks are in a numbered list
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console\n"
		case inside:
			commands += strings.TrimPrefix(line, "$ ")
		}
	}
	return commands
}
