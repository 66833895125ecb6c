// Package engine implements the cloud's API. Each operation of the API is one method, which runs in
// one transaction. If an operation takes time, such as the start of an instance, the method only
// begins the work. A loop in the method Run completes the work at its due time. In this package,
// "the work settles" means that the loop completes the work. Before each operation, the API server
// calls Authorize, which checks the caller's permission.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Config is the configuration of a cloud. Default returns the default
// configuration.
type Config struct {
	// Issuer is the issuer of identity documents. It is the URL of the cloud's
	// API, without a trailing slash.
	Issuer string
	// Registry is the host[:port] of image names; "" for a cloud without a
	// registry.
	Registry string

	Catalogue              cloudsim.Catalogue           // regions, zones and types; Prepare adds them to the stored catalogue
	Profile                Profile                      // durations of simulated work
	Instances              netip.Prefix                 // IPv4 range of default networks
	Instances6             netip.Prefix                 // IPv6 range of default networks; zero value: default networks have no IPv6 addresses
	Pods                   cloudsim.PodRanges           // pod ranges of default networks; zero value: no pod ranges
	LoadBalancers          netip.Prefix                 // IPv4 range of load balancers
	LoadBalancers6         netip.Prefix                 // IPv6 range of load balancers; zero value: load balancers have no IPv6 addresses
	InternalLoadBalancers  netip.Prefix                 // IPv4 range of internal load balancers; zero value: the range LoadBalancers
	InternalLoadBalancers6 netip.Prefix                 // IPv6 range of internal load balancers; zero value: the range LoadBalancers6
	NetworkRanges          []netip.Prefix               // ranges that projects may use for networks, pods and routes
	Published              Published                    // host ports that the cloud uses as second ports of listeners; zero value: no published ports
	Meter                  Meter                        // counts the traffic of load balancers; nil: no counters
	Quotas                 map[cloudsim.QuotaName]int64 // default quotas of projects; for a quota that is absent here, the limit in cloudsim.DefaultQuotas applies
	RateLimits             cloudsim.RateLimits          // rate limits of callers until an administrator changes them; zero value: no limits
	ProjectRate            cloudsim.Rate                // rate limit for all callers of a project together, except callers with a role in all projects; zero value: no limit
	JournalKeep            uint64                       // maximum number of events that the journal keeps
	JournalBytes           int64                        // if the used part of the file has more bytes than this, the journal keeps fewer events

	// HostRoutes returns the ranges to which the cloud's machine has routes. Projects may not use
	// these ranges. If HostRoutes is nil, there are no such ranges.
	HostRoutes func() ([]netip.Prefix, error)

	// Seed makes random values repeatable, except secrets. In two clouds with the same Seed, the
	// same calls get the same request ids, and faults hit the same calls. 0 means that the values
	// are not repeatable.
	Seed uint64
	// StateDir is the directory of saved states; "" disables saving.
	StateDir string
	// FrozenAt is the time that the stopped clock of a new cloud shows. If FrozenAt is zero, the
	// clock runs and shows the machine's time.
	FrozenAt time.Time

	// DiskData is true if a data plane stores the data of disks. A new snapshot or copied disk then
	// becomes ready only after the data plane reports that its data is complete.
	DiskData bool
	// DiskFiles saves the data of disks in saved states, and restores this
	// data. If DiskFiles is nil, saved states contain only records.
	DiskFiles DiskFiles
	// DiskCooldown is the minimum time between two modifications of a disk. 0 means that there is
	// no minimum.
	DiskCooldown time.Duration
}

// Default returns a configuration that needs no setup of the machine. Its IPv4
// ranges are loopback addresses, because Linux accepts connections to all of
// 127.0.0.0/8 without configuration.
func Default() Config {
	return Config{
		Catalogue:      cloudsim.DefaultCatalogue(),
		Profile:        Realistic,
		Instances:      netip.MustParsePrefix("127.64.0.0/16"),
		LoadBalancers:  netip.MustParsePrefix("127.65.0.0/16"),
		LoadBalancers6: netip.MustParsePrefix("fd00:127:65::/64"),
		NetworkRanges:  cloudsim.DefaultNetworkRanges(),
		ProjectRate:    cloudsim.Rate{PerSecond: 1000, Burst: 10_000},
		JournalKeep:    100_000,
		JournalBytes:   1 << 30,
		Issuer:         "http://127.0.0.1:8180",
	}
}

