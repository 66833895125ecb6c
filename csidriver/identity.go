package csidriver

import (
	"context"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

type identity struct {
	csi.UnimplementedIdentityServer
	cfg   Config
	name  string // driver name of this socket
	looks singleflight.Group
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.name, VendorVersion: i.cfg.Version}, nil
}

func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
		csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS,
	}
	if i.cfg.Mode.controller() {
		services = append(services, csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE)
	}
	resp := &csi.GetPluginCapabilitiesResponse{}
	for _, s := range services {
		resp.Capabilities = append(resp.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: s}},
		})
	}
	for _, e := range []csi.PluginCapability_VolumeExpansion_Type{csi.PluginCapability_VolumeExpansion_ONLINE, csi.PluginCapability_VolumeExpansion_OFFLINE} {
		resp.Capabilities = append(resp.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: e}},
		})
	}
	return resp, nil
}

// othersWithin is the time limit for the checks in Probe, and for one attempt of findInstance. It
// is shorter than probeWithin, the time limit of /readyz. So Probe answers before /readyz stops the
// call.
const othersWithin = 3 * time.Second

// Probe reports whether the driver can work. For the controller service, Probe
// checks that the cloud has the default disk type. For the node service, Probe
// checks that the driver has the permission to list instances, and that the
// folder of the disks exists. If the driver of a node makes the loop devices
// itself, Probe also checks that the machine can make them. The error
// FAILED_PRECONDITION means a fault that a person must fix. The answer "not
// ready" means a fault that may end by itself. For example, the cloud does not
// answer, or an access to the folder of the disks hangs.
func (i *identity) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, othersWithin)
	defer cancel()
	if i.cfg.Mode.node() {
		if !i.cfg.Node.hasDevices() { // otherwise the hypervisor makes the loop devices
			if err := machine.Ready(); err != nil {
				return nil, status.Errorf(codes.FailedPrecondition, "this machine cannot mount volumes: %v", err)
			}
		}
		if err := i.folder(ctx); err != nil && ctx.Err() == nil {
			return nil, status.Errorf(codes.FailedPrecondition, "the folder of the disks cannot be read: %v", err)
		}
	}
	var err error
	if i.cfg.Mode.controller() {
		_, err = i.cfg.Cloud.GetDiskType(ctx, i.cfg.DiskType)
	}
	if err == nil && i.cfg.Mode.node() {
		_, err = i.cfg.Cloud.ListInstances(ctx, cloudsim.ListOptions{Limit: 1})
	}
	switch code := status.Code(statusOf(err)); {
	case err == nil:
		return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
	case code == codes.Unavailable || code == codes.ResourceExhausted || code == codes.DeadlineExceeded:
		return &csi.ProbeResponse{Ready: wrapperspb.Bool(false)}, nil
	default:
		return nil, status.Errorf(codes.FailedPrecondition, "the driver cannot use the cloud: %v", err)
	}
}

// folder returns an error if the folder of the disks does not exist. If the
// access to the folder hangs, this method returns the error of ctx when ctx ends.
func (i *identity) folder(ctx context.Context) error {
	_, err := lookFor(ctx, &i.looks, "", func() (os.FileInfo, error) { return os.Stat(i.cfg.Node.DisksDir) })
	return err
}
