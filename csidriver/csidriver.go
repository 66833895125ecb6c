// Package csidriver is the cloud's storage driver for Kubernetes and other
// orchestrators that support CSI 1.13. A volume is a disk of the cloud. The
// cloud stores the data of a disk in a file. The node attaches this file as a
// loop device, formats the device and mounts it.
//
// The driver keeps no state. The cloud records all disks and attachments, and
// the kernel records all loop devices and mounts. A repeated request to the
// cloud has the result of the first request. If the driver dies, the caller
// repeats the call, and the driver has nothing to repair. The driver does not
// delete an attached disk. It never formats a disk in which it finds data.
package csidriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// DefaultName is the driver's name, and the prefix of its labels.
const DefaultName = "csi.cloudsim.dev"

// Mode selects the services that run.
type Mode string

const (
	ModeAll        Mode = "all"
	ModeController Mode = "controller" // one process for a cluster
	ModeNode       Mode = "node"       // one process for each node
)

// Modes lists all modes, for help texts.
func Modes() []Mode { return []Mode{ModeController, ModeNode, ModeAll} }

func (m Mode) controller() bool { return m != ModeNode }
func (m Mode) node() bool       { return m != ModeController }

// Config configures the driver.
type Config struct {
	Name     string // name in StorageClasses, CSINodes and PersistentVolumes
	Version  string
	Mode     Mode
	Endpoint string // unix:///path of the socket; see run.Socket
	// ServeAs lists names of legacy drivers. The driver also serves calls under
	// these names (KEP-625). Each name has its own socket NAME.sock in the
	// folder of Endpoint. LegacyNames lists the valid names.
	ServeAs  []string
	Cloud    *client.Client
	DiskType string // disk type of a volume if its StorageClass sets none
	Node     NodeConfig
	// HealthAddress is the host and port of the HTTP server for /healthz and
	// /readyz. If HealthAddress is empty, the driver starts no HTTP server.
	HealthAddress string
}

// NodeConfig configures the node service.
type NodeConfig struct {
	Instance cloudsim.InstanceID // id of this machine's instance
	// InstanceName is the name of the instance. If Instance is empty, the
	// driver asks the cloud for the id of the instance with this name.
	InstanceName string
	// DisksDir is the folder with the files of all disks. The data plane makes these files in the
	// subfolder "disks" of the cloud's data directory. The folder also contains the files of disks
	// that are not attached to this instance. So before the driver stages a disk, it checks the
	// attachment in the cloud's records.
	//
	// If the hypervisor of the machine makes the devices of attached disks,
	// DisksDir is cloudsim.DiskLinks. This folder contains links to the
	// devices, and no files.
	DisksDir string
	// RegistrationDir is the kubelet's folder plugins_registry. The driver
	// makes its registration socket in this folder. If RegistrationDir is
	// empty, the sidecar node-driver-registrar must register the driver.
	RegistrationDir string
	// KubeletSocketDir is the path at which the kubelet sees the folder of
	// Endpoint. If KubeletSocketDir is empty, the kubelet and this process use
	// the same path for the folder.
	KubeletSocketDir string
}

// hasDevices reports whether the hypervisor makes the devices of the disks.
func (c NodeConfig) hasDevices() bool { return filepath.Clean(c.DisksDir) == cloudsim.DiskLinks }

// ownerName returns the instance's id, or its name if the id is not known. The
// result is unique among the nodes on one host. ownerName does not call the
// cloud.
func (c NodeConfig) ownerName() string { return cmp.Or(string(c.Instance), c.InstanceName) }

// Default returns a Config with all defaults.
func Default() Config {
	return Config{Name: DefaultName, Version: "v0.1.0", Mode: ModeAll, DiskType: "balanced"}
}

// driverName matches the driver names that the CSI specification allows. See
// GetPluginInfoResponse in the specification.
var driverName = regexp.MustCompile(`^[a-zA-Z0-9]([-.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$`)

// Validate returns an error for each field of c that is not valid.
func (c Config) Validate() error {
	var bad []error
	add := func(format string, args ...any) {
		bad = append(bad, cloudsim.Errorf(cloudsim.Invalid, format, args...))
	}
	if !driverName.MatchString(c.Name) {
		add("--driver-name must have 1 to 63 letters, digits, dashes and dots, and begin and end with a letter or digit, got %q", c.Name)
	}
	for _, name := range c.ServeAs {
		if _, ok := legacyDrivers[name]; !ok {
			add("--serve-as must be one of %s, got %q", strings.Join(LegacyNames(), ", "), name)
		}
	}
	if c.Mode != ModeAll && c.Mode != ModeController && c.Mode != ModeNode {
		add("--mode must be controller, node or all, got %q", c.Mode)
	}
	if path, ok := strings.CutPrefix(c.Endpoint, "unix://"); !ok || !strings.HasPrefix(path, "/") {
		add("--endpoint must be like unix:///run/csi.sock, got %q", c.Endpoint)
	}
	if c.Cloud == nil {
		add("a cloud is required")
	}
	if c.Mode.controller() && c.DiskType == "" {
		add("the controller service needs a default disk type: set --default-type")
	}
	if c.Mode.node() && c.Node.Instance == "" && c.Node.InstanceName == "" {
		add("the node service needs the instance of this machine: set --node-instance")
	}
	if c.Mode.node() && c.Node.DisksDir == "" {
		add("the node service needs the folder of the disks: set --disks-dir")
	}
	switch dir := c.Node.RegistrationDir; {
	case dir == "":
	case !c.Mode.node():
		add("--kubelet-registration-dir needs --mode node or all, because only the node service registers with a kubelet")
	case !filepath.IsAbs(dir):
		add("--kubelet-registration-dir must be absolute, got %q", dir)
	}
	if dir := c.Node.KubeletSocketDir; dir != "" && !filepath.IsAbs(dir) {
		add("--kubelet-socket-dir must be absolute, got %q", dir)
	}
	if _, _, err := net.SplitHostPort(c.HealthAddress); c.HealthAddress != "" && err != nil {
		add("--health-bind-address must be like 127.0.0.1:9808, got %q", c.HealthAddress)
	}
	return errors.Join(bad...)
}

