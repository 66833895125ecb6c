package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLog is the size at which a component's log is put aside, when it starts.
const maxLog = 16 << 20

// start runs a component's program in a process group of its own, so that a
// Ctrl-C in the terminal reaches the supervisor alone, with its output in its
// log file and an environment that holds nothing of the user's: etcd would
// take ETCD_* for settings, kwok a file of the user's home.
//
// The kernel kills the program when the thread that called start ends. The
// caller must have locked its goroutine to that thread, and stay until the
// program has exited.
func (d Dir) start(c component) (*exec.Cmd, error) {
	log, err := d.openLog(c.name)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(c.program.path)
	cmd.Args = append([]string{c.program.name}, c.args...)
	cmd.Dir = string(d)
	cmd.Env = []string{"HOME=" + string(d), "PATH=" + filepath.Dir(c.program.path) + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, nil
}

// labLog is the log of the process that runs the lab.
const labLog = "lab"

// OpenLog opens the log that the process which runs a lab should write, and
// makes the data dir if it is not there. An error says what is wrong with it.
func OpenLog(d Dir) (*os.File, error) {
	if err := d.claim(); err != nil {
		return nil, err
	}
	return d.openLog(labLog)
}

// openLog opens a component's log to append to. One that has grown large
// becomes NAME.log.old first; one old log is kept.
func (d Dir) openLog(name string) (*os.File, error) {
	path := d.LogFile(name)
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// lastWords is the end of a component's log, for the error that says that it
// does not start. What was said again and again is there once.
func (d Dir) lastWords(name string) string {
	f, err := os.Open(d.LogFile(name))
	if err != nil {
		return ""
	}
	defer f.Close()
	const keep = 1500
	if info, err := f.Stat(); err == nil && info.Size() > keep {
		if _, err := f.Seek(-keep, 2); err != nil {
			return ""
		}
	}
	b := make([]byte, keep)
	n, err := f.Read(b)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b[:n])), "\n")
	if n == keep && len(lines) > 1 {
		lines = lines[1:] // it has lost its beginning
	}
	return strings.Join(slices.Compact(lines), "\n")
}

// killGroup ends a program and all that it started. What is gone is no error.
func killGroup(pid int, sig unix.Signal) error {
	if err := unix.Kill(-pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %s to process group %d: %w", sig, pid, err)
	}
	return nil
}
