package real

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Finding is the result of one check of the host.
type Finding struct {
	Name string
	// Problem describes the missing or broken part. If the check found no
	// problem, Problem is "".
	Problem string
	// Needed is true if no machine can run while the problem exists. If Needed is false,
	// machines run with the restriction that Problem describes.
	Needed bool
	Fix    string // advice
}

// Doctor checks whether this host can run machines that store their files in dir or in its
// subfolders. It changes nothing.
func Doctor(dir string, p Programs) []Finding {
	return slices.Concat(
		[]Finding{checkRoot()}, checkCapabilities(), []Finding{checkCgroups(), checkNamespaces(), checkOverlay(dir), checkNFT(), checkNetfilter(), checkInotify(), checkInternet()}, checkPrograms(p))
}

func checkRoot() Finding {
	f := Finding{Name: "root", Needed: true, Fix: "run the command with sudo"}
	if os.Geteuid() != 0 {
		f.Problem = "machines need namespaces, mounts and links, which only root can create"
	}
	return f
}

// usedCapabilities lists the Linux capabilities that the hypervisor or programs in
// machines use.
var usedCapabilities = []struct {
	name   string
	bit    int
	needed bool
	lost   string
}{
	{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN, true, "the lab cannot create namespaces and mounts"},
	{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN, true, "the lab cannot create links and routes"},
	{"CAP_SYS_RESOURCE", unix.CAP_SYS_RESOURCE, false, "pods keep the oom_score_adj of the container runtime, so the kernel may kill the wrong process when memory is short"},
}

func checkCapabilities() []Finding {
	raw, err := os.ReadFile("/proc/self/status")
	var have uint64
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "CapEff:"); ok {
			_, err = fmt.Sscanf(strings.TrimSpace(rest), "%x", &have)
		}
	}
	var all []Finding
	for _, c := range usedCapabilities {
		f := Finding{Name: c.name, Needed: c.needed, Fix: "grant this capability to the container or VM in which the lab runs"}
		switch {
		case err != nil:
			f.Problem = err.Error()
		case have&(1<<c.bit) == 0:
			f.Problem = c.lost
		}
		all = append(all, f)
	}
	return all
}

func checkCgroups() Finding {
	f := Finding{Name: "cgroups", Needed: true, Fix: "mount /sys/fs/cgroup, and enable the controllers cpu, cpuset, memory and pids in the kernel"}
	all, err := listHierarchies()
	if err != nil {
		f.Problem = err.Error()
		return f
	}
	have := map[string]bool{}
	for _, h := range all {
		for _, c := range h.controllers {
			have[c] = true
		}
		if h.unified {
			raw, err := os.ReadFile(filepath.Join(h.path, "cgroup.controllers"))
			if err != nil {
				f.Problem = err.Error()
			}
			for c := range strings.FieldsSeq(string(raw)) {
				have[c] = true
			}
		}
	}
	var missing []string
	for _, c := range []string{"cpu", "cpuset", "memory", "pids"} {
		if !have[c] {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		f.Problem = "cgroup controllers are missing: " + strings.Join(missing, ", ")
	}
	return f
}

func checkNamespaces() Finding {
	f := Finding{Name: "namespaces", Needed: true, Fix: "use a kernel with CONFIG_NAMESPACES and all types of namespaces"}
	var missing []string
	for _, kind := range []string{"ipc", "mnt", "net", "pid", "uts"} {
		if _, err := os.Stat("/proc/self/ns/" + kind); err != nil {
			missing = append(missing, kind)
		}
	}
	if len(missing) > 0 {
		f.Problem = "the kernel does not support namespaces of the types: " + strings.Join(missing, ", ")
	}
	return f
}

// checkOverlay checks whether the kernel has overlayfs and whether the file system of dir can hold
// the root file systems of containers.
func checkOverlay(dir string) Finding {
	f := Finding{Name: "overlayfs", Needed: true, Fix: "run modprobe overlay, and choose a --data-dir on ext4, xfs or btrfs"}
	known, err := os.ReadFile("/proc/filesystems")
	if (err != nil || !strings.Contains(string(known), "\toverlay\n")) && !isLoadable("overlay") {
		f.Problem = "the kernel does not support overlayfs"
		return f
	}
	var fs unix.Statfs_t
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if unix.Statfs(dir, &fs) == nil {
			break
		}
	}
	if fs.Type == unix.OVERLAYFS_SUPER_MAGIC || fs.Type == unix.NFS_SUPER_MAGIC {
		f.Problem = fmt.Sprintf("%s is on a file system that does not support overlays", dir)
	}
	return f
}

