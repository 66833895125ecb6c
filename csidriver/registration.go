package csidriver

import (
	"context"
	"log/slog"
	"path/filepath"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/cloudsim-dev/allinone/internal/run"
)

// registrar tells a kubelet where a driver is: the two calls of its plugin
// registration API, which other drivers leave to node-driver-registrar. The
// kubelet asks as soon as the socket is in its folder, and takes the driver out
// of the CSINode when the socket goes: it goes when this process stops in
// peace, and stays when it is killed, so that a restart is no change.
type registrar struct {
	registration.UnimplementedRegistrationServer
	log      *slog.Logger
	name     string
	endpoint string // path of the driver's socket, as the kubelet sees it
}

// GetInfo says who the driver is and where. The version is of what the kubelet
// calls CSI: any 1.x.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: "CSIPlugin", Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus is the kubelet's answer. One that refuses asks again
// by itself, later and later.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		r.log.Info("the kubelet has taken the driver", "driver", r.name)
	} else {
		r.log.Error("the kubelet refuses the driver, and will ask again", "driver", r.name, "reason", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// register serves a driver's registration in the kubelet's folder until ctx ends.
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
