// Package csidriver is the cloud's storage driver for Kubernetes and any other
// orchestrator that speaks CSI 1.13: its volumes are the cloud's disks, whose
// data are files that the node attaches as loop devices, formats and mounts.
//
// It keeps no state. What exists and who has it is the cloud's record, and
// asking twice is the cloud's to answer once; what is attached and mounted is
// the kernel's. A process that is killed at any point is repeated, not
// repaired. It never detaches a disk to delete it, and never formats one that
// was written to.
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

// DefaultName is the driver's name, and the prefix of what it calls its own.
const DefaultName = "csi.cloudsim.dev"

// Mode is which of the services run.
type Mode string

const (
	ModeAll        Mode = "all"
	ModeController Mode = "controller" // one for a cluster
	ModeNode       Mode = "node"       // one for each node
)

// Modes lists them, for help.
func Modes() []Mode { return []Mode{ModeController, ModeNode, ModeAll} }

func (m Mode) controller() bool { return m != ModeNode }
func (m Mode) node() bool       { return m != ModeController }

// Config says what to serve where, and for whom.
type Config struct {
	Name     string // in StorageClasses, CSINodes and PersistentVolumes
	Version  string
	Mode     Mode
	Endpoint string // unix:///path of the socket; see run.Socket
	// ServeAs are legacy drivers in whose names it answers too (KEP-625), each on
	// a socket NAME.sock beside its own; see LegacyNames.
	ServeAs  []string
	Cloud    *client.Client
	DiskType string // of volumes whose StorageClass names none
	Node     NodeConfig
	// HealthAddress is where /healthz and /readyz are served over HTTP, host and
	// port; "" for nowhere.
	HealthAddress string
}

// NodeConfig is what a node says of itself.
type NodeConfig struct {
	Instance cloudsim.InstanceID // the instance that this machine is
	// InstanceName is what it is called, for who does not know its id: the cloud
	// is asked for that until it answers.
	InstanceName string
	// DisksDir is where the disks of this machine's instances show up: the
	// folder disks of the cloud's data dir. It is to the node what
	// /dev/disk/by-id is to a virtual machine; whether a disk is there for
	// this instance is the cloud's attachment, which is asked before each use.
	DisksDir string
	// RegistrationDir is the kubelet's folder plugins_registry, in which the
	// driver registers itself; "" leaves that to node-driver-registrar.
	RegistrationDir string
	// KubeletSocketDir is the folder of the endpoint as the kubelet sees it; ""
	// if it sees the same files as this process.
	KubeletSocketDir string
}

// owner is who the machine is to other nodes of the same host, as it knows itself
// also without the cloud.
func (c NodeConfig) owner() string { return cmp.Or(string(c.Instance), c.InstanceName) }

// Default is a Config with all that need not be said.
func Default() Config {
	return Config{Name: DefaultName, Version: "v0.1.0", Mode: ModeAll, DiskType: "balanced"}
}

// driverName is what the CSI specification has GetPluginInfo say.
var driverName = regexp.MustCompile(`^[a-zA-Z0-9]([-.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$`)

// Validate says all that is wrong, not only the first.
func (c Config) Validate() error {
	var bad []error
	add := func(format string, args ...any) {
		bad = append(bad, cloudsim.Errorf(cloudsim.Invalid, format, args...))
	}
	if !driverName.MatchString(c.Name) {
		add("--driver-name must have 1 to 63 letters, digits, dashes and dots, and begin and end with a letter or digit, got %q", c.Name)
	}
	for _, name := range c.ServeAs {
		if _, ok := legacies[name]; !ok {
			add("the driver can answer as %s, not as %q", strings.Join(LegacyNames(), ", "), name)
		}
	}
	if c.Mode != ModeAll && c.Mode != ModeController && c.Mode != ModeNode {
		add("the mode must be controller, node or all, got %q", c.Mode)
	}
	if path, ok := strings.CutPrefix(c.Endpoint, "unix://"); !ok || !strings.HasPrefix(path, "/") {
		add("the endpoint must be like unix:///run/csi.sock, got %q", c.Endpoint)
	}
	if c.Cloud == nil {
		add("a cloud is required")
	}
	if c.Mode.controller() && c.DiskType == "" {
		add("a default disk type is required")
	}
	if c.Mode.node() && c.Node.Instance == "" && c.Node.InstanceName == "" {
		add("a node must know which instance it is: --node-instance")
	}
	if c.Mode.node() && c.Node.DisksDir == "" {
		add("a node must know the folder in which its disks show up: --disks-dir")
	}
	switch dir := c.Node.RegistrationDir; {
	case dir == "":
	case !c.Mode.node():
		add("only a node registers with a kubelet: --kubelet-registration-dir needs --mode node or all")
	case !filepath.IsAbs(dir):
		add("--kubelet-registration-dir must be absolute, got %q", dir)
	}
	if dir := c.Node.KubeletSocketDir; dir != "" && !filepath.IsAbs(dir) {
		add("the folder of the socket as the kubelet sees it must be absolute, got %q", dir)
	}
	if _, _, err := net.SplitHostPort(c.HealthAddress); c.HealthAddress != "" && err != nil {
		add("the address of the health endpoint must be like 127.0.0.1:9808, got %q", c.HealthAddress)
	}
	return errors.Join(bad...)
}

// stopWithin is how long calls may take to end when the driver stops.
const stopWithin = 10 * time.Second

// Run serves until ctx ends. Calls that are under way then have ten seconds.
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
			parts = append(parts, func(ctx context.Context) error { return register(ctx, log, cfg.Node, name, socket) })
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

// socket is where the driver answers under a name: a legacy one is beside its own.
func (c Config) socket(name string) string {
	own := strings.TrimPrefix(c.Endpoint, "unix://")
	if name == c.Name {
		return own
	}
	return filepath.Join(filepath.Dir(own), name+".sock")
}

// lookWithin is how long a look at a volume may take before it is called hung.
const lookWithin = 10 * time.Second

// halves are the services, the same under every name: two names of a volume
// must not be worked on at once.
type halves struct {
	controller *controller
	node       *node
}

func (c Config) halves() (h halves) {
	if c.Mode.controller() {
		h.controller = &controller{cfg: c, cloud: c.Cloud}
	}
	if c.Mode.node() {
		h.node = &node{cfg: c.Node, name: c.Name, cloud: c.Cloud, busy: newBusy(), patience: lookWithin}
	}
	return h
}

// workers are goroutines that wait for calls. A new one for each call would grow
// its stack each time, which is 3 % of a volume's life with many at once; what
// comes while all are busy gets one all the same.
const workers = 16

// window is how much a caller may send ahead. One that is said is not probed for:
// with each message gRPC would ask the caller for a sign of life to time it, which
// wakes both sides once more for a call.
const window = 64 << 10

// server has the services of the mode, under a name.
func (c Config) server(log *slog.Logger, name string, h halves) *grpc.Server {
	through := []grpc.UnaryServerInterceptor{answer(log)}
	if l, ok := legacies[name]; ok {
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

// serve serves until ctx ends. Calls that are under way then have ten seconds.
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
	if err := <-served; !errors.Is(err, grpc.ErrServerStopped) { // which is said of one that had not begun
		return err
	}
	return nil
}
