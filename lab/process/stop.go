package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// Down stops the lab that runs in a data dir and waits until all its processes have
// ended. It kills a lab that does not stop within the timeout. If a lab is just starting
// and has not written its pid yet, Down waits up to the timeout for the pid. It returns
// false if there was no lab to stop.
func Down(ctx context.Context, d Dir, timeout time.Duration) (stopped bool, err error) {
	stopped, unlock, err := d.stop(ctx, timeout)
	if err == nil {
		unlock()
	}
	return stopped, err
}

// stop does the work of Down, but keeps the lock of the data dir. If stop returns no error,
// the caller must call unlock.
func (d Dir) stop(ctx context.Context, timeout time.Duration) (stopped bool, unlock func(), err error) {
	stopped, unlock, err = d.stopAndLock(ctx, timeout)
	if err != nil {
		return stopped, nil, err
	}
	swept, err := d.sweepAll(ctx)
	if err != nil {
		unlock()
	}
	return stopped || len(swept) > 0, unlock, err
}

// sweepAll ends the processes and machines of a killed supervisor. It removes a
// damaged run.json. The caller must hold the lock.
func (d Dir) sweepAll(ctx context.Context) (swept []string, err error) {
	if err := d.forgetDamaged(); err != nil {
		return nil, err
	}
	if swept, err = d.killLeftovers(ctx); err != nil {
		return swept, err
	}
	return d.sweepMachines(ctx, swept)
}

// stopAndLock ends the running lab and takes its lock. A starting lab takes the lock before it
// writes run.json. So stopAndLock tries again if the lock is taken and run.json names no running
// lab.
func (d Dir) stopAndLock(ctx context.Context, timeout time.Duration) (stopped bool, unlock func(), err error) {
	for began := time.Now(); ; backoff.Sleep(ctx, lockInterval) {
		r, unread := d.record()
		_, damaged := errors.AsType[damagedRecord](unread)
		if unread != nil && !damaged {
			return stopped, nil, unread
		}
		if r.Supervisor.isRunning() {
			stopped = true
			if err := errors.Join(r.Supervisor.signal(unix.SIGTERM, false), r.Supervisor.awaitEnd(ctx, timeout)); err != nil {
				return true, nil, err
			}
			began = time.Now()
		}
		unlock, err := d.lockDir()
		waited := time.Since(began)
		switch {
		case errors.Is(err, fs.ErrNotExist): // no lab can start in a folder that does not exist
			return stopped, func() {}, nil
		case !errors.Is(err, errLocked):
			return stopped, unlock, err
		case ctx.Err() != nil:
			return stopped, nil, fmt.Errorf("waiting for the process that uses data dir %s: %w", d, context.Cause(ctx))
		case damaged && waited > lockRelease: // a lab holds the lock, so run.json was damaged after the start of this lab
			return stopped, nil, fmt.Errorf("a lab uses this data dir, but `allinone down` cannot find its process: stop the process `allinone up` of the lab yourself, and repeat `allinone down` (%w)", unread)
		case waited > timeout:
			return stopped, nil, fmt.Errorf("a lab is starting in %s, or another `allinone down` runs; try again later, or end that process", d)
		}
	}
}

// lockInterval is the interval between two attempts of stopAndLock.
const lockInterval = 20 * time.Millisecond

// awaitEnd waits for a process to end and kills the process after the timeout. Then it waits for
// the end of the process again. If the process still runs after a second timeout, it returns an
// error.
func (p process) awaitEnd(ctx context.Context, timeout time.Duration) error {
	over := time.NewTimer(timeout)
	defer over.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for killed := false; p.isRunning(); {
		select {
		case <-ctx.Done():
			return fmt.Errorf("pid %d is still stopping: %w", p.PID, context.Cause(ctx))
		case <-over.C:
			if killed {
				return fmt.Errorf("pid %d cannot be killed", p.PID)
			}
			killed = true
			over.Reset(timeout)
			if err := p.signal(unix.SIGKILL, false); err != nil {
				return err
			}
		case <-tick.C:
		}
	}
	return nil
}

// Reset stops the lab of a data dir and deletes all files in the folder after all parts
// of the lab have ended. It refuses a folder that is not a data dir.
func Reset(ctx context.Context, d Dir, timeout time.Duration) error {
	if err := d.checkOurs(); err != nil {
		return err
	}
	_, unlock, err := d.stop(ctx, timeout)
	if err != nil {
		return err
	}
	defer unlock()
	return d.deleteContents()
}
