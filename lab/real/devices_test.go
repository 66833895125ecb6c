package real

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/internal/eventually"
	"github.com/cloudsim-dev/allinone/internal/loop"
)

// deviceBench is a hypervisor without a cloud, for tests of the devices of machines.
type deviceBench struct {
	t *testing.T
	h *hypervisor
}

func newDeviceBench(t *testing.T) *deviceBench {
	t.Helper()
	if testing.Short() {
		t.Skip("short mode: the test creates loop devices")
	}
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	all, err := listHierarchies()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("cloudsim-devices-%d", os.Getpid())
	h := &hypervisor{log: slog.New(slog.NewTextHandler(t.Output(), nil)), cgroup: cgroup{all, name}, cfg: Config{
		Dir: filepath.Join(t.TempDir(), "a [lab]"), Name: name,
		Disks: Disks{Dir: t.TempDir(), Links: func(id cloudsim.DiskID) []string { return []string{"/dev/disk/by-id/other-" + string(id)} }},
	}}
	t.Cleanup(func() {
		if err := cleanMachines(context.WithoutCancel(t.Context()), h.cfg.Dir, name); err != nil {
			t.Error(err)
		}
	})
	return &deviceBench{t, h}
}

// machine returns the devices of a new machine that is on.
func (b *deviceBench) machine(id cloudsim.InstanceID) *machineDevices {
	b.t.Helper()
	m := b.h.newMachine(id)
	if err := errors.Join(m.cgroup.child("machine").create(), os.MkdirAll(string(m.folder), 0o700)); err != nil {
		b.t.Fatal(err)
	}
	if err := m.devices.powerOn(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return m.devices
}

// attach tells the hypervisor that disk-000001 has the given attachments, and no others. It creates
// the disk's file if the file does not exist.
func (b *deviceBench) attach(current ...cloudsim.Attachment) {
	b.t.Helper()
	path := filepath.Join(b.h.cfg.Disks.Dir, "disk-000001.img")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<30)); err != nil {
			b.t.Fatal(err)
		}
	}
	b.h.wantedDisks.replace([]cloudsim.Disk{{ID: "disk-000001", SizeGiB: 1, Attachments: current}})
}

