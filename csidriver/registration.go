package csidriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// registrar implements the kubelet's plugin registration API and so replaces node-driver-registrar.
// The kubelet connects as soon as the registration socket appears in the kubelet's folder. The
// kubelet removes the driver from the CSINode when the socket disappears. A driver that stops
// normally removes the socket. If SIGKILL ends the driver, the socket stays, and the kubelet keeps
// the driver in the CSINode.
type registrar struct {
	registration.UnimplementedRegistrationServer
	log      *slog.Logger
	name     string
	endpoint string // path of the driver's socket, as the kubelet sees it
}

// GetInfo returns the name and the socket of the driver. The kubelet accepts
// the version "1.0.0" for every CSI 1.x.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: "CSIPlugin", Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus logs the result of a registration. If the kubelet
// refused the driver, the kubelet tries again with growing intervals.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		r.log.Info("the kubelet registered the driver", "driver", r.name)
	} else {
		r.log.Error("the kubelet refused the driver and will retry", "driver", r.name, "reason", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// Registration registers a CSI driver with the kubelet of a machine.
type Registration struct {
	Endpoint string // socket of the driver, such as unix:///var/lib/kubelet/plugins/DRIVER/csi.sock
	// Dir and KubeletSocketDir have the same meaning as NodeConfig.RegistrationDir and
	// NodeConfig.KubeletSocketDir. Unlike RegistrationDir, Dir must not be empty.
	Dir              string
	KubeletSocketDir string
}

// Validate returns an error for each field of r that is not valid.
func (r Registration) Validate() error {
	var bad []error
	if path, ok := strings.CutPrefix(r.Endpoint, "unix://"); !ok || !filepath.IsAbs(path) {
		bad = append(bad, cloudsim.Errorf(cloudsim.Invalid, "--endpoint must be like unix:///run/csi.sock, got %q", r.Endpoint))
	}
	if !filepath.IsAbs(r.Dir) {
		bad = append(bad, cloudsim.Errorf(cloudsim.Invalid, "--kubelet-registration-dir must be absolute, got %q", r.Dir))
	}
	if r.KubeletSocketDir != "" && !filepath.IsAbs(r.KubeletSocketDir) {
		bad = append(bad, cloudsim.Errorf(cloudsim.Invalid, "--kubelet-socket-dir must be absolute, got %q", r.KubeletSocketDir))
	}
	return errors.Join(bad...)
}

// Register registers a third-party driver, in place of the sidecar
// node-driver-registrar. It waits until the driver answers, and asks the driver
// for its name. Then it serves the registration until ctx ends. The kubelet
// removes the driver from the CSINode when Register returns.
func Register(ctx context.Context, log *slog.Logger, r Registration) error {
	if err := r.Validate(); err != nil {
		return err
	}
	conn, err := grpc.NewClient(r.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	log.Info("waiting for the driver", "endpoint", r.Endpoint)
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err := errors.Join(err, conn.Close()); ctx.Err() != nil {
		return nil //nolint:nilerr // the caller has ended the wait
	} else if err != nil {
		return fmt.Errorf("name of the driver at %s: %w", r.Endpoint, err)
	}
	name := info.GetName()
	if !driverName.MatchString(name) {
		return fmt.Errorf("the driver at %s has the name %.80q, which is not valid", r.Endpoint, name)
	}
	return r.register(ctx, log, name)
}

// register registers the driver under the given name. For this purpose, it serves a socket in the
// kubelet's folder until ctx ends.
func (r Registration) register(ctx context.Context, log *slog.Logger, name string) error {
	socket := strings.TrimPrefix(r.Endpoint, "unix://")
	dir := cmp.Or(r.KubeletSocketDir, filepath.Dir(socket))
	ln, err := run.Socket(ctx, filepath.Join(r.Dir, name+"-reg.sock"))
	if err != nil {
		return err
	}
	srv := grpc.NewServer()
	registration.RegisterRegistrationServer(srv, &registrar{log: log, name: name, endpoint: filepath.Join(dir, filepath.Base(socket))})
	return serve(ctx, srv, ln)
}
