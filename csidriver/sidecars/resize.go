package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	resize "github.com/kubernetes-csi/external-resizer/v2/pkg/controller"
	"github.com/kubernetes-csi/external-resizer/v2/pkg/modifier"
	"github.com/kubernetes-csi/external-resizer/v2/pkg/modifycontroller"
	"github.com/kubernetes-csi/external-resizer/v2/pkg/resizer"
)

// resize returns the external-resizer. If a user increases the size of a claim
// or changes the claim's VolumeAttributesClass, the external-resizer calls the
// driver.
func (d *driver) resize() (all []loop, err error) {
	calls := resizeCalls{d}
	r, err := resizer.NewResizerFromClient(calls, d.timeout, d.kube, d.name)
	switch {
	case errors.Is(err, resizer.ResizeNotSupportErr):
	case err != nil:
		return nil, fmt.Errorf("resizer: %w", err)
	default:
		// If mayBeInUse is true, the resizer watches all pods to find volumes in use. The driver
		// can grow volumes in use, so the resizer does not need this watch.
		const mayBeInUse = false
		c := resize.NewResizeController(r.Name(), r, d.kube, resync, d.core, d.limiter(), mayBeInUse, d.retryMax)
		all = append(all, loop{"resizer", func(ctx context.Context, wg *sync.WaitGroup) { c.Run(workers, ctx, wg) }})
	}
	m, err := modifier.NewModifierFromClient(calls, d.timeout, d.kube, d.core, false, d.name)
	switch {
	case errors.Is(err, modifier.ModifyNotSupportErr):
	case err != nil:
		return nil, fmt.Errorf("modifier: %w", err)
	default:
		c := modifycontroller.NewModifyController(m.Name(), m, d.kube, resync, d.retryMax, false, d.core, d.limiter())
		all = append(all, loop{"modifier", func(ctx context.Context, wg *sync.WaitGroup) { c.Run(workers, ctx, wg) }})
	}
	return all, nil
}

// resizeCalls implements the driver client of external-resizer. It replaces
// upstream's client, which ends the whole process when it loses the connection.
type resizeCalls struct{ *driver }

func (r resizeCalls) GetDriverName(context.Context) (string, error) { return r.name, nil }

func (r resizeCalls) SupportsPluginControllerService(context.Context) (bool, error) {
	return r.plugin[csi.PluginCapability_Service_CONTROLLER_SERVICE], nil
}

func (r resizeCalls) SupportsControllerResize(context.Context) (bool, error) {
	return r.can(csi.ControllerServiceCapability_RPC_EXPAND_VOLUME), nil
}

// SupportsNodeResize calls the node service of the driver. It returns an error
// if the driver process serves only the controller service.
func (r resizeCalls) SupportsNodeResize(ctx context.Context) (bool, error) {
	resp, err := csi.NewNodeClient(r.conn).NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return false, err
	}
	for _, c := range resp.GetCapabilities() {
		if c.GetRpc().GetType() == csi.NodeServiceCapability_RPC_EXPAND_VOLUME {
			return true, nil
		}
	}
	return false, nil
}

func (r resizeCalls) SupportsControllerModify(context.Context) (bool, error) {
	return r.can(csi.ControllerServiceCapability_RPC_MODIFY_VOLUME), nil
}

func (r resizeCalls) SupportsControllerSingleNodeMultiWriter(context.Context) (bool, error) {
	return r.can(csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER), nil
}

func (r resizeCalls) Expand(ctx context.Context, volume string, bytes int64, secrets map[string]string, c *csi.VolumeCapability) (int64, bool, error) {
	resp, err := csi.NewControllerClient(r.conn).ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: volume, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}, Secrets: secrets, VolumeCapability: c,
	})
	return resp.GetCapacityBytes(), resp.GetNodeExpansionRequired(), err
}

func (r resizeCalls) Modify(ctx context.Context, volume string, secrets, mutable map[string]string) error {
	_, err := csi.NewControllerClient(r.conn).ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{
		VolumeId: volume, Secrets: secrets, MutableParameters: mutable,
	})
	return err
}

// CloseConnection does nothing, because the connection belongs to the driver
// struct.
func (r resizeCalls) CloseConnection() {}
