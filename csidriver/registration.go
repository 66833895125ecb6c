package csidriver

import (
	"context"
	"log/slog"
	"path/filepath"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/cloudsim-dev/allinone/internal/run"
)

// registrar implements the kubelet's plugin registration API and so replaces
// node-driver-registrar. The kubelet connects as soon as the registration
// socket appears in the kubelet's folder. The kubelet removes the driver from
// the CSINode when the socket disappears. A driver that stops normally removes
// the socket. If a signal kills the driver, the socket stays, and the kubelet
// keeps the driver in the CSINode until the driver starts again.
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

// register serves a driver's registration in the kubelet's folder until ctx
// ends.
func register(ctx context.Context, log *slog.Logger, cfg NodeConfig, name, socket string) error {
	dir := cfg.KubeletSocketDir
	if dir == "" {
		dir = filepath.Dir(socket)
	}
	ln, err := run.Socket(ctx, filepath.Join(cfg.RegistrationDir, name+"-reg.sock"))
	if err != nil {
		return err
	}
	srv := grpc.NewServer()
	registration.RegisterRegistrationServer(srv, &registrar{log: log, name: name, endpoint: filepath.Join(dir, filepath.Base(socket))})
	return serve(ctx, srv, ln)
}
