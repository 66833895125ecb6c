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

// detachDisks takes away the loop devices of a hypervisor's disks that none of
// its machines shows: one that pods had as a device outlives the machine. So does
// the lock that a kubelet keeps on such a device, which is a loop device of it.
// The machines are first processes.
func detachDisks(name string, machines []int) error {
	there, err := loopDevices()
	if err != nil {
		return err
	}
	shown, err := loopsShownTo(machines)
	if err != nil {
		return err
	}
	for _, l := range there {
		if !l.isDiskOf(name) || shown[l.number] {
			continue
		}
		for _, lock := range there {
			if lock.of == unix.Mkdev(loopMajor, uint32(l.number)) { //nolint:gosec // the kernel's own number
				err = errors.Join(err, lock.detach())
			}
		}
		err = errors.Join(err, l.detach())
	}
	return err
}

// loopsShownTo are the loop devices of which processes see a mount: of the
// device's file, or of a filesystem on it.
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
			if m.Major == loopMajor {
				shown[m.Minor] = true
			}
			if n, err := strconv.Atoi(strings.TrimPrefix(m.Root, "/loop")); err == nil && m.FSType == "devtmpfs" {
				shown[n] = true
			}
		}
	}
	return shown, nil
}

// loopMajor is the kernel's number for loop devices: devices.txt.
const loopMajor = 7

// loopDevice is one that is in use.
type loopDevice struct {
	number int
	name   string // of its file, as who attached it called it
	of     uint64 // the device that the file is, 0 if it is none
}

func (l loopDevice) path() string { return "/dev/loop" + strconv.Itoa(l.number) }

// isDiskOf reports whether it is one of the disks that the machines of a hypervisor
// of that name see.
func (l loopDevice) isDiskOf(name string) bool { return strings.HasPrefix(l.name, disksDir(name)+"/") }

// loopDevices are those of the host. One that goes meanwhile is not there.
func loopDevices() (all []loopDevice, err error) {
	there, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range there {
		l := loopDevice{}
		l.number, err = strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(f))), "loop"))
		if err != nil {
			return nil, err
		}
		dev, err := os.Open(l.path())
		if isNoDevice(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
		if err = errors.Join(err, dev.Close()); errors.Is(err, unix.ENXIO) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.path(), err)
		}
		// Not what sysfs says: that is the file's path in the mounts of who attached
		// it, and of a machine that is gone no more than its end.
		l.of, l.name = info.Rdevice, unix.ByteSliceToString(info.File_name[:])
		all = append(all, l)
	}
	return all, err
}

// isNoDevice reports whether a loop device could not be opened because it is
// being let go, as it is whenever the last one to use it has ended.
func isNoDevice(err error) bool {
	return errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist)
}

// detach takes the file from behind l; the kernel waits for who has it open.
func (l loopDevice) detach() error {
	dev, err := os.Open(l.path())
	if isNoDevice(err) {
		return nil
	}
	if err != nil {
		return err
	}
	err = unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0)
	if err = errors.Join(err, dev.Close()); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("%s: %w", l.path(), err)
	}
	return nil
}

// detachDisks takes away what no machine that runs shows.
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