// Profile holds the durations of simulated work: how long resources stay in their intermediate
// states. The transaction that begins work with duration 0 also completes the work.
type Profile struct {
	Name         string
	Provision    time.Duration // instance: provisioning
	Boot         time.Duration // instance: starting, rebooting
	Shutdown     time.Duration // instance: stopping, terminating
	LoadBalancer time.Duration // load balancer: provisioning, updating, deleting
	Disk         time.Duration // disk: creating, attaching, detaching, resizing, modifying, deleting; snapshot: creating, deleting
	Network      time.Duration // network, subnet, route: creating, updating, deleting
}

// Instant and Realistic are the profiles that users can select by name. The durations of Realistic
// are long enough for a watcher to see every state, and short enough for interactive use.
var (
	Instant   = Profile{Name: "instant"}
	Realistic = Profile{Name: "realistic", Provision: 400 * time.Millisecond, Boot: 800 * time.Millisecond, Shutdown: 800 * time.Millisecond, LoadBalancer: 250 * time.Millisecond, Disk: 300 * time.Millisecond, Network: 200 * time.Millisecond}
)

// Profiles returns the profiles that users can select, by their names.
func Profiles() map[string]Profile {
	return map[string]Profile{Instant.Name: Instant, Realistic.Name: Realistic}
}

// core contains the fields that the type Engine shares with the types access, imageManager and
// stateManager.
type core struct {
	log   *slog.Logger
	store *store.Store
	cfg   Config

	// The loop in Run holds the mutex settling while it completes due work, and so does
	// AdvanceClock. AdvanceClock completes all due work in the order of the due times, so the loop
	// must not complete work at the same time.
	settling sync.Mutex
}

// Engine applies requests to a store. The types access, imageManager and stateManager implement
// access control, the image registry and saved states. Each of these three types may use only the
// tables that TestTables permits.
type Engine struct {
	*core
	access
	imageManager
	stateManager

	// regionOf is the region of each zone. While the cloud runs, zones do not change their region,
	// so write transactions may read this map instead of the store.
	regionOf map[string]string

	rules       faultRules
	watchShares watchShares
	requests    requestIDs
	health      health
}

// access decides which calls the cloud permits. It manages tokens, service accounts, roles, trusts,
// signing keys and rate limits.
type access struct {
	*core
	// projectOf returns the project in which a call creates resources.
	projectOf func(*store.Tx, Call) (cloudsim.ProjectID, error)
	placeOf   func(Subject) (*resourceInfo, error)

	carried instanceTokens
	rates   rates
	ledger  ledger
}

// imageManager manages the repositories of the image registry, and decides which pushes and pulls
// the registry permits.
type imageManager struct {
	*core
	projectOf func(*store.Tx, Call) (cloudsim.ProjectID, error)
	decisions decisions
}

// stateManager saves, loads, exports and imports the whole cloud.
type stateManager struct {
	*core
	cloud replaceable
	// LoadState, ResetState, and SaveState with disk data hold the mutex loading while they run, so
	// that only one of these calls runs at a time.
	loading sync.Mutex
}

// replaceable is the interface through which stateManager updates the engine when a caller replaces
// all records of the cloud. A caller replaces all records when it loads a saved state or resets the
// cloud.
type replaceable interface {
	// prepare adapts the new records to the configuration, in the transaction that replaces the old
	// records.
	prepare(*store.Tx) error
	// loadZones, loadFaults and loadRates update the copies of records in
	// memory. LoadState and ResetState call loadZones only if their transaction
	// failed. The call is necessary because prepare may already have changed the
	// copy of the zones.
	loadZones() error
	loadFaults() error
	loadRates() error
}