func (b *deviceBench) update(d *machineDevices) {
	b.t.Helper()
	if err := d.update(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func attachedTo(id cloudsim.InstanceID) cloudsim.Attachment {
	return cloudsim.Attachment{Instance: id, State: cloudsim.AttachmentAttached}
}

// listNodes returns the loop devices and the links to disks in the /dev of a machine.
func (d *machineDevices) listNodes() (all []string) {
	for _, pattern := range []string{"loop*", "disk/by-id/*"} {
		found, _ := glob(d.folder.path("dev"), pattern)
		for _, f := range found {
			all = append(all, filepath.Base(f))
		}
	}
	return all
}

// commandInside returns a command that runs a shell script in the cgroup of the machine. The
// working folder of the script is the machine's /dev.
func (d *machineDevices) commandInside(script string) *exec.Cmd {
	argv := d.cgroup.child("machine").joinCommand("sh", "-c", script)
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // a script of this test
	cmd.Dir = d.folder.path("dev")
	return cmd
}

// TestDevicesOfMachine proves that a machine has exactly the devices of its attached disks. The
// machine cannot open the device of another machine, even if the machine makes a device node for
// this device.
func TestDevicesOfMachine(t *testing.T) {
	b := newDeviceBench(t)
	b.attach(attachedTo("i-000001"))
	one, two := b.machine("i-000001"), b.machine("i-000002")
	have := one.have["disk-000001"]
	want := []string{nodeName(have.number), nodeName(have.spareLoop), "cloudsim-disk-000001", "other-disk-000001"}
	if got := one.listNodes(); !slices.Equal(got, want) {
		t.Fatalf("devices of the machine: got %v, want %v", got, want)
	}
	if got := two.listNodes(); len(got) > 0 {
		t.Errorf("devices of another machine: got %v, want none", got)
	}
	for script, works := range map[string]bool{
		"head -c 5 disk/by-id/cloudsim-disk-000001 | wc -c | grep -q 5":          true,
		"dd if=zero of=disk/by-id/other-disk-000001 bs=4096 count=1 status=none": true,
		"head -c 1 null && echo x >null && head -c 1 urandom":                    true,
		"mknod vda b 254 0 && head -c 1 vda":                                     false,
		"mknod mem c 1 1 && head -c 1 mem":                                       false,
	} {
		if out, err := one.commandInside(script).CombinedOutput(); (err == nil) != works {
			t.Errorf("%s: got %v, want success %t: %s", script, err, works, out)
		}
	}
	out, err := two.commandInside(fmt.Sprintf("mknod stolen b %d %d && head -c 1 stolen", loop.Major, have.number)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not permitted") {
		t.Errorf("another machine opened the device: %v: %s", err, out)
	}

	// The device grows with the file of its disk.
	if err := os.Truncate(filepath.Join(b.h.cfg.Disks.Dir, "disk-000001.img"), 2<<30); err != nil {
		t.Fatal(err)
	}
	b.update(one)
	if raw, err := os.ReadFile("/sys/block/" + nodeName(have.number) + "/size"); err != nil || strings.TrimSpace(string(raw)) != strconv.Itoa(2<<30/512) {
		t.Errorf("device after the disk has grown: got %s sectors, %v", raw, err)
	}

	// A later hypervisor takes over the devices.
	later := b.h.newMachine("i-000001").devices
	if err := later.adopt(); err != nil || later.have["disk-000001"] != (device{number: have.number, spareLoop: have.spareLoop}) {
		t.Errorf("adopted devices: got %+v, %v, want %+v", later.have, err, one.have)
	}
	b.update(later)
	if got := later.listNodes(); !slices.Equal(got, want) {
		t.Errorf("devices after another hypervisor took over: got %v, want %v", got, want)
	}

	b.attach()
	b.update(later)
	if got := later.listNodes(); len(got) > 0 {
		t.Errorf("devices after the detachment: got %v, want none", got)
	}
	waitReleased(t, have.number)
	if err := later.powerOff(t.Context()); err != nil || isMounted(later.folder.path("dev")) {
		t.Errorf("power off: got error %v, /dev mounted %t; want no error, false", err, isMounted(later.folder.path("dev")))
	}
}

// waitReleased waits until a loop device has no backing file. A program of the host, such as udev,
// may still read the device. In this case, the kernel detaches the file when the program closes the
// device.
func waitReleased(t *testing.T, number int) {
	t.Helper()
	eventually.True(t, "the loop device has no file", func() bool {
		_, err := loop.BackingFile(number)
		return err != nil
	})
}

// TestReadOnlyDevice proves that a machine cannot write to a disk that is attached read-only. After
// the disk is attached for writing, the machine can write to it.
func TestReadOnlyDevice(t *testing.T) {
	b := newDeviceBench(t)
	readOnly := attachedTo("i-000001")
	readOnly.ReadOnly = true
	b.attach(readOnly)
	d := b.machine("i-000001")
	write := "printf x | dd of=disk/by-id/cloudsim-disk-000001 conv=notrunc status=none"
	if d.commandInside(write).Run() == nil {
		t.Error("write to a read-only disk succeeded")
	}
	b.attach(attachedTo("i-000001"))
	b.update(d)
	if out, err := d.commandInside(write).CombinedOutput(); err != nil {
		t.Errorf("write to a disk that is attached for writing: %v: %s", err, out)
	}
}

// TestForcedDetachFences detaches a disk by force while its machine is frozen, and attaches the
// disk to another machine. It proves that the frozen machine can no longer write to the disk.
func TestForcedDetachFences(t *testing.T) {
	b := newDeviceBench(t)
	b.attach(attachedTo("i-000001"))
	one, two := b.machine("i-000001"), b.machine("i-000002")
	// The process opens the device, and writes to it in a loop until a write fails.
	old := one.commandInside("exec 3<>disk/by-id/cloudsim-disk-000001; while printf old >&3; do :; done")
	var stderr bytes.Buffer
	old.Stderr = &stderr
	if err := old.Start(); err != nil {
		t.Fatal(err)
	}
	data := func() []byte {
		raw := make([]byte, 3)
		f, err := os.Open(filepath.Join(b.h.cfg.Disks.Dir, "disk-000001.img"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.ReadAt(raw, 0); err != nil {
			t.Fatal(err)
		}
		return raw
	}
	sync := func() {
		if out, err := exec.Command("blockdev", "--flushbufs", loop.Path(one.have["disk-000001"].number)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	eventually.True(t, "the old machine writes", func() bool { sync(); return string(data()) == "old" })
	freeze(t, one.cgroup, true)
	defer freeze(t, one.cgroup, false)

	b.attach(attachedTo("i-000002")) // as after a forced detachment and a new attachment
	b.update(two)                    // before the hypervisor updates the old machine
	out, err := two.commandInside("printf new | dd of=disk/by-id/cloudsim-disk-000001 conv=notrunc,fsync status=none").CombinedOutput()
	if err != nil {
		t.Fatalf("write of the new machine: %v: %s", err, out)
	}
	freeze(t, one.cgroup, false)
	if err := old.Wait(); err != nil || stderr.Len() == 0 { // the shell ends when a write fails, and prints the reason
		t.Errorf("shell of the old machine: got error %v and output %q, want no error and the reason of the failed write", err, stderr.String())
	}
	if got := string(data()); got != "new" {
		t.Errorf("data of the disk: got %q, want the data of the new machine", got)
	}
	b.update(one)
	if got := one.listNodes(); len(got) > 0 {
		t.Errorf("devices of the old machine: got %v, want none", got)
	}
}

// TestBusySecondDevice detaches a disk while a program has the disk's second device open (see
// device.spareLoop). After the hypervisor has removed the first device, another program gets a
// device with the first device's number. The test proves that the hypervisor does not fence the
// other program's device. It also proves that the machine gets a working device when the disk is
// attached again.
func TestBusySecondDevice(t *testing.T) {
	b := newDeviceBench(t)
	b.attach(attachedTo("i-000001"))
	d := b.machine("i-000001")
	have := d.have["disk-000001"]
	holder, err := os.Open(loop.Path(have.spareLoop))
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	expectBusy := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := d.update(ctx); err == nil || !strings.Contains(err.Error(), "removing "+loop.Path(have.spareLoop)) {
			t.Fatalf("update while a program has the second device open: got error %v", err)
		}
	}
	b.attach()
	expectBusy()
	if now, _ := d.state(); len(now.Devices) != 1 || now.Devices[0].Ready || now.Devices[0].Error == "" {
		t.Errorf("report: got %+v, want one disk with an error", now.Devices)
	}

	waitReleased(t, have.number)
	checkOther := otherWithNumber(t, have.number)
	expectBusy()
	checkOther()

	b.attach(attachedTo("i-000001"))
	expectBusy()
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	b.update(d)
	if out, err := d.commandInside("printf x | dd of=disk/by-id/cloudsim-disk-000001 conv=notrunc,fsync status=none").CombinedOutput(); err != nil {
		t.Errorf("write after the disk is attached again: %v: %s", err, out)
	}
}

// TestFencedByAnotherMachine moves a disk from machine 1 to machine 2. The hypervisor updates
// machine 2 first. This update fences the device of machine 1, so the new device of machine 2 can
// get the same number. The test proves that the later update of machine 1 does not fence the device
// of machine 2. Between two updates of machine 2, the disk moves to machine 1 and back. The test
// proves that machine 2 then gets a working device.
func TestFencedByAnotherMachine(t *testing.T) {
	b := newDeviceBench(t)
	b.attach(attachedTo("i-000001"))
	one, two := b.machine("i-000001"), b.machine("i-000002")
	mustWrite := func(d *machineDevices) {
		t.Helper()
		if out, err := d.commandInside("printf x | dd of=disk/by-id/cloudsim-disk-000001 conv=notrunc,fsync status=none").CombinedOutput(); err != nil {
			t.Errorf("write: %v: %s", err, out)
		}
	}
	b.attach(attachedTo("i-000002"))
	b.update(two)
	mustWrite(two)
	b.update(one)
	mustWrite(two)
	if got := one.listNodes(); len(got) > 0 {
		t.Errorf("devices of the old machine: got %v, want none", got)
	}

	b.attach(attachedTo("i-000001"))
	b.update(one)
	b.attach(attachedTo("i-000002")) // the hypervisor has not updated the machine i-000002 in the meantime
	b.update(two)
	mustWrite(two)
}

// otherWithNumber makes a loop device with the given number. The device stands for the device of
// another program. The function check fails the test if the hypervisor has fenced the device. If a
// program outside of the test has taken the number, check does nothing.
func otherWithNumber(t *testing.T, number int) (check func()) {
	t.Helper()
	for range 8 { // the kernel chooses the lowest free number
		file := filepath.Join(t.TempDir(), "file")
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 1<<20)); err != nil {
			t.Fatal(err)
		}
		l, err := loop.New(t.Context(), t.Name(), "", file, false, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Detach(); err != nil {
				t.Error(err)
			}
		})
		if l.Number == number {
			return func() {
				t.Helper()
				if n, err := l.Size(); err != nil || n != 1<<20 {
					t.Errorf("device of another program: got %d bytes, %v, want %d", n, err, 1<<20)
				}
			}
		}
	}
	t.Logf("another program has taken the device number %d", number)
	return func() {}
}

// freeze freezes or thaws the processes of a cgroup. It uses the freezer of cgroup v1 if the host
// has this controller, else cgroup v2.
func freeze(t *testing.T, c cgroup, yes bool) {
	t.Helper()
	n := slices.IndexFunc(c.hierarchies, func(h hierarchy) bool { return h.hasController("freezer") })
	file, shown, want := "freezer.state", "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[yes]
	value := want
	if n < 0 {
		n = slices.IndexFunc(c.hierarchies, func(h hierarchy) bool { return h.unified })
		file, shown, value = "cgroup.freeze", "cgroup.events", map[bool]string{true: "1", false: "0"}[yes]
		want = "frozen " + value
	}
	dir := c.pathIn(c.hierarchies[n])
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the state of the cgroup is "+want, func() bool {
		raw, err := os.ReadFile(filepath.Join(dir, shown))
		return err == nil && strings.Contains(string(raw), want)
	})
}

