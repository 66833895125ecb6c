package real

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/loop"
	"github.com/cloudsim-dev/allinone/lab/real/boot"
)

// Volumes holds the settings for volumes of pods on machines. Each machine runs the node part
// of a CSI driver.
type Volumes struct {
	Name      string   // name of the driver
	ServeAs   []string // legacy names under which the driver also answers
	URL       string   // URL of the cloud for machines
	TokenFile string   // file with the driver's token for the cloud
}

// Paths in a machine.
const (
	driverCred = etcKubernetes + "/csi.token"
	kubeletDir = "/var/lib/kubelet"
)

// disksDir returns the folder path that identifies the loop devices of a hypervisor. The kernel
// stores a file path for each loop device. A device belongs to the hypervisor if its stored path
// begins with this folder path. In machines from an earlier version of the hypervisor, the folder
// contains the disks of the cloud. Newer machines do not have the folder, but the paths of their
// devices still begin with this folder path.
func disksDir(name string) string { return filepath.Join("/var/lib", name, "disks") }

// detachDisks detaches the loop devices of a hypervisor's disks. It skips devices that a running
// machine uses. The list firstPIDs holds the pid of each running machine's first process.
// detachDisks also skips the devices of machines with their own /dev, because machineDevices
// manages these devices. The function hasOwnDev reports whether the machine of an instance has its
// own /dev.
//
// In machines from an earlier version of the hypervisor, the CSI driver made the device of each
// disk. The kubelet made a second loop device to lock the device of a raw volume. detachDisks
// detaches both devices, because they remain after the end of the machine.
func detachDisks(name string, firstPIDs []int, hasOwnDev func(instance string) bool) error {
	all, err := loop.List()
	if err != nil {
		return err
	}
	shown, err := loopsShownTo(firstPIDs)
	if err != nil {
		return err
	}
	for _, l := range all {
		if !isDiskOf(name, l) || shown[l.Number] || l.Node != "" && hasOwnDev(l.Node) {
			continue
		}
		for _, lock := range all {
			if lock.Of == unix.Mkdev(loop.Major, uint32(l.Number)) { //nolint:gosec // the number comes from the kernel
				err = errors.Join(err, detachLoop(lock))
			}
		}
		err = errors.Join(err, detachLoop(l))
	}
	return err
}

// isDiskOf reports whether a loop device belongs to the hypervisor with the given name.
func isDiskOf(name string, l loop.Status) bool {
	return strings.HasPrefix(l.Name, disksDir(name)+"/")
}

func detachLoop(l loop.Status) error {
	d, err := loop.Open(l.Number)
	if err != nil || d == nil {
		return err
	}
	return d.Detach()
}

// loopsShownTo returns the numbers of the loop devices that the given processes can use. A process
// can use a loop device if its mount namespace contains a mount of the device file, or a mount of
// the file system on the device.
func loopsShownTo(pids []int) (map[int]bool, error) {
	shown := map[int]bool{}
	for _, pid := range pids {
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "mountinfo"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESRCH) {
			continue // the process has just ended
		}
		if err != nil {
			return nil, err
		}
		mounts, err := mountinfo.GetMountsFromReader(bytes.NewReader(raw), nil)
		if err != nil {
			return nil, err
		}
		for _, m := range mounts {
			if m.Major == loop.Major {
				shown[m.Minor] = true
			}
			if n, err := strconv.Atoi(strings.TrimPrefix(m.Root, "/loop")); err == nil && m.FSType == "devtmpfs" {
				shown[n] = true
			}
		}
	}
	return shown, nil
}

// detachDisks detaches the disks that no running machine uses.
func (h *hypervisor) detachDisks() error {
	pids, err := h.cgroup.pids()
	if err != nil {
		return err
	}
	first := slices.DeleteFunc(pids, func(pid int) bool { return !isFirst(pid) })
	return detachDisks(h.cfg.Name, first, func(instance string) bool {
		return isMounted(folder(filepath.Join(h.cfg.Dir, "machines", instance)).path("dev"))
	})
}

// addVolumes adds the CSI driver's node part to the boot settings of a machine.
func (f folder) addVolumes(s *boot.Spec, i cloudsim.Instance, v *Volumes) error {
	if v == nil {
		return nil
	}
	token, err := os.ReadFile(v.TokenFile)
	if err != nil {
		return fmt.Errorf("token of the CSI driver: %w", err)
	}
	if err := f.writeFile(driverCred, token, 0o600); err != nil {
		return err
	}
	registry, sockets := filepath.Join(kubeletDir, "plugins_registry"), filepath.Join(kubeletDir, "plugins", v.Name)
	for _, dir := range []string{"disk/kubelet/plugins_registry", "disk/kubelet/plugins/" + v.Name} {
		if err := f.makeDir(dir, 0o750); err != nil {
			return err
		}
	}
	s.Programs = append(s.Programs, boot.Program{
		Name: "csi", Path: filepath.Join(ownDir, "allinone"), Log: filepath.Join(logDir, "csi.log"),
		Args: []string{
			"csi", "--mode=node", "--driver-name=" + v.Name, "--node-instance=" + string(i.ID), "--disks-dir=" + cloudsim.DiskLinks,
			"--endpoint=unix://" + filepath.Join(sockets, "csi.sock"), "--kubelet-registration-dir=" + registry,
			"--serve-as=" + strings.Join(v.ServeAs, ","), "--cloud-url=" + v.URL, "--cloud-token-file=" + driverCred,
		},
	})
	return nil
}
