package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Check is one thing that must hold for the cloud to do its work.
type Check struct {
	Name string
	Err  error // nil while it holds
}

// health is what Checks knows besides the store.
type health struct {
	recovered atomic.Bool // what was due at the start has settled, and Run goes on

	probing sync.Mutex
	probed  time.Time // on the machine's clock; the zero time before the first
	err     error     // of the last probe
}

// probeEvery bounds how often the store is asked to commit, which costs an
// fsync, for who asks whether it can.
const probeEvery = time.Second

// Healthy checks that the store can be read, and that it can commit.
func (e *Engine) Healthy() []Check {
	read := e.store.View(func(*store.Tx) error { return nil })
	return []Check{{"store-read", read}, {"store-commit", e.probe()}}
}

// Ready is Healthy, and that what was due while the cloud was down has settled.
func (e *Engine) Ready() []Check {
	var err error
	if !e.health.recovered.Load() {
		err = errors.New("what was due while the cloud was down has not settled yet")
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

// Figures are what the cloud's resources say of themselves in numbers.
type Figures struct {
	Quotas []cloudsim.Quota // of every project
	Faults []cloudsim.Fault
}

// Figures reads them as they are now.
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