// New returns an Engine. It does not read or write the store. The caller must then call Prepare and
// Run.
func New(log *slog.Logger, st *store.Store, cfg Config) *Engine {
	c := &core{log: log, store: st, cfg: cfg}
	e := &Engine{core: c}
	e.access.core, e.access.projectOf, e.access.placeOf = c, e.projectOf, e.placeOf
	e.imageManager.core, e.imageManager.projectOf = c, e.projectOf
	e.stateManager.core, e.cloud = c, e
	e.ledger.base = uint64(time.Now().UnixMicro()) // a later start has a higher base than all earlier entry numbers, because the number grows by less than one per microsecond
	return e
}

// Prepare stores the configured catalogue and ensures that the default project exists. Call Prepare
// once, before the first request.
func (e *Engine) Prepare() error {
	if err := e.cfg.Catalogue.Validate(); err != nil {
		return fmt.Errorf("catalogue: %w", err)
	}
	if err := errors.Join(e.cfg.validRanges(), cloudsim.RateLimits{Read: e.cfg.ProjectRate}.Validate(), cloudsim.ValidateNetworkRanges(e.cfg.NetworkRanges), cloudsim.ValidateQuotas(e.cfg.Quotas)); err != nil {
		return err
	}
	if err := errors.Join(e.forgetScratch(), e.recoverData(), e.loadFaults(), e.loadRates(), e.ResetBill(context.Background())); err != nil {
		return err
	}
	return e.store.Update("", func(tx *store.Tx) error {
		if err := e.startClock(tx); err != nil {
			return err
		}
		e.requests.firstRev = tx.Revision()
		return e.prepare(tx)
	})
}

// prepare adapts the stored records to the present configuration.
func (e *Engine) prepare(tx *store.Tx) error {
	if err := ensureKeys(tx); err != nil {
		return err
	}
	if err := e.keepRanges(tx); err != nil {
		return err
	}
	if err := e.republish(tx); err != nil {
		return err
	}
	if err := e.applyCatalogue(tx); err != nil {
		return err
	}
	if err := e.readZones(tx); err != nil {
		return err
	}
	if err := e.keepDiskPools(tx); err != nil {
		return err
	}
	if err := e.waitForNoData(tx); err != nil {
		return err
	}
	if err := offerRoles(tx); err != nil {
		return err
	}
	if _, err := e.ensureProject(tx, DefaultProject); err != nil {
		return err
	}
	return errors.Join(e.keepDefaultNetworks(tx), keepOutages(tx))
}

// readZones fills the map regionOf with the region of each zone in the store.
func (e *Engine) readZones(tx *store.Tx) error {
	e.regionOf = map[string]string{}
	for z, err := range zones.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		e.regionOf[z.Name] = z.Region
	}
	return nil
}

// loadZones reads the map regionOf from the store again. The engine calls loadZones after a failed
// transaction, because this transaction may have changed the map. It uses a write transaction, so
// that no other write transaction reads regionOf at the same time.
func (e *Engine) loadZones() error { return e.store.Update("", e.readZones) }

// retention is the time for which the cloud keeps finished operations and
// idempotency keys.
const retention = 24 * time.Hour

// settleBatch is the maximum number of work items that the loop in Run completes in one
// transaction.
const settleBatch = 256

// tryAgain is the time that Run waits after a failed write, for example on a
// full disk.
const tryAgain = 2 * time.Second

// Run completes (settles) due work until ctx ends. Run first completes the work that became due
// while the process was not running. Run also compacts the journal. If a write to the file fails,
// Run tries again after a pause. During the pause, read-only calls continue to work.
func (e *Engine) Run(ctx context.Context) error {
	defer e.health.recovered.Store(false)
	for {
		err := e.follow(ctx)
		if !errors.Is(err, cloudsim.Unavailable) {
			return err
		}
		e.log.Error("due work not settled; retrying", "in", tryAgain, "err", err)
		if !waitDue(ctx, nil, tryAgain) {
			return nil
		}
	}
}

