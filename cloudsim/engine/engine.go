// Package engine makes the cloud move: one method per verb of the API, each
// one transaction, and the loop that lets slow hardware settle. It is also the
// one door (see Admit) that every call passes.
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

// Config says what cloud this is. The zero value is made whole by Default.
type Config struct {
	// Issuer is who signs identity documents: the URL at which the cloud is
	// called, without a slash at its end.
	Issuer string
	// Registry is the host[:port] that image names begin with; "" for a cloud
	// without a registry.
	Registry string

	Catalogue              cloudsim.Catalogue           // what is offered; added to what is there
	Profile                Profile                      // how long hardware takes
	Instances              netip.Prefix                 // IPv4 range of the networks that projects are made with
	Instances6             netip.Prefix                 // the same for IPv6; none: instances in them have no IPv6
	Pods                   cloudsim.PodRanges           // what they give each instance for its pods; the zero value for nothing
	LoadBalancers          netip.Prefix                 // where load balancers get theirs
	LoadBalancers6         netip.Prefix                 // the same for IPv6; none: load balancers have no IPv6
	InternalLoadBalancers  netip.Prefix                 // of those whose scheme is internal; none: with the others
	InternalLoadBalancers6 netip.Prefix                 // the same for IPv6
	NetworkRanges          []netip.Prefix               // what projects may use for networks, pods and routes
	Published              Published                    // where listeners can be reached besides; none: nowhere
	Meter                  Meter                        // counts what load balancers forward; nil: nobody does
	Quotas                 map[cloudsim.QuotaName]int64 // limits of projects that were not told otherwise; absent for cloudsim.DefaultQuotas
	RateLimits             cloudsim.RateLimits          // until others are set; the zero value limits nobody
	ProjectRate            cloudsim.Rate                // of all callers of a project together, apart from those with a role in all projects; the zero value limits nobody
	JournalKeep            uint64                       // events kept for watchers that were away
	JournalRoom            int64                        // bytes in use of the file beyond which fewer are kept

	// HostRoutes returns ranges that the cloud's machine has routes to. Projects
	// may not use them. Nil for none.
	HostRoutes func() ([]netip.Prefix, error)

	// Seed makes what would be random repeatable, but secrets: the same calls
	// get the same request ids and meet the same faults. 0 is random.
	Seed uint64
	// StateDir is where states are saved; "" saves none.
	StateDir string
	// FrozenAt is where the clock of a new cloud stands still; the zero time
	// follows the machine.
	FrozenAt time.Time

	// DiskData says that a data plane keeps the data of disks: what begins as
	// a copy is ready when that reports its data whole, not by the clock alone.
	DiskData bool
	// DiskFiles saves the data of disks with states and brings it back; nil for
	// a cloud whose states are its records alone.
	DiskFiles DiskFiles
	// DiskCooldown is how long a disk that was modified cannot be again; 0 is
	// not at all.
	DiskCooldown time.Duration
}

// Default is the cloud that asks nothing of the machine: it lives on loopback,
// because Linux answers all of 127/8 without configuration.
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
		JournalRoom:    1 << 30,
		Issuer:         "http://127.0.0.1:8180",
	}
}

// Profile is how long hardware takes. A zero duration settles in the same
// transaction.
type Profile struct {
	Name         string
	Provision    time.Duration // instance: provisioning
	Boot         time.Duration // instance: starting, rebooting
	Shutdown     time.Duration // instance: stopping, terminating
	LoadBalancer time.Duration // load balancer: provisioning, updating, deleting
	Disk         time.Duration // disk: creating, attaching, detaching, resizing, modifying, deleting; snapshot: creating, deleting
	Network      time.Duration // network, subnet, route: creating, updating, deleting
}

// The profiles that people choose by name. Realistic is short: it shows every
// state to a watcher and keeps a lab quick.
var (
	Instant   = Profile{Name: "instant"}
	Realistic = Profile{Name: "realistic", Provision: 400 * time.Millisecond, Boot: 800 * time.Millisecond, Shutdown: 800 * time.Millisecond, LoadBalancer: 250 * time.Millisecond, Disk: 300 * time.Millisecond, Network: 200 * time.Millisecond}
)

// Profiles lists the profiles by name.
func Profiles() map[string]Profile {
	return map[string]Profile{Instant.Name: Instant, Realistic.Name: Realistic}
}

// Engine applies requests to a store.
type Engine struct {
	log   *slog.Logger
	store *store.Store
	cfg   Config

	// regionOf says which region a zone is in. Only prepare writes zones and
	// fills it, in a transaction; so every other transaction that writes may
	// read it instead of the store.
	regionOf map[string]string

	rules faultRules

	decisions decisions
	carried   instanceTokens
	rates     rates

	watchShares watchShares
	ledger      ledger

	requests requestIDs
	health   health

	// settling is held by who takes due work, so that an advance of the clock
	// settles all of it, in its order.
	settling sync.Mutex
	// loading is held by a load, a reset, and a save with the data of disks, so that
	// only one of them runs.
	loading sync.Mutex
}

