package csidriver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
	"github.com/cloudsim-dev/allinone/internal/pause"
)

// node is the half of the driver that works on its machine. A volume is
// whatever the kernel says that is mounted of the disk's file.
type node struct {
	csi.UnimplementedNodeServer
	cfg   NodeConfig
	name  string
	cloud *client.Client
	busy  *busy
	looks singleflight.Group
	// patience is how long a look at a volume may take.
	patience  time.Duration
	templates machine.Templates
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

// NodeGetInfo says which instance the machine is, where it stands, and how many
// volumes it can have: as many disks as its type allows, less those that it has
// and that are not this driver's.
func (n *node) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	i, err := n.cloud.GetInstance(ctx, n.cfg.Instance)
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
	room := t.MaxDisks
	for _, d := range disks {
		if _, here := d.Attachment(i.ID); here && d.Labels[nameLabel] == "" {
			room--
		}
	}
	return &csi.NodeGetInfoResponse{
		NodeId:             string(i.ID),
		MaxVolumesPerNode:  int64(max(room, 1)), // 0 would mean that there is no limit
		AccessibleTopology: topologyOf(n.name, i.Zone)[0],
	}, nil
}

// busy lets one call at a time work on a volume.
type busy struct {
	mu      sync.Mutex
	volumes map[string]chan struct{}
}

func newBusy() *busy { return &busy{volumes: map[string]chan struct{}{}} }

// take waits for a volume until ctx ends; done gives it back.
func (b *busy) take(ctx context.Context, volume string) (done func(), err error) {
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
			return nil, status.Errorf(codes.Aborted, "another call still works on volume %s", volume)
		case <-other:
		}
	}
}

// file is where the data of a volume are on this machine.
func (n *node) file(volume string) (string, error) {
	if !diskID.MatchString(volume) {
		return "", cloudsim.Errorf(cloudsim.NotFound, "no volume %q", volume)
	}
	return filepath.Join(n.cfg.DisksDir, volume+".img"), nil
}

// arrived waits until the data of a disk show up on this machine in their full
// size: the cloud's records are ahead of its data plane.
func arrived(ctx context.Context, path string, bytes int64) error {
	between := pause.Backoff{First: time.Millisecond, Most: 20 * time.Millisecond} // it is made while the cloud answers
	for {
		info, err := os.Stat(path)
		if err == nil && info.Size() >= bytes {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		between.Wait(ctx)
		if ctx.Err() != nil {
			return status.Errorf(codes.DeadlineExceeded, "%s has not shown up with %d GiB: is the data plane of the cloud at work, and its folder that of --disks-dir?", filepath.Base(path), bytes/gib)
		}
	}
}

// loopOf finds the volume's device, which must be of the file that has its
// name now; nil if it is not attached here. It is probably mounted at near.
func (n *node) loopOf(volume string, near ...string) (*machine.Loop, error) {
	path, err := n.file(volume)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, cloudsim.Errorf(cloudsim.NotFound, "no volume %s on this machine", volume)
	}
	return machine.FindFor(string(n.cfg.Instance), path, near...)
}

// mountAt is what is seen at a path: a mount of l, or nothing. Anything else
// there is an error, and never taken for the volume.
func mountAt(l *machine.Loop, path string) (*machine.Mount, error) {
	top, err := machine.Seen(path)
	if err != nil || top == nil {
		return nil, err
	}
	if l == nil || !l.Has(*top) {
		return nil, status.Errorf(codes.FailedPrecondition, "%s: %v, of type %s: unmount it first", path, machine.ErrForeign, top.FSType)
	}
	return top, nil
}
