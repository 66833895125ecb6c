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

// Volumes are what lets pods on machines have volumes: a CSI driver's node half
// as one more program of each.
type Volumes struct {
	Name      string   // of the driver
	ServeAs   []string // legacy names that it answers under, too
	Disks     string   // the cloud's disks; a machine sees them where others see /dev/disk
	URL       string   // of the cloud, from a machine
	TokenFile string   // what the driver calls it with
}

// Where a machine has these.
const (
	driverCred = etcKubernetes + "/csi.token"
	kubeletDir = "/var/lib/kubelet"
)

// disksDir is where the machines of a hypervisor of that name see the cloud's
// disks. The name is in it, so that what is left of them can be told from
// others': a loop device is called as its file was when it was attached.
func disksDir(name string) string { return filepath.Join("/var/lib", name, "disks") }

// detachDisks detaches the loop devices of a hypervisor's disks that none of its
// machines shows: a device that a pod used as a raw volume outlives the machine.
// So does the lock that a kubelet keeps on such a device, which is a loop device
// of it. Each machine is given by its first process.
func detachDisks(name string, machines []int) error {
	all, err := loop.List()
	if err != nil {
		return err
	}
	shown, err := loopsShownTo(machines)
	if err != nil {
		return err
	}
	for _, l := range all {
		if !isDiskOf(name, l) || shown[l.Number] {
			continue
		}
		for _, lock := range all {
			if lock.Of == unix.Mkdev(loop.Major, uint32(l.Number)) { //nolint:gosec // the kernel's own number
				err = errors.Join(err, detach(lock))
			}
		}
		err = errors.Join(err, detach(l))
	}
	return err
}

// isDiskOf reports whether a device is a disk that the machines of a hypervisor of
// that name see.
func isDiskOf(name string, l loop.Status) bool {
	return strings.HasPrefix(l.Name, disksDir(name)+"/")
}

// detach detaches the file of a device.
func detach(l loop.Status) error {
	d, err := loop.Open(l.Number)
	if err != nil || d == nil {
		return err
	}
	return d.Detach()
}

// loopsShownTo returns the loop devices that are mounted for the processes: the
// device's file, or a filesystem on it.
func loopsShownTo(pids []int) (map[int]bool, error) {
	shown := map[int]bool{}
	for _, pid := range pids {
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "mountinfo"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESRCH) {
			continue // it has just ended
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

// detachDisks detaches the disks that no running machine shows.
func (h *hypervisor) detachDisks() error {
	if h.cfg.Volumes == nil {
		return nil
	}
	pids, err := h.cgroup.processes()
	if err != nil {
		return err
	}
	return detachDisks(h.cfg.Name, slices.DeleteFunc(pids, func(pid int) bool { return !isFirst(pid) }))
}

// volumes adds to how a machine boots what its pods' volumes need.
func (f folder) volumes(s *boot.Spec, i cloudsim.Instance, v *Volumes, disksDir string) error {
	if v == nil {
		return nil
	}
	token, err := os.ReadFile(v.TokenFile)
	if err != nil {
		return fmt.Errorf("the driver's token: %w", err)
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
	if err := os.MkdirAll(v.Disks, 0o700); err != nil {
		return err
	}
	s.Binds = append(s.Binds, boot.Bind{From: v.Disks, To: disksDir})
	s.Programs = append(s.Programs, boot.Program{
		Name: "csi", Path: filepath.Join(ownDir, "allinone"), Log: filepath.Join(logDir, "csi.log"),
		Args: []string{
			"csi", "--mode=node", "--driver-name=" + v.Name, "--node-instance=" + string(i.ID), "--disks-dir=" + disksDir,
			"--endpoint=unix://" + filepath.Join(sockets, "csi.sock"), "--kubelet-registration-dir=" + registry,
			"--serve-as=" + strings.Join(v.ServeAs, ","), "--cloud-url=" + v.URL, "--cloud-token-file=" + driverCred,
		},
	})
	return nil
}
