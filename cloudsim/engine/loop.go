package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// retention is the time for which the cloud keeps finished operations and
// idempotency keys.
const retention = 24 * time.Hour

// settleBatch is the maximum number of work items that the loop in Run completes in one
// transaction.
const settleBatch = 256

// tryAgain is the time that Run waits after a failed write, for example on a
// full disk.
const tryAgain = 2 * time.Second

// Run completes due work until ctx ends, and then returns nil. Run first completes the work that
// became due while the process was not running. Run also compacts the journal. If the store is
// Unavailable, for example after a failed write, Run tries again after a pause. During the pause,
// read-only calls continue to work. Run returns every other error.
func (e *Engine) Run(ctx context.Context) error {
	defer e.health.recovered.Store(false)
	for {
		err := e.follow(ctx)
		if !errors.Is(err, cloudsim.Unavailable) {
			return err
		}
		e.log.Error("cannot finish due work; retrying", "in", tryAgain, "err", err)
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

// journalLeast is the minimum length of the journal while the store's file is too large (see
// journalKeep).
const journalLeast = 1000

// journalKeep returns the number of events to keep in a journal of n events. Normally this number
// is JournalKeep. If usedBytes (the size of the used part of the store's file) is greater than
// JournalBytes, the number is half of n, but at least journalLeast and at most JournalKeep. Events
// can be large, because an event contains the whole resource. For example, if a load balancer has
// thousands of targets, each of its events takes about a third of a megabyte.
func (e *Engine) journalKeep(n uint64, usedBytes int64) uint64 {
	if usedBytes <= e.cfg.JournalBytes {
		return e.cfg.JournalKeep
	}
	return min(e.cfg.JournalKeep, max(n/2, journalLeast))
}

// waitDue waits until the given duration has passed or the given channel is closed, and then
// returns true. If ctx ends first, waitDue returns false.
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

// settleIn runs fn in one transaction. The second argument of fn is a function with which fn
// completes work items. If a work item fails, settleIn logs and drops this item, and runs fn again
// without the item. Otherwise the failed item would block all other items.
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
		e.log.Error("dropped due work that the cloud cannot finish", "verb", bad.Verb, "kind", bad.Kind, "id", bad.ID, "err", why)
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

// settleOne completes a work item. It sets tx.Caller and tx.Cause for the events of this work.
func (e *Engine) settleOne(tx *store.Tx, w store.Work) error {
	tx.Caller, tx.Cause = cloudCaller, strings.TrimSpace(string(w.Verb)+" "+string(w.Operation))
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

// compact deletes the oldest events until the journal has the length that
// journalKeep returns. The loop calls compact only if the journal is more than 25 % longer than
// this length, so compact runs rarely.
func (e *Engine) compact() error {
	for n := 1; n > 0; {
		used := e.store.Used()
		if err := e.store.Update("", func(tx *store.Tx) error {
			length, err := tx.Events()
			if err != nil {
				return err
			}
			n, err = tx.Compact(e.journalKeep(length, used), compactBatch)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
