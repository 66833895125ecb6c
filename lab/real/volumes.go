package real

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab/real/boot"
)

// Volumes are what lets pods on machines have volumes: a CSI driver's node half
// as one more program of each.
type Volumes struct {
	Name      string   // of the driver
	ServeAs   []string // legacy names that it answers under, too
	Driver    string   // program whose subcommand csi is the driver
	Disks     string   // the cloud's disks; a machine sees them where others see /dev/disk
	URL       string   // of the cloud, from a machine
	TokenFile string   // what the driver calls it with
}

// Where a machine has these.
const (
	driverDir  = "/opt/csi"
	driverCred = etcKubernetes + "/csi.token"
	kubeletDir = "/var/lib/kubelet"
)

// disksDir is where the machines of a lab see the cloud's disks. The name of the
// lab is in it, so that what is left of a lab can be told from others': the
// kernel shows a loop device's file as the machine calls it.
func disksDir(name string) string { return filepath.Join("/var/lib", name, "disks") }

// detachDisks takes away the loop devices of a lab's machines, which outlive
// them if they were shown to pods as devices.
func detachDisks(name string) error {
	there, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, f := range there {
		raw, err := os.ReadFile(f)
		if err != nil || !strings.HasPrefix(string(raw), disksDir(name)+"/") {
			continue
		}
		dev, err := os.Open("/dev/" + filepath.Base(filepath.Dir(filepath.Dir(f))))
		if err != nil {
			return err
		}
		err = unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0)
		if err = errors.Join(err, dev.Close()); err != nil && !errors.Is(err, unix.ENXIO) {
			return fmt.Errorf("%s: %w", dev.Name(), err)
		}
	}
	return nil
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
	if err := os.WriteFile(f.path("etc/kubernetes/csi.token"), token, 0o600); err != nil {
		return err
	}
	registry, sockets := filepath.Join(kubeletDir, "plugins_registry"), filepath.Join(kubeletDir, "plugins", v.Name)
	for _, dir := range []string{"disk/kubelet/plugins_registry", "disk/kubelet/plugins/" + v.Name} {
		if err := os.MkdirAll(f.path(dir), 0o750); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(v.Disks, 0o700); err != nil {
		return err
	}
	s.Binds = append(s.Binds,
		boot.Bind{From: v.Driver, To: filepath.Join(driverDir, "allinone"), ReadOnly: true},
		boot.Bind{From: v.Disks, To: disksDir})
	s.Programs = append(s.Programs, boot.Program{
		Name: "csi", Path: filepath.Join(driverDir, "allinone"), Log: filepath.Join(logDir, "csi.log"),
		Args: []string{
			"csi", "--mode=node", "--driver-name=" + v.Name, "--node-instance=" + string(i.ID), "--disks-dir=" + disksDir,
			"--endpoint=unix://" + filepath.Join(sockets, "csi.sock"), "--kubelet-registration-dir=" + registry,
			"--serve-as=" + strings.Join(v.ServeAs, ","), "--cloud-url=" + v.URL, "--cloud-token-file=" + driverCred,
		},
	})
	return nil
}
