package process

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	firstBackoff = 200 * time.Millisecond
	maxBackoff   = 10 * time.Second
	// stableAfter is the run time after which a component counts as stable. If a component
	// has run longer, its next restart waits only firstBackoff. Otherwise, the next restart
	// waits twice as long as the previous restart, up to maxBackoff.
	stableAfter = time.Minute
	// maxFalseStarts is the number of failed starts after which the supervisor gives up on a
	// component that was never ready. The supervisor then stops all components.
	maxFalseStarts = 4
)

// supervisor keeps components running until its context ends, and then stops the components in the
// reverse order of their start.
type supervisor struct {
	dir   Dir
	diary *recordFile
	say   func(format string, args ...any) // reports progress to the user
	grace time.Duration                    // between SIGTERM and SIGKILL
}

// unit is a component with its state and its dependencies.
type unit struct {
	component
	needs  []*unit // units that must be ready before this unit starts
	needed []*unit // units that start after this unit

	once    sync.Once
	ready   chan struct{} // closed when the unit is ready for the first time
	stopped chan struct{} // closed when the unit will not run again
}

// newUnits returns one unit for each component. Each unit contains the units on which it depends.
// newUnits returns an error if a component depends on a component that is not earlier in the table.
func newUnits(table []component) ([]*unit, error) {
	byName := map[string]*unit{}
	var units []*unit
	for _, c := range table {
		u := &unit{component: c, ready: make(chan struct{}), stopped: make(chan struct{})}
		for _, name := range c.startAfter {
			need, ok := byName[name]
			if !ok {
				return nil, fmt.Errorf("component %s depends on %s, which must come before it in the table", c.name, name)
			}
			u.needs = append(u.needs, need)
			need.needed = append(need.needed, u)
		}
		byName[c.name] = u
		units = append(units, u)
	}
	return units, nil
}

