package real

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inContainer is an environment variable. The test sets it only for its process in the container.
const inContainer = "REAL_TEST_IN_CONTAINER"

// TestOpenContainer starts the test program again in a container. The container sees the cgroup of
// its processes as the root cgroup. The cgroup file system is mounted read-only. After
// OpenContainer, the test creates a machine's cgroups below the root cgroup. It proves that
// the machine's cgroups have the necessary controllers.
func TestOpenContainer(t *testing.T) {
	if os.Getenv(inContainer) != "" {
		insideContainer(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	host, err := listHierarchies()
	if err != nil {
		t.Fatal(err)
	}
	if len(host) != 1 || !host[0].unified {
		t.Skip("this host has cgroup v1 controllers: run make vm-test")
	}
	mine := cgroup{host, "cloudsim-test"}
	if err := mine.create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mine.destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	at, err := os.Open(mine.pathIn(host[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inContainer+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWPID | unix.CLONE_NEWNET,
		UseCgroupFD: true, CgroupFD: int(at.Fd()),
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("test in the container: %v\n%s", err, out)
	}
}

func insideContainer(t *testing.T) {
	const at = "/sys/fs/cgroup"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(unix.Mount("proc", "/proc", "proc", 0, ""))
	must(unix.Unmount(at, unix.MNT_DETACH))
	must(unix.Mount("cgroup2", at, "cgroup2", unix.MS_RDONLY, ""))
	if err := os.Mkdir(at+"/early", 0o755); !errors.Is(err, unix.EROFS) {
		t.Fatalf("the test does not run in a container: %v", err)
	}
	must(OpenContainer())
	own, err := os.ReadFile("/proc/self/cgroup")
	if string(own) != "0::/container\n" {
		t.Errorf("cgroup of the container's processes: got %q, %v", own, err)
	}
	all, err := listHierarchies()
	must(err)
	machine := cgroup{all, "lab"}.child("i-000001")
	must(machine.child("machine").create())
	must(machine.setLimits(size{memory: 64 << 20, cpus: 1}))
	for file, want := range map[string]string{"memory.max": "67108864", "cpu.max": "100000 100000"} {
		if raw, err := os.ReadFile(filepath.Join(machine.pathIn(all[0]), file)); strings.TrimSpace(string(raw)) != want {
			t.Errorf("%s is %q, %v, want %s", file, raw, err, want)
		}
	}
	passed, err := os.ReadFile(filepath.Join(machine.pathIn(all[0]), "cgroup.subtree_control"))
	for _, c := range []string{"cpu", "cpuset", "memory", "pids"} {
		if !slices.Contains(strings.Fields(string(passed)), c) {
			t.Errorf("a machine's kubelet gets the controllers %q, %v, without %s", passed, err, c)
		}
	}
	must(unix.Access("/dev/loop-control", unix.R_OK|unix.W_OK)) // a device of the kernel
}