// follow runs the loop of Run until ctx ends or an error occurs.
func (e *Engine) follow(ctx context.Context) error {
	for {
		changed := e.store.Changed() // call Changed before the read: see Store.Changed
		now, err := e.nextWork()
		if err != nil {
			return err
		}
		if now.long {
			if err := e.compact(); err != nil {
				return err
			}
		}
		if now.due {
			if err := e.settle(); err != nil {
				return err
			}
			continue
		}
		e.health.recovered.Store(true)
		if !waitDue(ctx, changed, now.wait) {
			return nil
		}
	}
}

// schedule describes the next work of the loop in Run.
type schedule struct {
	due  bool          // work is due now
	wait time.Duration // time until the next work is due; at most an hour
	long bool          // the journal is too long and needs compaction
}

// nextWork reads the due list and the length of the journal. The loop calls
// nextWork again after each commit.
func (e *Engine) nextWork() (a schedule, err error) {
	a.wait = time.Hour
	used := e.store.Used()
	err = e.store.View(func(tx *store.Tx) error {
		if at, ok := tx.NextDue(); ok {
			a.due, a.wait = !at.After(tx.Now), min(a.wait, tx.Clock().Takes(at.Sub(tx.Now)))
		}
		n, err := tx.Events()
		keep := e.journalKeep(n, used)
		a.long = n > keep+keep/4
		return err
	})
	return a, err
}

// journalLeast is the number of events that the journal keeps even if the file
// uses more than JournalBytes bytes.
const journalLeast = 1000

// journalKeep returns the number of events to keep in a journal of n events. Normally this number
// is JournalKeep. If the file uses more than JournalBytes bytes, the number is half of n, but at
// least journalLeast and at most JournalKeep. Events can be large, because an event contains the
// whole resource. The event of a load balancer with thousands of targets has about a third of a
// megabyte.
func (e *Engine) journalKeep(n uint64, used int64) uint64 {
	if used <= e.cfg.JournalBytes {
		return e.cfg.JournalKeep
	}
	return min(e.cfg.JournalKeep, max(n/2, journalLeast))
}