// runUnits starts the units and returns when all have stopped. If ctx ended the run, it returns
// nil. Otherwise it returns the errors of the units that cannot run.
func (s *supervisor) runUnits(ctx context.Context, units []*unit) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	failed := make([]error, len(units))
	var wg sync.WaitGroup
	for i, u := range units {
		wg.Go(func() {
			defer close(u.stopped)
			if failed[i] = s.keepRunning(ctx, u); failed[i] != nil {
				cancel(failed[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// keepRunning runs a unit and restarts it with a backoff until ctx ends. It returns an error if the
// unit ends maxFalseStarts times before it is ready for the first time.
func (s *supervisor) keepRunning(ctx context.Context, u *unit) error {
	// The goroutine must keep its thread: when the thread ends, the kernel kills the programs that
	// Dir.start has started in this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, need := range u.needs {
		select {
		case <-need.ready:
		case <-ctx.Done():
			return nil
		}
	}
	wait, deaths := firstBackoff, 0
	for {
		began := time.Now()
		err := s.runOnce(ctx, u)
		if ctx.Err() != nil {
			return nil
		}
		deaths++
		if deaths >= maxFalseStarts && !isClosed(u.ready) {
			return fmt.Errorf("%s does not start: %w; the end of %s is:\n%s", u.name, err, s.dir.LogFile(u.logName()), s.dir.lastWords(u.logName()))
		}
		if time.Since(began) > stableAfter {
			wait = firstBackoff
		}
		s.say("%s does not run: %v; starting it again in %s", u.name, err, wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
		wait = min(2*wait, maxBackoff)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// runOnce runs a unit until the unit exits, and returns the reason. If ctx ends, runOnce
// waits until all units that need this unit have stopped. Then runOnce stops this unit.
func (s *supervisor) runOnce(ctx context.Context, u *unit) error {
	if u.before != nil {
		if err := u.before(ctx); err != nil {
			return fmt.Errorf("preparation of the start failed: %w", err)
		}
	}
	began := time.Now()
	life, err := s.begin(ctx, u)
	if err != nil {
		return err
	}
	var settling sync.WaitGroup
	settled := make(chan error, 1)
	probing, stopProbing := context.WithCancel(ctx)
	settling.Go(func() { settled <- s.settle(probing, u, life.pid, began) })
	defer settling.Wait()
	defer stopProbing()

	select {
	case <-life.exited:
		return life.why
	case err := <-settled:
		if err != nil && ctx.Err() == nil {
			s.stopUnit(u, life)
			return fmt.Errorf("setup after the start failed: %w", err)
		}
	}
	select {
	case <-life.exited:
		return life.why
	case <-ctx.Done():
	}
	for _, dependent := range u.needed {
		<-dependent.stopped
	}
	s.stopUnit(u, life)
	return nil
}

// settle waits until a unit that just started is ready. Then it calls the function u.then. If
// u.then returns no error, the units that wait for this unit can start.
func (s *supervisor) settle(ctx context.Context, u *unit, pid int, began time.Time) error {
	if !u.component.ready.Await(ctx) {
		return nil // the unit exits or the lab stops; runOnce handles both
	}
	if u.then != nil {
		if err := u.then(ctx); err != nil {
			return err
		}
	}
	suffix := ""
	if isClosed(u.ready) {
		suffix = " again"
	}
	location := "in this process"
	if u.run == nil {
		location = fmt.Sprintf("pid %d", pid)
	}
	s.say("%s is ready%s after %.1fs (%s)", u.name, suffix, time.Since(began).Seconds(), location)
	err := s.diary.noteComponent(u.name, func(r *componentEntry) { r.Ready = true })
	u.once.Do(func() { close(u.ready) })
	return err
}

// life is one run of a unit.
type life struct {
	pid    int
	exited chan struct{} // closed when the unit has exited
	why    error         // reason of the exit, not nil after exited is closed
	stop   func() error  // asks the unit to exit
	kill   func() error  // forces the unit to exit
}

func (l *life) over(err error) {
	if l.why = err; err == nil {
		l.why = errors.New("it exited without an error")
	}
	close(l.exited)
}

func (s *supervisor) begin(ctx context.Context, u *unit) (*life, error) {
	l := &life{exited: make(chan struct{})}
	if u.run != nil {
		// The unit continues to run after the end of ctx, until its dependent units have stopped.
		inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
		l.stop = func() error { cancel(); return nil }
		l.kill = l.stop
		l.pid = unix.Getpid()
		go func() {
			err := u.run(inner)
			cancel() // stops goroutines that the unit may have left
			l.over(err)
		}()
	} else {
		cmd, err := s.dir.start(u.component)
		if err != nil {
			return l, err
		}
		l.pid = cmd.Process.Pid
		l.stop = func() error { return killGroup(l.pid, unix.SIGTERM) }
		l.kill = func() error { return killGroup(l.pid, unix.SIGKILL) }
		go func() {
			err := cmd.Wait()
			l.over(errors.Join(err, l.kill())) // kills processes that the program may have left
		}()
	}
	proc := identify(l.pid)
	err := s.diary.noteComponent(u.name, func(r *componentEntry) {
		if r.Process.PID != 0 {
			r.Restarts++
		}
		r.Process, r.Since, r.Ready = proc, time.Now(), false
	})
	if err != nil {
		s.stopUnit(u, l)
	}
	return l, err
}

// stopUnit stops a unit and waits for its exit. It kills the unit if the unit still runs
// after the grace period.
func (s *supervisor) stopUnit(u *unit, l *life) {
	if err := l.stop(); err != nil {
		s.say("%s: stop signal not sent: %v", u.name, err)
	}
	grace := time.NewTimer(s.grace)
	defer grace.Stop()
	select {
	case <-l.exited:
		return
	case <-grace.C:
		s.say("%s does not stop within %s and is killed", u.name, s.grace)
	}
	if err := l.kill(); err != nil {
		s.say("%s cannot be killed: %v", u.name, err)
	}
	<-l.exited
}
