package main

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	csitrans "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// driver is a connected driver with its capabilities.
type driver struct {
	*cluster
	name       string
	conn       *grpc.ClientConn
	plugin     rpc.PluginCapabilitySet
	controller rpc.ControllerCapabilitySet
	translator csitrans.CSITranslator
	legacy     string // in-tree plugin that the driver replaces; "" for none
}

// dial connects to a driver and waits until the driver is ready. If the connection fails later,
// gRPC connects again, and the controllers repeat failed calls. The function dial reads the
// driver's capabilities only once. If a driver gets new capabilities, an administrator must restart
// this process.
func (k *cluster) dial(ctx context.Context, socket string, s *status) (*driver, error) {
	count := metrics.NewCSIMetricsManagerWithOptions("", metrics.WithProcessStartTime(false), metrics.WithSubsystem(metrics.SubsystemSidecar))
	klog.InfoS("Waiting for the driver", "socket", socket)
	conn, err := connection.Connect(ctx, socket, count, connection.WithTimeout(0), connection.OnConnectionLoss(func(context.Context) bool { return true }))
	if err != nil {
		return nil, err
	}
	d := &driver{cluster: k.withInformers(), conn: conn, translator: csitrans.New()}
	if err := d.ask(ctx); err != nil {
		d.close()
		return nil, err
	}
	count.SetDriverName(d.name)
	s.gather(count.GetRegistry())
	klog.InfoS("Connected to the driver", "driver", d.name, "socket", socket, "legacy", d.legacy)
	return d, nil
}

func (d *driver) ask(ctx context.Context) (err error) {
	if err := rpc.ProbeForever(ctx, d.conn, d.timeout); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	if d.name, err = rpc.GetDriverName(ctx, d.conn); err != nil {
		return err
	}
	if d.plugin, err = rpc.GetPluginCapabilities(ctx, d.conn); err != nil {
		return err
	}
	if d.controller, err = rpc.GetControllerCapabilities(ctx, d.conn); err != nil {
		return err
	}
	if d.translator.IsMigratedCSIDriverByName(d.name) {
		d.legacy, err = d.translator.GetInTreeNameFromCSIName(d.name)
	}
	return err
}

func (d *driver) close() { _ = d.conn.Close() } // no call uses the connection any more

func (d *driver) can(c csi.ControllerServiceCapability_RPC_Type) bool { return d.controller[c] }

func (d *driver) controllerLoops(ctx context.Context) (all []loop, err error) {
	provision, err := d.provision(ctx)
	if err != nil {
		return nil, err
	}
	resize, err := d.resize()
	if err != nil {
		return nil, err
	}
	all = append(append(provision, d.attach()), resize...)
	if d.has.snapshots && d.can(csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT) {
		all = append(all, d.takeSnapshots())
	}
	for i := range all {
		all[i].name += " of " + d.name
	}
	return all, nil
}
