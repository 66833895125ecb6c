package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Down stops the lab that runs in a data dir, whoever started it, and waits
// until nothing of it is left. What does not stop within patience is killed.
// It reports whether there was anything to stop.
func Down(ctx context.Context, d Dir, patience time.Duration) (stopped bool, err error) {
	r, err := d.record()
	if _, damaged := errors.AsType[damagedRecord](err); damaged {
		return false, d.downUnrecorded(err)
	}
	if err != nil {
		return false, err
	}
	if r.Supervisor.runs() {
		stopped = true
		if err := r.Supervisor.signal(unix.SIGTERM, false); err != nil {
			return true, err
		}
		if err := r.Supervisor.awaitEnd(ctx, patience); err != nil {
			return true, err
		}
	}
	// Only a supervisor that was killed leaves something.
	swept, err := d.sweep(ctx)
	if err == nil {
		swept, err = d.sweepMachines(ctx, swept)
	}
	return stopped || len(swept) > 0, err
}

// downUnrecorded is Down when what runs cannot be read, because: nothing does
// if the lock is free.
func (d Dir) downUnrecorded(because error) error {
	unlock, err := d.lock()
	if errors.Is(err, errLocked) {
		return fmt.Errorf("%w, but a lab runs there: end its `allinone up` yourself", because)
	}
	if err != nil {
		return err
	}
	defer unlock()
	return d.forgetDamaged()
}

// awaitEnd waits for a process to end, and kills it when patience is over. One
// that does not even end then is an error after as long again.
func (p process) awaitEnd(ctx context.Context, patience time.Duration) error {
	over := time.NewTimer(patience)
	defer over.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for killed := false; p.runs(); {
		select {
		case <-ctx.Done():
			return fmt.Errorf("pid %d is still stopping: %w", p.PID, context.Cause(ctx))
		case <-over.C:
			if killed {
				return fmt.Errorf("pid %d cannot be killed", p.PID)
			}
			killed = true
			over.Reset(patience)
			if err := p.signal(unix.SIGKILL, false); err != nil {
				return err
			}
		case <-tick.C:
		}
	}
	return nil
}

// Reset stops the lab of a data dir and deletes everything in it. It refuses a
// folder that is not a lab's.
func Reset(ctx context.Context, d Dir, patience time.Duration) error {
	if !d.isOurs() {
		return fmt.Errorf("%s is not a lab's data dir (no %s in it): nothing was deleted", d, markerFile)
	}
	if _, err := Down(ctx, d, patience); err != nil {
		return err
	}
	unlock, err := d.lock()
	if errors.Is(err, errLocked) {
		return fmt.Errorf("a lab is just starting in %s; try again", d)
	}
	if err != nil {
		return err
	}
	defer unlock()
	return d.empty()
}
