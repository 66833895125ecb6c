package csidriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// node implements the node service of one machine. It stores nothing about
// volumes. For each call it reads the kernel's lists of loop devices and
// mounts.
type node struct {
	csi.UnimplementedNodeServer
	cfg   NodeConfig
	name  string
	cloud *client.Client
	busy  *volumeLocks
	looks singleflight.Group
	// instanceID contains the instance id that the cloud returned for the configured name. It is
	// nil before the cloud's answer. If an id is configured, it is always nil.
	instanceID atomic.Pointer[cloudsim.InstanceID]
	// checkTimeout is the time limit for reading the usage or the mounts of a volume.
	checkTimeout time.Duration
}

var nodeCapabilities = []csi.NodeServiceCapability_RPC_Type{
	csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
	csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
	csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
	csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
	csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	resp := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range nodeCapabilities {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

// NodeGetInfo returns the instance of the machine, its zone, and the maximum number of volumes. The
// maximum is the disk limit of the instance type minus the number of attached disks that do not
// count as volumes (see countsAsVolume). The maximum is at least 1.
func (n *node) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	id, err := n.instance(ctx)
	if err != nil {
		return nil, err
	}
	i, err := n.cloud.GetInstance(ctx, id)
	if err != nil {
		return nil, err
	}
	t, err := n.cloud.GetInstanceType(ctx, i.Type)
	if err != nil {
		return nil, err
	}
	disks, _, err := cloudsim.All(ctx, n.cloud.ListDisks, cloudsim.ListOptions{Zone: i.Zone})
	if err != nil {
		return nil, err
	}
	maxVolumes := t.MaxDisks
	for _, d := range disks {
		if _, here := d.Attachment(i.ID); here && !n.countsAsVolume(ctx, d) {
			maxVolumes--
		}
	}
	return &csi.NodeGetInfoResponse{
		NodeId:             string(i.ID),
		MaxVolumesPerNode:  int64(max(maxVolumes, 1)), // to the orchestrator, 0 means no limit
		AccessibleTopology: topologyOf(n.name, i.Zone)[0],
	}, nil
}

// countsAsVolume reports whether the orchestrator counts an attached disk as a volume. The driver
// can have several names, and the orchestrator counts the volumes separately for each name. The
// driver name of a call is the name to which the caller sent the call (see calledAs).
//   - If the driver made the disk, the disk counts only if this call has the same driver name as
//     the disk's CreateVolume call.
//   - If a user made the disk, the disk counts only while it is mounted, because a mount shows that
//     a staged PersistentVolume uses the disk. The kubelet's staging path of a filesystem contains
//     the driver name. So if the path of one of the disk's mounts contains another driver name, the
//     disk does not count.
//
// If the read of the mounts hangs, the disk counts, because a hung disk is in use. If the read
// fails for another reason, the disk does not count. NodeGetInfo then returns a lower maximum, and
// no error.
func (n *node) countsAsVolume(ctx context.Context, d cloudsim.Disk) bool {
	as := calledAs(ctx, n.name)
	if d.Labels[nameLabel] != "" {
		return cmp.Or(d.Labels[asLabel], n.name) == as
	}
	ctx, cancel := context.WithTimeout(ctx, n.checkTimeout)
	defer cancel()
	paths, err := lookFor(ctx, &n.looks, "device of "+string(d.ID), func() ([]string, error) { return n.shownAt(string(d.ID)) })
	if err != nil && ctx.Err() != nil {
		return true // the disk hangs, so it is in use
	}
	return len(paths) > 0 && !slices.ContainsFunc(paths, func(p string) bool { return namesOther(p, n.name, as) })
}

// shownAt returns the paths at which a volume is mounted on this machine.
func (n *node) shownAt(volume string) (paths []string, err error) {
	l, err := n.loopOf(volume)
	if err != nil || l == nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	mounts, err := l.Of()
	for _, m := range mounts {
		paths = append(paths, m.Path)
	}
	return paths, err
}

// namesOther reports whether the name of a folder in path is a driver name other than calledName.
// The driver names are ownDriver and all legacy names.
func namesOther(path, ownDriver, calledName string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(folder string) bool {
		_, legacy := legacyDrivers[folder]
		return folder != calledName && (legacy || folder == ownDriver)
	})
}

// instance returns the id of this machine's instance. If the configuration has only a name, the
// method gets the id from the cloud once and keeps the id. It does not ask again, because a later
// instance with the same name is a different machine.
func (n *node) instance(ctx context.Context) (cloudsim.InstanceID, error) {
	if n.cfg.Instance != "" {
		return n.cfg.Instance, nil
	}
	if id := n.instanceID.Load(); id != nil {
		return *id, nil
	}
	l, err := n.cloud.ListInstances(ctx, cloudsim.ListOptions{Name: n.cfg.InstanceName})
	if err != nil {
		return "", fmt.Errorf("lookup of instance %q failed: %w", n.cfg.InstanceName, err)
	}
	if len(l.Items) != 1 {
		return "", cloudsim.Errorf(cloudsim.NotFound, "--node-instance: no instance has the name %q: see 'allinone cloud instances list'", n.cfg.InstanceName)
	}
	n.instanceID.Store(&l.Items[0].ID)
	return l.Items[0].ID, nil
}