// TestCleanDevices proves that cleanMachines removes the devices and the /dev of a machine.
func TestCleanDevices(t *testing.T) {
	b := newDeviceBench(t)
	b.attach(attachedTo("i-000001"))
	d := b.machine("i-000001")
	have := d.have["disk-000001"]
	if err := cleanMachines(t.Context(), b.h.cfg.Dir, b.h.cfg.Name); err != nil {
		t.Fatal(err)
	}
	waitReleased(t, have.number)
	if _, err := os.Stat("/sys/block/" + nodeName(have.spareLoop)); err == nil {
		t.Error("the second device still exists")
	}
	if isMounted(d.folder.path("dev")) {
		t.Error("the machine's /dev is still mounted")
	}
	if err := unix.Access(d.folder.path("dev", "null"), unix.F_OK); err == nil {
		t.Error("the machine's /dev still has devices")
	}
}

// If an error of a disk is too long, the report contains the beginning of the error. The error is
// cut between two characters, because the cloud refuses text that is not valid UTF-8.
func TestLongDeviceError(t *testing.T) {
	h := &hypervisor{cfg: Config{Name: "cloudsim-test"}}
	h.wantedDisks.replace([]cloudsim.Disk{{ID: "disk-000001", Attachments: []cloudsim.Attachment{{Instance: "i-000001"}}}})
	d := h.newDevices("i-000001", folder(t.TempDir()), cgroup{}, slog.New(slog.DiscardHandler))
	d.failed["disk-000001"] = errors.New("x" + strings.Repeat("ü", cloudsim.MaxDeviceError))
	now, known := d.state()
	if !known || len(now.Devices) != 1 {
		t.Fatalf("got the report %v, %v", now, known)
	}
	if got := now.Devices[0].Error; !utf8.ValidString(got) || len(got) != cloudsim.MaxDeviceError-1 {
		t.Errorf("got an error of %d bytes, valid: %v", len(got), utf8.ValidString(got))
	}
	if err := now.Validate(); err != nil {
		t.Error(err)
	}
	d.failed["disk-000001"] = errors.New("file \xff")
	if now, _ := d.state(); now.Devices[0].Error != "file " {
		t.Errorf("error with an invalid character: got %q, want it without the character", now.Devices[0].Error)
	}
}

