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
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Go is the message that the hypervisor sends to the machine's first process after the
// machine has its cgroup and its network. The first process starts no program before this
// message. If the hypervisor dies during the start, the first process ends, so no machine
// remains.
const Go = "go\n"

const (
	firstPause = 200 * time.Millisecond
	maxPause   = 5 * time.Second
	calm       = time.Minute // if a program runs longer than calm, the pause before its next restart is firstPause
)

// Run runs a machine. It waits until it reads the message in the constant Go from the argument
// start. Then it builds the machine's root folder, and runs the programs of s. It restarts programs
// that end. When ctx ends, it sends SIGTERM to all processes, waits at most Spec.Grace, and
// returns. The process that calls Run must be PID 1 of a machine. When this process exits, the
// kernel ends the remaining processes of the machine.
func Run(ctx context.Context, log *slog.Logger, s Spec, start io.Reader) error {
	if err := s.Validate(); err != nil {
		return err
	}
	message := make([]byte, len(Go))
	if _, err := io.ReadFull(start, message); err != nil || string(message) != Go {
		return errors.New("the hypervisor ended before the machine was complete")
	}
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := buildRoot(s); err != nil {
		return err
	}
	log.Info("booting", "host", s.Hostname)
	m := &machine{log: log, env: s.Env, waiting: map[int]chan unix.WaitStatus{}}
	var reaping, running sync.WaitGroup
	empty := make(chan struct{})
	done, finish := context.WithCancel(context.WithoutCancel(ctx))
	reaping.Go(func() { m.reapChildren(done, ctx, empty) })
	for _, p := range s.Programs {
		running.Go(func() { m.keepRunning(ctx, p) })
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

	// startProgram holds mu while it starts a program, and reapAll holds mu while it
	// collects exit statuses. So reapAll cannot miss a program that ends immediately.
	mu      sync.Mutex
	waiting map[int]chan unix.WaitStatus // receivers of exit statuses, by pid
}

// keepRunning runs a program until ctx ends. It restarts the program each time that the program
// ends.
func (m *machine) keepRunning(ctx context.Context, p Program) {
	pause := firstPause
	for awaitSocket(ctx, p.Await) {
		began := time.Now()
		end, err := m.startProgram(p)
		if err != nil {
			m.log.Error("program cannot be started", "program", p.Name, "err", err)
		} else {
			m.log.Info("program started", "program", p.Name)
			select {
			case <-ctx.Done(): // Run ends all programs
				return
			case status := <-end:
				if ctx.Err() != nil {
					return
				}
				m.log.Warn("program ended", "program", p.Name, "exit", status.ExitStatus(), "signal", int(status.Signal()))
			}
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

// awaitSocket waits until a Unix socket accepts connections. It returns false if ctx ends
// first.
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

// startProgram starts a program and returns a channel that receives the program's exit status. It
// does not wait for the program to end, because reapChildren waits for all child processes. The
// child processes include orphans, because the kernel makes PID 1 the parent of each orphan.
func (m *machine) startProgram(p Program) (<-chan unix.WaitStatus, error) {
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
	m.mu.Lock()
	defer m.mu.Unlock()
	child, err := os.StartProcess(p.Path, append([]string{p.Name}, p.Args...), &os.ProcAttr{
		Dir: "/", Env: slices.Concat(m.env, p.Env), Files: []*os.File{null, out, out},
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
	m.waiting[pid] = end
	return end, nil
}

// reapChildren collects the exit statuses of all child processes, including orphans. It returns
// when doneCtx ends. When stopCtx has ended and no child process remains, reapChildren closes the
// channel noChildren.
func (m *machine) reapChildren(doneCtx, stopCtx context.Context, noChildren chan<- struct{}) {
	children := make(chan os.Signal, 1)
	stop := notifyChild(children)
	defer stop()
	tick := time.NewTicker(time.Second) // the kernel drops a SIGCHLD while an earlier SIGCHLD is pending
	defer tick.Stop()
	closed := false
	for {
		none := m.reapAll()
		if none && stopCtx.Err() != nil && !closed {
			closed = true
			close(noChildren)
		}
		select {
		case <-doneCtx.Done():
			return
		case <-children:
		case <-tick.C:
		}
	}
}

// reapAll collects the exit statuses of all children that have ended, and sends the status of each
// program to the program's channel. It reports whether this process has no more children.
func (m *machine) reapAll() (none bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
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
		if end, ok := m.waiting[pid]; ok { // an orphan has no receiver
			delete(m.waiting, pid)
			end <- status
		}
	}
}

// end sends SIGTERM to all processes in the machine. Then it waits until reapChildren
// closes the channel noChildren, but not longer than gracePeriod.
func (m *machine) end(gracePeriod time.Duration, noChildren <-chan struct{}) {
	if err := unix.Kill(-1, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		m.log.Warn("stop signal not sent to all processes", "err", err)
	}
	over := time.NewTimer(gracePeriod)
	defer over.Stop()
	select {
	case <-noChildren:
	case <-over.C: // the kernel kills the remaining processes when PID 1 exits
	}
}
