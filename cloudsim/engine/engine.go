// Package engine implements the cloud's API. Each operation of the API is one method, which runs in
// one transaction. If an operation takes time, such as the start of an instance, the method only
// begins the work. A loop in Engine.Run completes the work at its due time. In this package, "the
// work settles" means that the loop completes the work. Before each operation, the API server calls
// Authorize, which checks the caller's permission.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
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
	// Registry is the host[:port] of image names. If Registry is "", the cloud
	// has no registry.
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
	// these ranges. If HostRoutes is nil, the cloud does not check the machine's routes.
	HostRoutes func() ([]netip.Prefix, error)

	// Seed makes random values repeatable, except secrets. In two clouds with the same Seed, the
	// same calls get the same request ids, and faults hit the same calls. If Seed is 0, the values
	// are not repeatable.
	Seed uint64
	// StateDir is the directory of saved states. If StateDir is "", the cloud cannot save or load
	// states.
	StateDir string
	// If FrozenAt is not zero, the clock of a new cloud is stopped and shows the time FrozenAt. If
	// FrozenAt is zero, the clock runs and shows the machine's time.
	FrozenAt time.Time

	// DiskData is true if a data plane stores the data of disks. A new snapshot or copied disk then
	// becomes ready only after the data plane has reported that its data is complete.
	DiskData bool
	// DiskFiles saves the data of disks in saved states, and restores this
	// data. If DiskFiles is nil, saved states contain only records.
	DiskFiles DiskFiles
	// DiskCooldown is the minimum time between two modifications of a disk. If DiskCooldown is 0,
	// there is no minimum.
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

// Profile contains the durations of simulated work: how long resources stay in their intermediate
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

// core contains the fields that Engine shares with the types access, imageManager and stateManager.
type core struct {
	log   *slog.Logger
	store *store.Store
	cfg   Config

	// The loop in Engine.Run and the method AdvanceClock lock this mutex while they complete due
	// work. SetClock, LoadState and ResetState also lock the mutex, because the engine must not
	// complete work while they change the clock or the records.
	settling sync.Mutex
}

// Engine applies requests to a store. The types access, imageManager and stateManager implement
// access control, the image registry and saved states. Each of these three types may use only the
// tables that TestMethodsUseOnlyTheirTables permits.
type Engine struct {
	*core
	access
	imageManager
	stateManager

	rules       faultRules
	watchShares watchShares
	requests    requestIDs
	health      health
}

// access decides which calls the cloud permits. It manages tokens, access keys, service accounts,
// roles, workload trusts, signing keys and rate limits. It also records the calls (see the type
// ledger).
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
	// LoadState and ResetState lock this mutex while they run. SaveState also locks this mutex if
	// it saves disk data. So only one of these calls runs at a time.
	loading sync.Mutex
}

// replaceable is the interface through which stateManager updates the engine when LoadState or
// ResetState replaces records of the cloud.
type replaceable interface {
	// prepare adapts the new records to the configuration, in the transaction that replaces the old
	// records.
	prepare(*store.Tx) error
	// loadFaults and loadRates copy the faults and the rate limits from the store to memory.
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
	e.ledger.base = uint64(time.Now().UnixMicro()) // after a restart, base is higher than all earlier entry numbers, because these numbers grow by less than one per microsecond
	return e
}

// Prepare checks the configuration, completes an interrupted LoadState, and adapts the stored
// records to the configuration. It also creates the default project if the project does not exist.
// Prepare returns an error if the configuration is invalid, or does not fit the stored records.
// Call Prepare once, before the first request.
func (e *Engine) Prepare() error {
	if err := e.cfg.Catalogue.Validate(); err != nil {
		return fmt.Errorf("catalogue: %w", err)
	}
	if err := errors.Join(e.cfg.validRanges(), cloudsim.RateLimits{Read: e.cfg.ProjectRate}.Validate(), cloudsim.ValidateNetworkRanges(e.cfg.NetworkRanges), cloudsim.ValidateQuotas(e.cfg.Quotas)); err != nil {
		return err
	}
	if err := errors.Join(e.forgetScratch(), e.recoverData(), e.loadFaults(), e.loadRates()); err != nil {
		return err
	}
	if err := e.store.Update("", func(tx *store.Tx) error {
		if err := e.startClock(tx); err != nil {
			return err
		}
		e.requests.firstRev = tx.Revision()
		return e.prepare(tx)
	}); err != nil {
		return err
	}
	return e.ResetBill(context.Background()) // after startClock, which can set the clock of a new cloud
}

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
