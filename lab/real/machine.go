package real

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab/real/boot"
)

// machine holds the state of one instance's machine. A separate goroutine updates m.devices. Only
// the goroutine that manages the machine uses the other fields.
type machine struct {
	h       *hypervisor
	id      cloudsim.InstanceID
	folder  folder
	cgroup  cgroup
	devices *machineDevices
	log     *slog.Logger

	// init is the machine's first process. It is nil while the machine is off.
	init *process
	// bootOperation is the cloud operation that started the machine. It is "" while the machine
	// is off.
	bootOperation cloudsim.OperationID
	// crashOperation is the instance's last cloud operation at the time of a crash. It is "" if the
	// instance has not crashed. The machine stays off until the instance has another operation.
	// Like real clouds, the simulated cloud continues to show a crashed instance as running.
	crashOperation cloudsim.OperationID
	// needsTakeover is true if an earlier hypervisor may have left the machine running, and this
	// hypervisor has not taken the machine over yet.
	needsTakeover bool
	// mustReport is true from the beginning of a shutdown until the hypervisor sets the
	// machine's Node to NotReady.
	mustReport bool
	// agentExpiry is the time at which the certificate of the network proxy's agent expires. If an
	// earlier hypervisor issued the certificate, agentExpiry is the zero time, and renewAgent
	// replaces the certificate at once. The hypervisor does not read the time from the
	// certificate's file, because root on the machine can replace this file.
	agentExpiry time.Time
}

func (h *hypervisor) newMachine(id cloudsim.InstanceID) *machine {
	f, c, log := folder(filepath.Join(h.cfg.Dir, "machines", string(id))), h.cgroup.child(string(id)), h.log.With("instance", string(id))
	return &machine{h: h, id: id, folder: f, cgroup: c, devices: h.newDevices(id, f, c, log), log: log}
}

// process is the first process of a machine. If an earlier hypervisor started the machine,
// this process is not a child of the current hypervisor.
type process struct {
	pid   int
	ended chan struct{} // closed when the process has ended
	fd    *os.File
}

// watchProcess starts to watch the process that now has this pid.
func watchProcess(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	p := &process{pid: pid, ended: make(chan struct{}), fd: os.NewFile(uintptr(fd), "pidfd")}
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, p.fd.Close())
	}
	go func() {
		defer close(p.ended)
		// A pidfd becomes readable when its process ends. See pidfd_open(2).
		err := raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // a descriptor is small
			return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
		_ = err // an error means that powerOff has closed the file, so no goroutine waits
	}()
	return p, nil
}

func (p *process) signal(sig unix.Signal) error {
	var failed error
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Control(func(fd uintptr) { failed = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	if errors.Is(failed, unix.ESRCH) {
		return nil
	}
	return errors.Join(err, failed)
}

func (m *machine) isOn() bool {
	if m.init == nil {
		return false
	}
	select {
	case <-m.init.ended:
		return false
	default:
		return true
	}
}

// done returns a channel that closes when the first process ends. While the machine is
// off, the method returns nil.
func (m *machine) done() <-chan struct{} {
	if m.init == nil {
		return nil
	}
	return m.init.ended
}

// adopt takes over a machine that an earlier hypervisor may have left running. If the machine is
// off, or if its start was interrupted, the method removes the machine's processes, cgroups and
// devices.
func (m *machine) adopt(ctx context.Context) (err error) {
	defer func() { m.needsTakeover = err != nil }()
	pid, err := m.cgroup.firstPID()
	if err != nil {
		return err
	}
	operation, err := os.ReadFile(m.folder.path("booted"))
	if e := m.devices.adopt(); e != nil {
		return e
	}
	if pid == 0 || err != nil { // a machine with an interrupted start runs no programs
		return errors.Join(m.cgroup.destroy(ctx), m.devices.powerOff(ctx))
	}
	if m.init, err = watchProcess(pid); err != nil {
		return err
	}
	m.bootOperation = cloudsim.OperationID(strings.TrimSpace(string(operation)))
	m.log.Info("took over a running machine", "pid", pid)
	return nil
}

// firstPID returns the pid of the first process of the machine with cgroup c, or 0 if the
// machine is off.
func (c cgroup) firstPID() (pid int, err error) {
	pids, err := c.child("machine").pids()
	if at := slices.IndexFunc(pids, isFirst); at >= 0 {
		pid = pids[at]
	}
	return pid, err
}

// isFirst reports whether a process is PID 1 of a child namespace of the host's PID namespace. See
// NSpid in proc_pid_status(5).
func isFirst(pid int) bool {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			ids := strings.Fields(rest)
			return len(ids) == 2 && ids[1] == "1"
		}
	}
	return false
}

