package lab

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
	// calm is how long a component must have run for its next death to count
	// as the first.
	calm = time.Minute
	// maxFalseStarts is how often a component may die before it was ever
	// ready: then something is wrong that waiting will not mend.
	maxFalseStarts = 4
)

// supervisor keeps components running until its context ends, and then stops
// them in reverse order.
type supervisor struct {
	dir   Dir
	diary *diary
	say   func(format string, args ...any) // progress, for people
	grace time.Duration                    // between SIGTERM and SIGKILL
}

// unit is a component and where it stands.
type unit struct {
	component
	needs  []*unit // what it comes after
	needed []*unit // what comes after it

	once    sync.Once
	ready   chan struct{} // closed when it was ready for the first time
	stopped chan struct{} // closed when it will not run again
}

// newUnits links the rows of a table. A row that names one that is not there
// is a mistake in the table.
func newUnits(table []component) ([]*unit, error) {
	byName := map[string]*unit{}
	var units []*unit
	for _, c := range table {
		u := &unit{component: c, ready: make(chan struct{}), stopped: make(chan struct{})}
		for _, name := range c.after {
			need, ok := byName[name]
			if !ok {
				return nil, fmt.Errorf("component %s comes after %s, which is not above it in the table", c.name, name)
			}
			u.needs = append(u.needs, need)
			need.needed = append(need.needed, u)
		}
		byName[c.name] = u
		units = append(units, u)
	}
	return units, nil
}

// run starts the units and returns when all have stopped: nil if ctx ended it,
// else why one of them cannot run.
func (s *supervisor) run(ctx context.Context, units []*unit) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	failed := make([]error, len(units))
	var wg sync.WaitGroup
	for i, u := range units {
		wg.Go(func() {
			defer close(u.stopped)
			if failed[i] = s.keep(ctx, u); failed[i] != nil {
				cancel(failed[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// keep runs a unit again and again.
func (s *supervisor) keep(ctx context.Context, u *unit) error {
	// Its programs die with this thread: see Dir.start.
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
			return fmt.Errorf("%s does not start: %w; the end of %s is:\n%s", u.name, err, s.dir.LogFile(u.name), s.dir.lastWords(u.name))
		}
		if time.Since(began) > calm {
			wait = firstBackoff
		}
		s.say("%s died: %v; starting it again in %s", u.name, err, wait)
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

// runOnce runs a unit until it exits by itself, and says why, or until ctx has
// ended and all that needs it has stopped.
func (s *supervisor) runOnce(ctx context.Context, u *unit) error {
	if u.before != nil {
		if err := u.before(ctx); err != nil {
			return fmt.Errorf("before it starts: %w", err)
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
			s.end(u, life)
			return fmt.Errorf("once it was ready: %w", err)
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
	s.end(u, life)
	return nil
}

// settle waits until a unit that just began is ready, does what is to be done
// then, and lets go what waits for it.
func (s *supervisor) settle(ctx context.Context, u *unit, pid int, began time.Time) error {
	if !u.component.ready.await(ctx) {
		return nil // it exits, or we stop: both are seen elsewhere
	}
	if u.then != nil {
		if err := u.then(ctx); err != nil {
			return err
		}
	}
	again := ""
	if isClosed(u.ready) {
		again = " again"
	}
	who := "in this process"
	if u.run == nil {
		who = fmt.Sprintf("pid %d", pid)
	}
	s.say("%s is ready%s after %.1fs (%s)", u.name, again, time.Since(began).Seconds(), who)
	err := s.diary.noteComponent(u.name, func(r *running) { r.Ready = true })
	u.once.Do(func() { close(u.ready) })
	return err
}

// life is one run of a unit.
type life struct {
	pid    int
	exited chan struct{} // closed when it has
	why    error         // then: never nil
	stop   func() error  // asks it to
	kill   func() error  // makes it
}

func (l *life) over(err error) {
	if l.why = err; err == nil {
		l.why = errors.New("it exited")
	}
	close(l.exited)
}

func (s *supervisor) begin(ctx context.Context, u *unit) (*life, error) {
	l := &life{exited: make(chan struct{})}
	if u.run != nil {
		// It outlives ctx until what needs it has stopped.
		inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
		l.stop = func() error { cancel(); return nil }
		l.kill = l.stop
		l.pid = unix.Getpid()
		go func() {
			err := u.run(inner)
			cancel() // what it may have left
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
			l.over(errors.Join(err, l.kill())) // kill what it may have left
		}()
	}
	who := identify(l.pid)
	err := s.diary.noteComponent(u.name, func(r *running) {
		if r.Process.PID != 0 {
			r.Restarts++
		}
		r.Process, r.Since, r.Ready = who, time.Now(), false
	})
	if err != nil {
		s.end(u, l)
	}
	return l, err
}

// end stops a unit: politely, and after the grace, not.
func (s *supervisor) end(u *unit, l *life) {
	if err := l.stop(); err != nil {
		s.say("%s cannot be told to stop: %v", u.name, err)
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
