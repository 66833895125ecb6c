package real

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// hypervisor runs machines that match the cloud's instances.
type hypervisor struct {
	log    *slog.Logger
	cfg    Config
	vpc    *vpc // nil if another process is the router
	bridge *bridge
	store  imageStore // template folders for new disks
	stored sync.Mutex // held while a goroutine creates or copies the template of new disks
	cgroup cgroup     // parent cgroup of all machines
	cables *cableSet
	// wantedDisks holds the disks that machines must have as devices.
	wantedDisks attachments
	wg          sync.WaitGroup

	mu     sync.Mutex
	inputs map[cloudsim.InstanceID]*machineInput
}

// machineInput is the input of the goroutine that manages one machine. It holds the latest version
// of the machine's instance.
type machineInput struct {
	devices *machineDevices
	changed notification
	mu      sync.Mutex
	want    cloudsim.Instance
	gone    bool // the cloud has deleted the instance
}

func (k *machineInput) set(i cloudsim.Instance, deleted bool) {
	k.mu.Lock()
	if i.Revision >= k.want.Revision {
		k.want, k.gone = i, deleted
	}
	k.mu.Unlock()
	k.changed.notify()
}

func (k *machineInput) latest() (cloudsim.Instance, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.want, k.gone
}

// Run runs instances as real machines until ctx ends. Then Run switches all machines off and keeps
// their disks. If cfg.Router is set, Run also deletes the network. If the router of this process
// fails, Run ends in the same way and returns the error of the router. Run does not fail if the
// cloud is unavailable, at the start or later.
//
// In two cases, machines continue to run without a hypervisor:
//   - A user kills the hypervisor's process. If the process runs in a container and the container
//     ends, the machines end too.
//   - Run fails before it has taken over the machines of an earlier run, and ctx has not ended.
//
// The next hypervisor takes over these machines. If no other hypervisor starts, the caller can end
// the machines with Clean.
func Run(ctx context.Context, log *slog.Logger, cfg Config) (err error) {
	if err := cfg.Validate(); err != nil {
		return err
	}
	h := &hypervisor{log: log, cfg: cfg, cables: newCables(), inputs: map[cloudsim.InstanceID]*machineInput{}}
	callerCtx := ctx // ends when the caller stops the hypervisor
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var serving *errgroup.Group
	adopted := false
	defer func() { // if a step below fails, this function also stops the parts that already run
		stop()
		h.wg.Wait()
		if serving != nil {
			err = errors.Join(err, serving.Wait())
		}
		err = errors.Join(err, h.closeHandles())
		if adopted || callerCtx.Err() != nil { // otherwise the machines belong to the next hypervisor
			err = errors.Join(err, h.cleanUp(context.WithoutCancel(ctx)))
		}
	}()
	if err := h.openHandles(ctx); err != nil {
		return err
	}
	if h.vpc != nil {
		if serving, err = newRouter(log, cfg.Cloud, h.vpc).serve(ctx, *cfg.Router); err != nil {
			return err
		}
		go func() { _ = serving.Wait(); stop() }() // if the router ends, the hypervisor ends, because machines need the router
	}
	if err := h.adopt(ctx); err != nil {
		return err
	}
	adopted = true
	h.wg.Go(func() { h.keepCables(ctx) })
	h.follow(ctx)
	return nil
}

// openHandles creates the resources that all machines share.
func (h *hypervisor) openHandles(ctx context.Context) (err error) {
	if err := os.MkdirAll(filepath.Join(h.cfg.Dir, "machines"), 0o700); err != nil {
		return err
	}
	if err := removeUnfinishedLoads(h.cfg.Dir); err != nil {
		return err
	}
	all, err := listHierarchies()
	if err != nil {
		return err
	}
	h.cgroup = cgroup{all, h.cfg.Name}
	if err := filterBridges(ctx); err != nil {
		h.log.Warn("pods cannot reach a Service whose endpoint is on their own node; the hypervisor continues", "err", err)
	}
	if h.cfg.Router == nil {
		h.bridge, err = hostBridge(h.cfg.Network)
	} else if h.vpc, err = openVPC(filepath.Join(h.cfg.Dir, vpcFile), h.cfg.Network); err == nil {
		h.bridge = h.vpc.bridge
	}
	if err != nil {
		return err
	}
	h.store = imageStore{
		dir: filepath.Join(h.cfg.Dir, "images"), programs: h.cfg.Programs.Machine, images: h.cfg.Programs.Images,
		more: h.cfg.Programs.Archives, loaded: filepath.Join(h.cfg.Dir, loadedDir),
	}
	_, err = h.store.ensureStore(ctx, h.cfg.Say)
	return err
}

