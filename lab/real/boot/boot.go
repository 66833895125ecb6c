package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Go is the message of the hypervisor after the machine has its cgroup and its network.
// Before this message no program starts. So a hypervisor that dies during the start
// leaves no machine behind.
const Go = "go\n"

const (
	firstPause = 200 * time.Millisecond
	maxPause   = 5 * time.Second
	calm       = time.Minute // after this run time, a program's next pause is firstPause again
)

// Run runs a machine. It waits for Go, builds the root, and keeps the programs running
// until ctx ends. Then it sends SIGTERM to all processes, waits at most Spec.Grace, and
// returns. Run is in PID 1, so the kernel ends the remaining processes when PID 1 exits.
func Run(ctx context.Context, log *slog.Logger, s Spec, start io.Reader) error {
	if err := s.Validate(); err != nil {
		return err
	}
	said := make([]byte, len(Go))
	if _, err := io.ReadFull(start, said); err != nil || string(said) != Go {
		return errors.New("the hypervisor ended before the machine was complete")
	}
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := build(s); err != nil {
		return err
	}
	log.Info("booting", "host", s.Hostname)
	m := &machine{log: log, env: s.Env, waiting: map[int]chan unix.WaitStatus{}, dead: map[int]unix.WaitStatus{}}
	var reaping, running sync.WaitGroup
	empty := make(chan struct{})
	done, finish := context.WithCancel(context.WithoutCancel(ctx))
	reaping.Go(func() { m.reap(done, ctx, empty) })
	for _, p := range s.Programs {
		running.Go(func() { m.keep(ctx, p) })
	}
	<-ctx.Done()
	log.Info("shutting down")
	m.end(s.Grace, empty)
	finish()
	running.Wait()
	reaping.Wait()
	return nil
}

// machine holds the running programs.
type machine struct {
	log *slog.Logger
	env []string

	mu      sync.Mutex
	waiting map[int]chan unix.WaitStatus // by pid: receivers of the exit status
	dead    map[int]unix.WaitStatus      // processes that ended before start registered a receiver
}

// keep runs a program and restarts it after it ends, until ctx ends.
func (m *machine) keep(ctx context.Context, p Program) {
	pause := firstPause
	for awaitSocket(ctx, p.Await) {
		began := time.Now()
		end, err := m.start(p)
		if err != nil {
			m.log.Error("cannot be started", "program", p.Name, "err", err)
		} else {
			m.log.Info("started", "program", p.Name)
			status := <-end
			if ctx.Err() != nil {
				return
			}
			m.log.Warn("ended", "program", p.Name, "exit", status.ExitStatus(), "signal", int(status.Signal()))
		}
		if time.Since(began) > calm {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// awaitSocket waits until a Unix socket accepts connections. It returns false if ctx ends before.
func awaitSocket(ctx context.Context, path string) bool {
	for path != "" {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil {
			_ = c.Close() // the connection was only a check
			break
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return ctx.Err() == nil
}

// start starts a program and returns a channel for its exit status. Only the reaper waits
// for child processes, because PID 1 also gets orphans.
func (m *machine) start(p Program) (<-chan unix.WaitStatus, error) {
	if err := os.MkdirAll(filepath.Dir(p.Log), 0o755); err != nil {
		return nil, err
	}
	out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own descriptor
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	child, err := os.StartProcess(p.Path, append([]string{p.Name}, p.Args...), &os.ProcAttr{
		Dir: "/", Env: m.env, Files: []*os.File{null, out, out},
		Sys: &unix.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, err
	}
	pid := child.Pid
	if err := child.Release(); err != nil {
		return nil, err
	}
	end := make(chan unix.WaitStatus, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if status, ok := m.dead[pid]; ok {
		delete(m.dead, pid)
		end <- status
		return end, nil
	}
	m.waiting[pid] = end
	return end, nil
}

// reap waits for all children and orphans until done ends. After stopping has ended, it
// closes empty when no child is left.
func (m *machine) reap(done, stopping context.Context, empty chan<- struct{}) {
	children := make(chan os.Signal, 1)
	stop := notifyChild(children)
	defer stop()
	tick := time.NewTicker(time.Second) // a signal may be lost while another is pending
	defer tick.Stop()
	told := false
	for {
		none := m.reapAll()
		if none && stopping.Err() != nil && !told {
			told = true
			close(empty)
		}
		select {
		case <-done.Done():
			return
		case <-children:
		case <-tick.C:
		}
	}
}

// reapAll records all processes that have ended, and reports whether there are no more
// children.
func (m *machine) reapAll() (none bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return true
		case err != nil || pid == 0:
			return false
		}
		m.mu.Lock()
		if end, ok := m.waiting[pid]; ok {
			delete(m.waiting, pid)
			end <- status
		} else if len(m.dead) < maxDead {
			m.dead[pid] = status
		} else {
			clear(m.dead) // most are orphans, for which no receiver comes
		}
		m.mu.Unlock()
	}
}

// maxDead is the maximum number of recorded exits of orphans.
const maxDead = 64

// end sends SIGTERM to all processes in the machine and waits until they end, but at most grace.
func (m *machine) end(grace time.Duration, empty <-chan struct{}) {
	if err := unix.Kill(-1, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		m.log.Warn("stop signal not sent to all processes", "err", err)
	}
	over := time.NewTimer(grace)
	defer over.Stop()
	select {
	case <-empty:
	case <-over.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for pid, end := range m.waiting { // the kernel kills these when PID 1 exits
		delete(m.waiting, pid)
		end <- unix.WaitStatus(unix.SIGKILL)
	}
}