// TestReportAfterLoadState proves that the hypervisor repeats its report if the cloud has lost the
// report. The cloud loses the report if it loads a state from a time before the report.
func TestReportAfterLoadState(t *testing.T) {
	cloud := cloudtest.Start(t)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	i, err := cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "one", Zone: "sim-1a", Type: "small"})
	ok(err)
	_, err = cloud.WaitOperation(t.Context(), i.Operation)
	ok(err)
	disk, err := cloud.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: "data", Zone: "sim-1a", Type: "balanced", SizeGiB: 1})
	ok(err)
	_, err = cloud.WaitOperation(t.Context(), disk.Operation)
	ok(err)
	h := &hypervisor{log: slog.New(slog.DiscardHandler), cfg: Config{Name: "cloudsim-test", Cloud: cloud}}
	d := h.newDevices(i.ID, folder(t.TempDir()), cgroup{}, h.log) // the machine is off, so it has all attached disks at its next start
	report := func() {
		t.Helper()
		all, _, err := cloudsim.All(t.Context(), cloud.ListDisks, cloudsim.ListOptions{})
		ok(err)
		h.wantedDisks.replace(all)
		ok(d.report(t.Context()))
	}
	report()
	disk, err = cloud.AttachDisk(t.Context(), disk.ID, cloudsim.AttachDisk{Instance: i.ID})
	ok(err)
	_, err = cloud.SaveState(t.Context(), cloudsim.SaveState{Name: "s"})
	ok(err)
	for _, step := range []string{"first report", "report after the load of a state"} {
		report()
		got, err := cloud.GetDisk(t.Context(), disk.ID)
		if err != nil || got.State != cloudsim.DiskInUse {
			t.Errorf("disk after the %s: got the state %s, %v; want %s", step, got.State, err, cloudsim.DiskInUse)
		}
		ok(cloud.LoadState(t.Context(), "s", cloudsim.LoadState{}))
	}
}