// isLoadable reports whether the kernel can load a module. The kernel loads a loadable module when
// a program first uses it.
func isLoadable(module string) bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	modules, err := os.ReadFile(filepath.Join("/lib/modules", unix.ByteSliceToString(u.Release[:]), "modules.dep"))
	return err == nil && strings.Contains(string(modules), "/"+module+".ko")
}

// checkNFT checks whether the program nft works, because kube-proxy runs nft.
func checkNFT() Finding {
	f := Finding{Name: "nftables", Needed: true, Fix: "apt-get install nftables"}
	path, err := exec.LookPath("nft")
	if err != nil {
		f.Problem = "the program nft, which kube-proxy runs, is missing"
		return f
	}
	if !slices.ContainsFunc([]string{"/usr", "/bin", "/sbin"}, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
		f.Problem = fmt.Sprintf("nft is at %s, but machines can use only the host's /usr, /bin and /sbin", path)
		return f
	}
	if os.Geteuid() == 0 {
		if out, err := exec.Command(path, "list", "tables").CombinedOutput(); err != nil {
			f.Problem, f.Fix = "nft does not work: "+lastLines(string(out), 1), "modprobe nf_tables, or use a kernel with CONFIG_NF_TABLES"
		}
	}
	return f
}

// checkInternet checks whether machines can reach the internet through this host.
func checkInternet() Finding {
	f := Finding{Name: "internet"}
	access, err := FindInternet()
	switch {
	case err != nil:
		f.Problem, f.Fix = err.Error(), "start the lab with --no-internet"
	case !access.On():
		f.Problem, f.Fix = "machines have no internet access: this host has no default route", "add a default route, or load images with `allinone images load`"
	case os.Geteuid() == 0 && dropsForwarded():
		f.Problem = "the firewall of this host drops the packets of machines to the internet"
		f.Fix = "iptables -I FORWARD -i csim+ -j ACCEPT; iptables -I FORWARD -o csim+ -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
	}
	return f
}

// dropsForwarded reports whether iptables drops the packets that the host forwards for the lab. It
// returns false if the chain DOCKER-USER exists, because the lab can accept its packets in this
// chain.
func dropsForwarded() bool {
	policy, err := runFilter("", "iptables", "-w", "-S", "FORWARD")
	if err != nil || !strings.HasPrefix(policy, "-P FORWARD DROP") {
		return false
	}
	_, err = runFilter("", "iptables", "-w", "-n", "-L", dockerChain)
	return err != nil
}

// These numbers estimate how many inotify instances a lab uses. The kernel limits the
// instances of each user. The programs on all machines run as root, so all machines
// share the limit of root.
const (
	machineInotify = 9 // kubelet 6, containerd 2, kube-proxy 1
	labInotify     = 20
	fewMachines    = 3
)

func checkInotify() Finding {
	f := Finding{Name: "inotify", Fix: "sysctl -w fs.inotify.max_user_instances=1024"}
	raw, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	var most int
	if err == nil {
		_, err = fmt.Sscan(string(raw), &most)
	}
	if err != nil {
		f.Problem = err.Error()
		return f
	}
	f.Problem = inotifyProblem(most, inotifyInstances())
	return f
}

// inotifyProblem returns "" if enough inotify instances are free for machines. If too few instances
// are free, inotifyProblem describes the problem. The parameter maxInstances is the kernel's limit,
// and usedInstances is the number of instances in use.
func inotifyProblem(maxInstances, usedInstances int) string {
	if machines := max(maxInstances-usedInstances-labInotify, 0) / machineInotify; machines < fewMachines {
		return fmt.Sprintf("fs.inotify.max_user_instances is %d, of which %d are in use: this is enough for %d machines, and the kubelets of more machines end with \"too many open files\"", maxInstances, usedInstances, machines)
	}
	return ""
}

// inotifyInstances counts the inotify instances of all processes that this process can
// inspect.
func inotifyInstances() (n int) {
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*") // fails only for an invalid pattern
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

func checkPrograms(p Programs) []Finding {
	var all []Finding
	required := p.Required()
	for _, name := range sortedKeys(required) {
		f := Finding{Name: name, Needed: true, Fix: "make build machine"}
		if info, err := os.Stat(required[name]); errors.Is(err, os.ErrNotExist) {
			f.Problem = "is not at " + required[name]
		} else if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			f.Problem = "is not executable at " + required[name]
		}
		all = append(all, f)
	}
	return all
}