// waitDue waits until the given duration has passed or the given channel is closed. It returns
// false if ctx ended before that.
func waitDue(ctx context.Context, changed <-chan struct{}, wait time.Duration) bool {
	timer := time.NewTimer(max(wait, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-timer.C:
	}
	return true
}

// settle completes due work items in one transaction. The type stepLimit limits the number of work
// items and events in the transaction.
func (e *Engine) settle() error {
	e.settling.Lock()
	defer e.settling.Unlock()
	return e.settleIn(func(tx *store.Tx, settle func([]store.Work) error) error {
		for step := newStep(tx); step.goesOn(tx); {
			work, err := tx.TakeDue(1)
			if err != nil || len(work) == 0 {
				return err
			}
			if err := settle(work); err != nil {
				return err
			}
		}
		return nil
	})
}

// settleIn runs fn in one transaction, and passes a function to fn. The passed function completes
// the given work items. If a work item fails, settleIn logs and drops this item, and runs fn again
// without the item. Otherwise one failing item would prevent the cloud from completing the other
// items.
func (e *Engine) settleIn(fn func(tx *store.Tx, settle func([]store.Work) error) error) error {
	dropped := map[store.Work]bool{}
	for {
		var bad store.Work
		var why error
		err := e.store.Update("", func(tx *store.Tx) error {
			why = nil
			return fn(tx, func(work []store.Work) error {
				for _, w := range work {
					if dropped[w] {
						continue
					}
					if err := e.settleOne(tx, w); err != nil {
						bad, why = w, err
						return err // the store discards the transaction, and settleIn completes the other items in a new transaction
					}
				}
				return nil
			})
		})
		if why == nil {
			return err
		}
		dropped[bad] = true
		e.log.Error("work that was due is dropped", "verb", bad.Verb, "kind", bad.Kind, "id", bad.ID, "err", why)
	}
}

// stepLimit limits the size of one transaction of the loop. It counts work items and
// events, because one work item may write many events.
type stepLimit struct {
	did   int
	begin uint64
}

func newStep(tx *store.Tx) stepLimit { return stepLimit{begin: tx.Revision()} }

// goesOn counts a work item, and reports whether the transaction may still complete this item.
func (s *stepLimit) goesOn(tx *store.Tx) bool {
	s.did++
	return s.did <= settleBatch && tx.Revision()-s.begin < 8*settleBatch
}

func (e *Engine) settleOne(tx *store.Tx, w store.Work) error {
	tx.Caller, tx.Cause = "cloud", strings.TrimSpace(string(w.Verb)+" "+string(w.Operation))
	switch w.Kind {
	case cloudsim.KindSigningKey:
		return settleDue(tx, signingKeys, w, e.settledKey)
	case cloudsim.KindInstance:
		if w.Verb != cloudsim.Settle {
			return e.noticeDue(tx, w)
		}
		return settleDue(tx, instances, w, e.settledInstance)
	case cloudsim.KindLoadBalancer:
		return settleDue(tx, loadBalancers, w, e.settledLoadBalancer)
	case cloudsim.KindDisk:
		if w.Verb == cloudsim.Fail {
			return settleDue(tx, disks, w, e.lateDevice)
		}
		return settleDue(tx, disks, w, e.settledDisk)
	case cloudsim.KindSnapshot:
		return settleDue(tx, snapshots, w, e.settledSnapshot)
	case cloudsim.KindSnapshotGroup:
		return settleDue(tx, snapshotGroups, w, e.settledSnapshotGroup)
	case cloudsim.KindNetwork:
		return settleDue(tx, networks, w, e.settledNetwork)
	case cloudsim.KindSubnet:
		return settleDue(tx, subnets, w, e.settledSubnet)
	case cloudsim.KindRoute:
		return settleDue(tx, routes, w, e.settledRoute)
	case cloudsim.KindFault:
		return e.settledFault(tx, w)
	case cloudsim.KindOperation:
		return e.forgetOperations(tx, w)
	case cloudsim.KindToken:
		return forgetToken(tx, w)
	case kindIdempotencyKey:
		return idempotencyKeys.Delete(tx, w.ID)
	}
	return fmt.Errorf("due work of an unknown kind: %s %s", w.Kind, w.ID)
}

// compactBatch is the maximum number of events that one transaction of compact deletes.
const compactBatch = 2000

// compact deletes the oldest events until the journal has its configured
// length. The loop calls compact only when the journal is a quarter longer than
// the configured length, so that compact runs rarely.
func (e *Engine) compact() error {
	for n := 1; n > 0; {
		used := e.store.Used()
		if err := e.store.Update("", func(tx *store.Tx) error {
			there, err := tx.Events()
			if err != nil {
				return err
			}
			n, err = tx.Compact(e.journalKeep(there, used), compactBatch)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// Check reads the whole file of the cloud. It returns an error if it finds
// damage.
func (e *Engine) Check() error {
	if err := e.store.CheckFile(); err != nil {
		return err
	}
	return e.checkRecords()
}

// checkRecords checks all records and the journal. Unlike Check, it does not
// check the pages of the file.
func (e *Engine) checkRecords() error {
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for _, check := range []func(*store.Tx) error{
		signingKeys.Check, repositories.Check, workloadTrusts.Check, accessKeys.Check,
		(*store.Tx).CheckJournal, projects.Check, tokens.Check, serviceAccounts.Check, roles.Check, roleBindings.Check, regions.Check, zones.Check, instanceTypes.Check,
		diskTypes.Check, diskPools.Check,
		networks.Check, subnets.Check, routes.Check,
		instances.Check, addresses.Check, loadBalancers.Check, disks.Check, operations.Check, faults.Check,
		holds.Check, records.Check, metadataTrees.Check,
		snapshots.Check, snapshotGroups.Check, checkDiskPools,
	} {
		all.Go(func() error { return e.store.View(check) })
	}
	return all.Wait()
}