// TestEmptySecondDeviceFile proves that a disk can be detached and attached again even if its file
// in spareFolder is empty. This file contains the number of the disk's second loop device. After a
// power cut or when the host's disk is full, the file can be empty.
func TestEmptySecondDeviceFile(t *testing.T) {
	b := newDeviceBench(t)
	b.attach(attachedTo("i-000001"))
	d := b.h.newMachine("i-000001").devices
	empty := func() {
		t.Helper()
		if err := errors.Join(os.MkdirAll(d.folder.path(spareFolder), 0o700), os.WriteFile(d.folder.path(spareFolder, "disk-000001"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	empty()
	if err := d.powerOff(t.Context()); err != nil {
		t.Errorf("power off: %v", err)
	}
	if left, err := os.ReadDir(d.folder.path(spareFolder)); err != nil || len(left) > 0 {
		t.Errorf("files of second devices after power off: got %v, %v, want none", left, err)
	}
	empty()
	d = b.machine("i-000001")
	have, ok := d.have["disk-000001"]
	if !ok || have.spareLoop == 0 || len(d.listNodes()) != 4 {
		t.Fatalf("device of the disk: got %+v and the nodes %v", have, d.listNodes())
	}

	// From an empty file, a restarted hypervisor reads the number 0. This number means that the
	// hypervisor knows no second device. The machine must not get the device loop0.
	t.Cleanup(func() { _ = loop.Release(context.WithoutCancel(t.Context()), have.spareLoop) })
	empty()
	later := b.h.newMachine("i-000001").devices
	if err := later.adopt(); err != nil {
		t.Fatal(err)
	}
	b.update(later)
	if n := later.have["disk-000001"].numbers(); !slices.Equal(n, []int{have.number}) {
		t.Errorf("adopted devices: got the numbers %v, want %d", n, have.number)
	}
	if n := later.listNodes(); have.number != 0 && slices.Contains(n, nodeName(0)) {
		t.Errorf("devices of the machine: got %v", n)
	}
	if err := later.powerOff(t.Context()); err != nil {
		t.Errorf("power off: %v", err)
	}
}

// TestPowerOffWithSpoiltDev proves that powerOff removes the devices of a machine with a damaged
// /dev. Root on the machine has put folders and links into /dev that the hypervisor cannot delete.
func TestPowerOffWithSpoiltDev(t *testing.T) {
	for name, script := range map[string]string{
		"folder in place of a link": "rm disk/by-id/cloudsim-disk-000001 && mkdir -p disk/by-id/cloudsim-disk-000001/x",
		"link in place of a folder": "rm -r disk && ln -s /.. disk",
	} {
		t.Run(name, func(t *testing.T) {
			b := newDeviceBench(t)
			b.attach(attachedTo("i-000001"))
			d := b.machine("i-000001")
			have := d.have["disk-000001"]
			if out, err := d.commandInside(script).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if err := d.powerOff(t.Context()); err != nil {
				t.Fatal(err)
			}
			waitReleased(t, have.number)
			if len(d.have) > 0 || isMounted(d.folder.path("dev")) {
				t.Errorf("after power off: devices %v, /dev mounted %v", d.have, isMounted(d.folder.path("dev")))
			}
		})
	}
}
