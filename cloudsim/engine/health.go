package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Check is the result of one health check.
type Check struct {
	Name string
	Err  error // nil if the check passed
}

// health contains the state of the health checks. The engine keeps this state only in memory.
type health struct {
	recovered atomic.Bool // true while Run is running and has completed the work that was due at its start

	probing sync.Mutex
	probed  time.Time // machine's time of the last probe; zero before the first probe
	err     error     // result of the last probe
}

// probeEvery is the minimum time between two commits of health checks. This
// minimum limits the cost of the health checks, because each commit needs an
// fsync.
const probeEvery = time.Second

// Healthy returns two checks: whether the store can read, and whether it can commit. The result of
// the second check can be up to probeEvery old.
func (e *Engine) Healthy() []Check {
	read := e.store.View(func(*store.Tx) error { return nil })
	return []Check{{"store-read", read}, {"store-commit", e.probe()}}
}

// Ready returns the checks of Healthy and one more check. The additional check fails until the
// engine has completed the work that became due before the cloud started.
func (e *Engine) Ready() []Check {
	var err error
	if !e.health.recovered.Load() {
		err = errors.New("work that became due while the cloud was not running is not finished yet")
	}
	return append(e.Healthy(), Check{"recovered", err})
}

func (e *Engine) probe() error {
	h := &e.health
	h.probing.Lock()
	defer h.probing.Unlock()
	if now := e.store.Now(); h.probed.IsZero() || now.Sub(h.probed) >= probeEvery || now.Before(h.probed) {
		h.err, h.probed = e.store.Probe(), now
	}
	return h.err
}

// Figures contains the resources from which the caller computes metrics.
type Figures struct {
	Quotas []cloudsim.Quota // quotas of all projects
	Faults []cloudsim.Fault
}

// Figures returns the current quotas and faults. The field Seen of a fault can be too low, because
// it contains the number of matching calls at the time of the fault's last hit.
func (e *Engine) Figures() (f Figures, err error) {
	err = e.store.View(func(tx *store.Tx) error {
		f = Figures{}
		for p, err := range projects.Scan(tx, "", "") {
			if err != nil {
				return err
			}
			for _, name := range cloudsim.QuotaNames() {
				q, err := e.quota(tx, p.ID, name)
				if err != nil {
					return err
				}
				f.Quotas = append(f.Quotas, q)
			}
		}
		for fault, err := range faults.Scan(tx, "", "") {
			if err != nil {
				return err
			}
			f.Faults = append(f.Faults, fault)
		}
		return nil
	})
	return f, err
}