// stopWithin is the longest time that the driver waits for unfinished calls when it stops.
const stopWithin = 10 * time.Second

// Run serves calls until ctx ends. Then it waits for running calls. After ten
// seconds, it cancels the remaining calls.
func Run(ctx context.Context, log *slog.Logger, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	var parts []func(context.Context) error
	halves := cfg.halves()
	for _, name := range append([]string{cfg.Name}, cfg.ServeAs...) {
		socket := cfg.socket(name)
		ln, err := run.Socket(ctx, socket)
		if err != nil {
			return fmt.Errorf("--endpoint: %w", err)
		}
		srv := cfg.server(log, name, halves)
		log.Info("serving CSI", "driver", name, "mode", cfg.Mode, "socket", socket)
		parts = append(parts, func(ctx context.Context) error { return serve(ctx, srv, ln) })
		if cfg.Node.RegistrationDir != "" {
			r := Registration{Endpoint: "unix://" + socket, Dir: cfg.Node.RegistrationDir, KubeletSocketDir: cfg.Node.KubeletSocketDir}
			parts = append(parts, func(ctx context.Context) error { return r.register(ctx, log, name) })
		}
	}
	if n := halves.node; n != nil && cfg.Node.Instance == "" {
		parts = append(parts, func(ctx context.Context) error { return n.findInstance(ctx, log) })
	}
	if cfg.HealthAddress != "" {
		parts = append(parts, func(ctx context.Context) error {
			ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.HealthAddress)
			if err != nil {
				return fmt.Errorf("--health-bind-address: %w", err)
			}
			return serveHealth(ctx, ln, cfg.Endpoint, run.Limits{})
		})
	}
	return run.All(ctx, parts...)
}

// socket returns the path of the socket for a driver name. The sockets of
// legacy names are in the folder of the driver's own socket.
func (c Config) socket(name string) string {
	own := strings.TrimPrefix(c.Endpoint, "unix://")
	if name == c.Name {
		return own
	}
	return filepath.Join(filepath.Dir(own), name+".sock")
}

// lookWithin is the time limit for reading the usage or the mounts of a volume.
// After this time the driver treats the disk as hung.
const lookWithin = 10 * time.Second

// driverServices contains the services of a process. All driver names share these services. The
// node service has one lock for each volume. So two calls that change the devices or mounts of one
// volume never run at once, even if they use different driver names.
type driverServices struct {
	controller *controller
	node       *node
}

func (c Config) halves() (h driverServices) {
	if c.Mode.controller() {
		h.controller = &controller{cfg: c, cloud: c.Cloud}
	}
	if c.Mode.node() {
		h.node = &node{cfg: c.Node, name: c.Name, cloud: c.Cloud, busy: newBusy(), checkTimeout: lookWithin}
	}
	return h
}

// workers is the number of goroutines that wait for calls. A new goroutine begins with a small
// stack, and it takes time to grow this stack. The server therefore reuses the goroutines. With a
// new goroutine for each call, the lifecycle of a volume would take 3 % more time under load. If
// all workers are busy, a call gets a new goroutine.
const workers = 16

// window is the HTTP/2 flow-control window. A fixed window disables gRPC's
// bandwidth estimation. With this estimation, gRPC would send a ping with each
// message. The ping would wake up the client and the server once more for each
// call.
const window = 64 << 10

// server returns a gRPC server for one driver name. The server has the services
// that c.Mode selects.
func (c Config) server(log *slog.Logger, name string, h driverServices) *grpc.Server {
	through := []grpc.UnaryServerInterceptor{answer(log)}
	if l, ok := legacyDrivers[name]; ok {
		through = append(through, l.speak(c.Cloud, name, c.Name))
	}
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(through...), grpc.NumStreamWorkers(workers),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window))
	csi.RegisterIdentityServer(srv, &identity{cfg: c, name: name})
	if h.controller != nil {
		csi.RegisterControllerServer(srv, h.controller)
		csi.RegisterGroupControllerServer(srv, &groupController{controller: h.controller})
	}
	if h.node != nil {
		csi.RegisterNodeServer(srv, h.node)
	}
	return srv
}

// serve runs srv until ctx ends. Then it waits for running calls. After ten
// seconds, it cancels the remaining calls.
func serve(ctx context.Context, srv *grpc.Server, ln net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	late := time.AfterFunc(stopWithin, srv.Stop)
	defer late.Stop()
	srv.GracefulStop()
	if err := <-served; !errors.Is(err, grpc.ErrServerStopped) { // Serve returns ErrServerStopped if GracefulStop ran before Serve
		return err
	}
	return nil
}