func (m *machine) boot(ctx context.Context, i cloudsim.Instance) error {
	began := time.Now()
	address, err := netip.ParseAddr(i.InternalIP())
	if err != nil {
		return fmt.Errorf("internal address of %s: %w", i.ID, err)
	}
	typ, err := m.h.cfg.Cloud.GetInstanceType(ctx, i.Type)
	if err != nil {
		return fmt.Errorf("instance type %s: %w", i.Type, err)
	}
	spec, err := m.install(ctx, i, typ, address)
	if err != nil {
		return err
	}
	if err := m.start(ctx, i, typ, spec, address); err != nil {
		return errors.Join(err, m.powerOff(ctx))
	}
	m.log.Info("booted", "name", i.Name, "address", address, "pid", m.init.pid, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// install writes all files that the machine reads, and returns the path of its Spec.
func (m *machine) install(ctx context.Context, i cloudsim.Instance, typ cloudsim.InstanceType, address netip.Addr) (spec string, err error) {
	if err := m.h.prepare(ctx, m.folder); err != nil {
		return "", err
	}
	memory, err := hostMemory()
	if err != nil {
		return "", err
	}
	n := m.h.cfg.Network
	v := templateValues{
		Host: i.Name, Address: address, CgroupRoot: m.cgroup.name, ClusterDNS: m.h.cfg.ClusterDNS, ClusterDomain: "cluster.local",
		Pods: n.Pods, NameServer: n.NameServer(), PauseImage: PauseImage,
		ReservedMemory: max(0, memory-typ.MemoryMiB<<20), ReservedCPU: 1000 * int64(max(0, runtime.NumCPU()-typ.CPUs)),
	}
	if n.Internet.IPv6 {
		v.Pods6 = n.pods6(address)
	}
	if err := errors.Join(m.folder.writeFiles(i, v), m.folder.writeMirrors(m.h.cfg.Mirrors), m.folder.registry(m.h.cfg.Registry)); err != nil {
		return "", err
	}
	identity, err := m.h.cfg.Identify(i.Name, address)
	if err != nil {
		return "", fmt.Errorf("certificates: %w", err)
	}
	if err := m.folder.writeAll(etcKubernetes, identity); err != nil {
		return "", err
	}
	if err := os.WriteFile(m.folder.path("booted"), []byte(i.Operation), 0o600); err != nil {
		return "", err
	}
	s := m.folder.spec(i, m.h.cfg.Programs, m.h.cfg.RuntimeEnv)
	if err := errors.Join(m.folder.addVolumes(&s, i, m.h.cfg.Volumes), m.addAgent(&s, i)); err != nil {
		return "", err
	}
	return m.folder.writeSpec(s)
}

// start runs the machine's first process in new namespaces. The process waits for the message
// boot.Go. The last step of start writes this message. So the machine runs programs only if all
// earlier steps succeed.
func (m *machine) start(ctx context.Context, i cloudsim.Instance, typ cloudsim.InstanceType, spec string, address netip.Addr) error {
	if err := m.cgroup.destroy(ctx); err != nil { // remains of a crash
		return err
	}
	inside := m.cgroup.child("machine")
	if err := inside.create(); err != nil {
		return err
	}
	if err := m.cgroup.setLimits(size{memory: typ.MemoryMiB << 20, cpus: typ.CPUs}); err != nil {
		return err
	}
	if err := m.devices.powerOn(ctx); err != nil {
		return err
	}
	console, err := os.OpenFile(m.folder.path("console.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer console.Close()
	cmd := exec.Command(filepath.Join(m.h.cfg.Programs.Machine, "machine"), spec)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &unix.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID | unix.CLONE_NEWNET,
	}
	button, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer button.Close()
	if err := cmd.Start(); err != nil {
		return err
	}
	// After cmd.Wait has reaped the child, the kernel can give the pid to another process. This
	// method uses the pid until it returns, so it defers the call of cmd.Wait. The hypervisor does
	// not need the result of cmd.Wait, because m.init reports the end of the child.
	defer func() { go func() { _ = cmd.Wait() }() }()
	if m.init, err = watchProcess(cmd.Process.Pid); err != nil {
		return err
	}
	m.bootOperation = i.Operation
	if err := inside.join(cmd.Process.Pid); err != nil {
		return err
	}
	if err := m.h.bridge.attach(string(m.id), cmd.Process.Pid, address); err != nil {
		return err
	}
	m.h.cables.setZone(i) // the instance's zone may be dark (unreachable)
	_, err = button.Write([]byte(boot.Go))
	return err
}

// shutDown sends SIGTERM to the first process and waits until this process ends. The wait takes at
// most 2 * shutdownGrace, because the first process waits up to shutdownGrace for the machine's
// other processes. Then shutDown calls powerOff.
func (m *machine) shutDown(ctx context.Context) error {
	if !m.isOn() {
		return m.powerOff(ctx)
	}
	m.log.Info("shutting down")
	if err := m.init.signal(unix.SIGTERM); err != nil {
		return err
	}
	select {
	case <-m.init.ended:
	case <-ctx.Done():
	case <-time.After(2 * shutdownGrace):
	}
	return m.powerOff(ctx)
}

// powerOff kills all processes of the machine. It also deletes the machine's veth pair,
// cgroups and loop devices. The disk stays.
func (m *machine) powerOff(ctx context.Context) error {
	ran := m.init != nil
	if ran {
		if err := m.init.signal(unix.SIGKILL); err != nil {
			return err
		}
		for m.isOn() { // a process of the machine may freeze other processes again until it ends
			if err := m.cgroup.thaw(); err != nil {
				return err
			}
			select {
			case <-m.init.ended:
			case <-time.After(100 * time.Millisecond):
			}
		}
		_ = m.init.fd.Close() // an error does not matter for a read-only file
		m.init, m.bootOperation = nil, ""
		m.log.Info("machine is off")
	}
	err := errors.Join(m.cgroup.destroy(ctx), m.h.bridge.detach(string(m.id)), m.devices.powerOff(ctx))
	if ran {
		err = errors.Join(err, m.h.detachDisks())
	}
	return err
}

// destroy deletes a machine and its disk.
func (m *machine) destroy(ctx context.Context) error {
	if err := m.powerOff(ctx); err != nil {
		return err
	}
	m.crashOperation = ""
	return os.RemoveAll(string(m.folder))
}

// hostMemory returns the host's memory in bytes.
func hostMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, err
	}
	return int64(info.Totalram) * int64(info.Unit), nil //nolint:gosec // no host has 8 EiB
}

func (h *hypervisor) storedInstances() ([]cloudsim.InstanceID, error) {
	entries, err := os.ReadDir(filepath.Join(h.cfg.Dir, "machines"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []cloudsim.InstanceID
	for _, e := range entries {
		ids = append(ids, cloudsim.InstanceID(e.Name()))
	}
	return ids, err
}