// prepare creates the folders of a machine. If the machine has no disk yet, prepare also creates
// the disk, and copies the image store to the disk.
func (h *hypervisor) prepare(ctx context.Context, f folder) error {
	h.stored.Lock()
	defer h.stored.Unlock()
	if _, err := os.Stat(f.path("disk/containerd")); err == nil {
		return f.prepare("")
	}
	images, err := h.store.ensureStore(ctx, h.cfg.Say)
	if err != nil {
		return err
	}
	return f.prepare(images)
}

// closeHandles closes the handles that openHandles has opened. Machines and the network stay.
func (h *hypervisor) closeHandles() error {
	switch {
	case h.vpc != nil:
		return h.vpc.close()
	case h.bridge != nil:
		h.bridge.link.Close()
	}
	return nil
}

// cleanUp ends all remaining machines. If this process is also the router, the method deletes the
// network, too. The caller must call cleanUp only after all goroutines that manage machines have
// ended.
func (h *hypervisor) cleanUp(ctx context.Context) error {
	if h.cfg.Router == nil {
		return cleanMachines(ctx, h.cfg.Dir, h.cfg.Name)
	}
	return Clean(ctx, h.cfg.Dir, h.cfg.Name, h.cfg.Network.Link)
}

func (h *hypervisor) servesZone(zone string) bool {
	return len(h.cfg.Zones) == 0 || slices.Contains(h.cfg.Zones, zone)
}

// adopt takes over the machines that an earlier hypervisor left running, and starts a goroutine
// for each machine folder. It makes no request to the cloud, so it also works while the
// cloud is unavailable. If adopt fails for a machine, the goroutine of the machine
// tries again later.
func (h *hypervisor) adopt(ctx context.Context) error {
	ids, err := h.storedInstances()
	if err != nil {
		return err
	}
	for _, id := range ids {
		m := h.newMachine(id)
		if err := m.adopt(ctx); err != nil {
			m.log.Error("running machine not taken over; retrying", "err", err)
		}
		h.mu.Lock()
		h.begin(ctx, m)
		h.mu.Unlock()
	}
	if err := h.detachDisks(); err != nil { // disks of machines that ended with their hypervisor
		h.log.Error("disks of ended machines not detached", "err", err)
	}
	return nil
}

// begin starts the goroutine that manages a machine. The caller must hold h.mu.
func (h *hypervisor) begin(ctx context.Context, m *machine) *machineInput {
	k := &machineInput{devices: m.devices, changed: newNotification()}
	h.inputs[m.id] = k
	ctx, stop := context.WithCancel(ctx)
	h.wg.Go(func() { defer stop(); h.manage(ctx, m, k) })
	h.wg.Go(func() { m.devices.keepUpToDate(ctx) })
	m.devices.changed.notify()
	return k
}

// update sends a new version of an instance to the goroutine that manages the instance's machine.
// If this goroutine does not exist yet, the method starts it. It starts no goroutine if deleted is
// true or if another hypervisor serves the zone of the instance.
func (h *hypervisor) update(ctx context.Context, i cloudsim.Instance, deleted bool) {
	if h.servesZone(i.Zone) {
		h.cables.setZone(i)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.inputs[i.ID]
	if k == nil {
		if deleted || !h.servesZone(i.Zone) {
			return
		}
		k = h.begin(ctx, h.newMachine(i.ID))
	}
	k.set(i, deleted)
}

// notifyDisks notifies the machines of the given instances that their disks have changed. If
// instances is empty, notifyDisks notifies all machines.
func (h *hypervisor) notifyDisks(instances ...cloudsim.InstanceID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, k := range h.inputs {
		if len(instances) == 0 || slices.Contains(instances, id) {
			k.devices.changed.notify()
		}
	}
}

// forgetRevisions makes each machine accept the next version of its instance, even if the revision
// is lower than the known revision. After the cloud has loaded a saved state, revisions can be
// lower.
func (h *hypervisor) forgetRevisions() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.inputs {
		k.mu.Lock()
		k.want.Revision = 0
		k.mu.Unlock()
	}
}

