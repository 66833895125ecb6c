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
	// known is the instance that the machine is, once it was found by its name.
	known atomic.Pointer[cloudsim.InstanceID]
	// patience is how long a look at a volume may take.
	patience time.Duration
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
// and that the orchestrator does not count under the name that it asks.
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
	room := t.MaxDisks
	for _, d := range disks {
		if _, here := d.Attachment(i.ID); here && !n.counted(ctx, d) {
			room--
		}
	}
	return &csi.NodeGetInfoResponse{
		NodeId:             string(i.ID),
		MaxVolumesPerNode:  int64(max(room, 1)), // 0 would mean that there is no limit
		AccessibleTopology: topologyOf(n.name, i.Zone)[0],
	}, nil
}

// counted reports whether the orchestrator counts a disk that is here among the
// volumes of the name that it calls. It does if it was made under that; of one that
// a person made and a PersistentVolume names, its device tells: nobody else makes
// one, and where it is staged the kubelet names the driver, if it is a filesystem.
// What cannot be told is not counted: room for one less is better than no node.
func (n *node) counted(ctx context.Context, d cloudsim.Disk) bool {
	as := calledAs(ctx, n.name)
	if d.Labels[nameLabel] != "" {
		return cmp.Or(d.Labels[asLabel], n.name) == as
	}
	ctx, cancel := context.WithTimeout(ctx, n.patience)
	defer cancel()
	paths, err := lookFor(ctx, &n.looks, "device of "+string(d.ID), func() ([]string, error) { return n.shownAt(string(d.ID)) })
	if err != nil && ctx.Err() != nil {
		return true // it hangs, so it is in use
	}
	return len(paths) > 0 && !slices.ContainsFunc(paths, func(p string) bool { return namesOther(p, n.name, as) })
}

// shownAt are the paths at which a volume is shown on this machine.
func (n *node) shownAt(volume string) (paths []string, err error) {
	l, err := n.loopOf(volume)
	if err != nil || l == nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	there, err := l.Of()
	for _, m := range there {
		paths = append(paths, m.Path)
	}
	return paths, err
}

// namesOther reports whether a folder of path is called as a driver, of those that
// this one may be, which is another than the one that is asked.
func namesOther(path, own, as string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(folder string) bool {
		_, legacy := legacies[folder]
		return folder != as && (legacy || folder == own)
	})
}

// instance is the instance that this machine is. Of one that is known by name the
// cloud says which it is, once: that it is made anew is a new machine.
func (n *node) instance(ctx context.Context) (cloudsim.InstanceID, error) {
	if n.cfg.Instance != "" {
		return n.cfg.Instance, nil
	}
	if id := n.known.Load(); id != nil {
		return *id, nil
	}
	l, err := n.cloud.ListInstances(ctx, cloudsim.ListOptions{Name: n.cfg.InstanceName})
	if err != nil {
		return "", fmt.Errorf("which instance %q is: %w", n.cfg.InstanceName, err)
	}
	if len(l.Items) != 1 {
		return "", cloudsim.Errorf(cloudsim.NotFound, "--node-instance: no instance is called %q: see 'allinone cloud instances list'", n.cfg.InstanceName)
	}
	n.known.Store(&l.Items[0].ID)
	return l.Items[0].ID, nil
}

// findInstance asks which instance this machine is until the cloud answers, and
// then waits for ctx. Meanwhile the driver undoes what was done, which needs no
// cloud, and says that it lives. That there is no such instance is an error.
func (n *node) findInstance(ctx context.Context, log *slog.Logger) error {
	between := pause.Backoff{First: time.Second, Most: 30 * time.Second}
	for {
		within, cancel := context.WithTimeout(ctx, othersWithin)
		id, err := n.instance(within)
		cancel()
		switch {
		case err == nil:
			log.Info("the cloud knows this machine", "instance", id, "name", n.cfg.InstanceName)
			<-ctx.Done()
			return nil
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it stops
		case errors.Is(err, cloudsim.NotFound), errors.Is(err, cloudsim.Invalid):
			return err
		}
		log.Warn("the cloud does not say which instance this machine is: no volume is staged before it does; it is asked again", "name", n.cfg.InstanceName, "error", err)
		between.Wait(ctx)
	}
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

// takeAt takes a volume, and the path at which it is worked on: who undoes that may
// not know which volume it is any more.
func (b *busy) takeAt(ctx context.Context, volume, path string) (done func(), err error) {
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
	return machine.FindFor(n.cfg.owner(), path, near...)
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