// findInstance asks the cloud for the instance of this machine until the cloud answers. Before the
// cloud answers, the driver can already unpublish and unstage volumes and answer liveness checks,
// because these actions do not need the cloud. findInstance returns an error if the instance does
// not exist. If the instance exists, findInstance does not return before ctx ends, because run.All
// stops the driver when findInstance returns.
func (n *node) findInstance(ctx context.Context, log *slog.Logger) error {
	between := backoff.Backoff{First: time.Second, Most: 30 * time.Second}
	for {
		within, cancel := context.WithTimeout(ctx, othersWithin)
		id, err := n.instance(within)
		cancel()
		switch {
		case err == nil:
			log.Info("the instance of this machine was found", "instance", id, "name", n.cfg.InstanceName)
			<-ctx.Done()
			return nil
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the driver stops
		case errors.Is(err, cloudsim.NotFound), errors.Is(err, cloudsim.Invalid):
			return err
		}
		log.Warn("the instance of this machine is not known yet, so no volume can be staged; retrying", "name", n.cfg.InstanceName, "error", err)
		between.Wait(ctx)
	}
}

// volumeLocks allows only one call at a time for a volume.
type volumeLocks struct {
	mu      sync.Mutex
	volumes map[string]chan struct{}
}

func newBusy() *volumeLocks { return &volumeLocks{volumes: map[string]chan struct{}{}} }

// take reserves a volume for one call. If another call has reserved the volume,
// the method waits until the other call releases the volume. If ctx ends first,
// it returns ABORTED. The function release ends the reservation.
func (b *volumeLocks) take(ctx context.Context, volume string) (release func(), err error) {
	for {
		b.mu.Lock()
		other, taken := b.volumes[volume]
		if !taken {
			mine := make(chan struct{})
			b.volumes[volume] = mine
			b.mu.Unlock()
			return func() {
				b.mu.Lock()
				delete(b.volumes, volume)
				b.mu.Unlock()
				close(mine)
			}, nil
		}
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, status.Errorf(codes.Aborted, "another call still works on %s: repeat this call later", volume)
		case <-other:
		}
	}
}

// takeAt reserves a volume, and also the staging or target path of the call.
// The path is necessary, because the volume id in an unpublish or unstage
// request does not always identify the disk.
func (b *volumeLocks) takeAt(ctx context.Context, volume, path string) (release func(), err error) {
	first, err := b.take(ctx, volume)
	if err != nil {
		return nil, err
	}
	second, err := b.take(ctx, filepath.Clean(path))
	if err != nil {
		first()
		return nil, err
	}
	return func() { second(); first() }, nil
}

// file returns the path of a volume's data on this machine: the file of the
// disk, or the link to the device of the disk.
func (n *node) file(volume string) (string, error) {
	if !diskID.MatchString(volume) {
		return "", cloudsim.Errorf(cloudsim.NotFound, "no volume %q", volume)
	}
	if n.cfg.hasDevices() {
		return cloudsim.DiskID(volume).Link(), nil
	}
	return filepath.Join(n.cfg.DisksDir, volume+".img"), nil
}

// awaitSize waits until the file or device at path exists on this machine with a size of at least
// the given number of bytes. If ctx ends first, it returns DEADLINE_EXCEEDED. The wait is
// necessary, because the cloud can report a disk or a new size before the data plane has created or
// enlarged the file.
func awaitSize(ctx context.Context, path string, bytes int64) error {
	between := backoff.Backoff{First: time.Millisecond, Most: 20 * time.Millisecond} // the data plane often makes the file before the cloud's answer arrives
	for {
		size, err := machine.SizeOf(path) //nolint:contextcheck // it opens a device and does not wait
		if err == nil && size >= bytes {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		between.Wait(ctx)
		if ctx.Err() != nil {
			return status.Errorf(codes.DeadlineExceeded, "%s does not exist or does not have %d GiB yet: check that the cloud's data plane runs, and that --disks-dir is its folder of disks; for devices in /dev, also check that the hypervisor of this machine runs", filepath.Base(path), bytes/gib)
		}
	}
}

// loopOf returns the volume's loop device, or nil if the volume has no device. It returns NotFound
// if the disk's file does not exist on this machine. If the file was deleted and made again, loopOf
// ignores the device of the deleted file. The argument near contains probable mount points of the
// device. loopOf checks these paths first, because a search through all loop devices is slower.
func (n *node) loopOf(volume string, near ...string) (*machine.Loop, error) {
	path, err := n.file(volume)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && !n.cfg.hasDevices() {
		return nil, cloudsim.Errorf(cloudsim.NotFound, "no volume %s on this machine", volume)
	}
	return machine.FindFor(n.cfg.ownerName(), path, near...)
}

// mountAt returns the visible mount at a path if the mount belongs to the device l. It returns nil
// if the path has no mount. If the mount does not belong to l, it returns an error, so that the
// driver never uses a foreign mount as the volume.
func mountAt(l *machine.Loop, path string) (*machine.Mount, error) {
	top, err := machine.Seen(path)
	if err != nil || top == nil {
		return nil, err
	}
	if l == nil || !l.Has(*top) {
		return nil, status.Errorf(codes.FailedPrecondition, "another filesystem or device (type %s) is mounted at %s: unmount it first", top.FSType, path)
	}
	return top, nil
}