// New assigns; Prepare and then Run work.
func New(log *slog.Logger, st *store.Store, cfg Config) *Engine {
	return &Engine{log: log, store: st, cfg: cfg}
}

// Prepare writes the catalogue and makes sure that the default project exists.
// Run it once, before the first request.
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
		e.requests.begin = tx.Revision()
		return e.prepare(tx)
	})
}

// prepare makes the contents of the file fit this cloud.
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

// readZones makes regionOf what the zones in the file are.
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

// loadZones is readZones after a transaction that failed. It is one that writes
// nothing, so that no other one reads them meanwhile.
func (e *Engine) loadZones() error { return e.store.Update("", e.readZones) }

// retention is how long finished operations and idempotency keys are kept.
const retention = 24 * time.Hour

// settleBatch bounds the work of one transaction of the loop.
const settleBatch = 256

// tryAgain is when Run tries again to write, on a disk that is full.
const tryAgain = 2 * time.Second

// Run settles what falls due until ctx ends. What was due while the process
// was down settles first. It also keeps the journal at its length. While the file
// cannot be written to, what is due waits, and readers are served.
func (e *Engine) Run(ctx context.Context) error {
	defer e.health.recovered.Store(false)
	for {
		err := e.follow(ctx)
		if !errors.Is(err, cloudsim.Unavailable) {
			return err
		}
		e.log.Error("what is due cannot be done; trying again", "in", tryAgain, "err", err)
		if !waitDue(ctx, nil, tryAgain) {
			return nil
		}
	}
}

// follow is Run until something goes wrong.
func (e *Engine) follow(ctx context.Context) error {
	for {
		changed := e.store.Changed() // before reading: see Changed
		now, err := e.agenda()
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

// agenda is what there is for the loop to do.
type agenda struct {
	due  bool          // work is
	wait time.Duration // until work is, if none is yet; an hour at most
	long bool          // the journal is, and is to be compacted
}

// agenda looks once: the loop hears of every commit.
func (e *Engine) agenda() (a agenda, err error) {
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

// journalLeast is how many events are kept however large they are.
const journalLeast = 1000

// journalKeep is how many of n events are kept, of a file with so many bytes in use: half of those that there are, if
// the file is larger than it may be by them. An event has all of its resource, which
// of a load balancer with thousands of targets is a third of a megabyte.
func (e *Engine) journalKeep(n uint64, used int64) uint64 {
	if used <= e.cfg.JournalRoom {
		return e.cfg.JournalKeep
	}
	return min(e.cfg.JournalKeep, max(n/2, journalLeast))
}

// waitDue waits until work may be due; false when ctx ended.
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

// settle does what is due now.
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

// settleIn runs fn as one transaction that settles work. One piece of work
// that fails is logged and dropped, and fn runs again without it: it must not
// stop the cloud.
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
						return err // nothing half-done stays: the others run again without it
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

// step bounds what one transaction of the loop does: pieces of work, and events,
// of which one piece may leave many.
type step struct {
	did   int
	begin uint64
}

func newStep(tx *store.Tx) step { return step{begin: tx.Revision()} }

// goesOn counts a piece of work, and reports whether there is room for it.
func (s *step) goesOn(tx *store.Tx) bool {
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
	return fmt.Errorf("nobody settles this kind")
}

// compactBatch is how many events one transaction forgets.
const compactBatch = 2000

// compact keeps the journal between its length and a quarter more, so that it
// works rarely.
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

// Check reports every damage that it finds in the cloud's file. It reads all
// of it.
func (e *Engine) Check() error {
	if err := e.store.CheckFile(); err != nil {
		return err
	}
	return e.checkRecords()
}

// checkRecords is Check without the file that they are in.
func (e *Engine) checkRecords() error {
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for _, check := range []func(*store.Tx) error{
		signingKeys.Check, repositories.Check, workloadTrusts.Check,
		(*store.Tx).CheckJournal, projects.Check, tokens.Check, serviceAccounts.Check, roles.Check, roleBindings.Check, regions.Check, zones.Check, instanceTypes.Check,
		diskTypes.Check, diskPools.Check,
		networks.Check, subnets.Check, routes.Check,
		instances.Check, addresses.Check, loadBalancers.Check, disks.Check, operations.Check, faults.Check,
		holds.Check,
		snapshots.Check, snapshotGroups.Check, checkDiskPools,
	} {
		all.Go(func() error { return e.store.View(check) })
	}
	return all.Wait()
}