// prune marks the instance of a machine as deleted if list does not contain the instance.
func (h *hypervisor) prune(list []cloudsim.Instance) {
	exists := map[cloudsim.InstanceID]bool{}
	for _, i := range list {
		exists[i.ID] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, k := range h.inputs {
		if !exists[id] {
			last, _ := k.latest()
			last.ID = id
			k.set(last, true)
		}
	}
}

// manage manages one machine until it has deleted the machine. If ctx ends first, the method
// switches the machine off and returns.
func (h *hypervisor) manage(ctx context.Context, m *machine, k *machineInput) {
	retry := retryBackoff()
	daily := time.NewTicker(24 * time.Hour)
	defer daily.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case now := <-daily.C:
			if i, gone := k.latest(); !gone && m.isOn() {
				if err := m.renewAgent(i, now); err != nil {
					m.log.Error("certificate of the network proxy's agent not renewed", "err", err)
				}
			}
			continue
		case <-k.changed:
		case <-m.done():
			m.handleCrash(ctx)
			continue
		}
		if m.init != nil && !m.isOn() { // the machine has ended in the meantime
			m.handleCrash(ctx)
		}
		done, err := h.reconcile(ctx, m, k)
		if done {
			return
		}
		if err == nil || ctx.Err() != nil {
			retry.Reset()
			continue
		}
		m.log.Error("machine not updated; retrying", "err", err)
		retry.Wait(ctx)
		k.changed.notify()
	}
	if err := h.stopMachine(context.WithoutCancel(ctx), m, k); err != nil {
		m.log.Error("machine not switched off", "err", err)
	}
}

// handleCrash records that a machine ended by itself, and removes the remains of the machine.
// The disk stays.
func (m *machine) handleCrash(ctx context.Context) {
	m.log.Warn("the machine stopped by itself; it stays off until the next operation on its instance, such as a reboot", "console", m.folder.path("console.log"))
	m.crashOperation = m.bootOperation
	if err := m.powerOff(ctx); err != nil {
		m.log.Error("cleanup after a crash failed", "err", err)
	}
}

// stopMachine switches a machine off at the end of the hypervisor. If this process also runs the
// router, the whole cluster ends, so the Node needs no change. Otherwise the cluster continues with
// the machines of other hypervisors, so stopMachine also sets the machine's Node to NotReady.
func (h *hypervisor) stopMachine(ctx context.Context, m *machine, k *machineInput) error {
	i, _ := k.latest()
	if h.cfg.Router != nil || i.Name == "" {
		return m.shutDown(ctx)
	}
	return h.shutDownAndReport(ctx, m, i)
}

// reconcile changes a machine to match the latest version of its instance. It reports whether
// it has deleted the machine.
func (h *hypervisor) reconcile(ctx context.Context, m *machine, k *machineInput) (deleted bool, err error) {
	i, gone := k.latest()
	if gone {
		if err := m.destroy(ctx); err != nil {
			return false, err
		}
		m.log.Info("machine deleted")
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, gone := k.latest(); !gone { // in the meantime, the cloud restored the instance from a saved state
			return false, nil
		}
		delete(h.inputs, m.id)
		return true, nil
	}
	if m.needsTakeover {
		if err := m.adopt(ctx); err != nil {
			return false, err
		}
	}
	if !h.servesZone(i.Zone) { // an earlier configuration included the zone; the disk stays for a later configuration
		return false, m.powerOff(ctx)
	}
	switch i.State {
	case cloudsim.InstanceProvisioning:
		return false, h.prepare(ctx, m.folder)
	case cloudsim.InstanceStarting, cloudsim.InstanceStopped, cloudsim.InstanceTerminated:
		return false, m.powerOff(ctx)
	case cloudsim.InstanceStopping, cloudsim.InstanceRebooting, cloudsim.InstanceTerminating:
		return false, h.shutDownAndReport(ctx, m, i)
	}
	switch {
	case i.Crashed != nil:
		m.crashOperation = i.Operation
		return false, m.powerOff(ctx)
	case m.crashOperation == i.Operation:
		return false, nil
	case m.isOn() && m.bootOperation == i.Operation:
		return false, nil
	case m.isOn():
		if err := m.shutDown(ctx); err != nil { // a user rebooted the instance, and the hypervisor missed an event
			return false, err
		}
	}
	if free, err := h.awaitName(ctx, i, k.changed); err != nil || !free {
		return false, err
	}
	return false, m.boot(ctx, i)
}

// notReadyTimeout is the time limit of a call of Config.NotReady.
const notReadyTimeout = 5 * time.Second

// shutDownAndReport shuts a machine down and sets the machine's Node to NotReady. Without the
// change of the Node, the cluster would notice the shutdown only when the Node's Lease expires.
// If the change fails, shutDownAndReport logs the failure and returns nil.
func (h *hypervisor) shutDownAndReport(ctx context.Context, m *machine, i cloudsim.Instance) error {
	m.mustReport = m.mustReport || m.isOn() // the value stays for the next attempt if this attempt fails
	if err := m.shutDown(ctx); err != nil || !m.mustReport {
		return err
	}
	m.mustReport = false
	tell, cancel := context.WithTimeout(ctx, notReadyTimeout)
	defer cancel()
	if err := h.cfg.NotReady(tell, i.Name, i.ProviderID); err != nil && ctx.Err() == nil {
		m.log.Warn("shutdown of the machine not reported to the cluster", "err", err)
	}
	return nil
}

func retryBackoff() backoff.Backoff {
	return backoff.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}
}
