package process

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

// If a log is larger than maxLog bytes, openLog begins a new log.
const maxLog = 16 << 20

// start runs a component's program, and appends the program's output to the
// component's log. The program has its own process group, so a Ctrl-C in the terminal reaches only
// the supervisor. The program's environment contains no variables of the user.
// With the user's variables, etcd would read ETCD_* variables as settings, and
// kwok would read a file in the user's home.
//
// The kernel kills the program when the caller's thread ends. So the caller
// must lock its goroutine to its thread, and must not end this goroutine before
// the program has exited.
func (d Dir) start(c component) (*exec.Cmd, error) {
	log, err := d.openLog(c.name)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(c.program.path)
	cmd.Args = append([]string{c.program.argv0}, c.args...)
	cmd.Dir = string(d)
	cmd.Env = []string{"HOME=" + string(d), "PATH=" + filepath.Dir(c.program.path) + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, nil
}

// labLog is the name of the log of the process that runs the lab.
const labLog = "lab"

// OpenLog opens the log for the process that runs a lab. It creates the data dir if the
// folder does not exist, and returns an error if the folder cannot be a data dir.
func OpenLog(d Dir) (*os.File, error) {
	if err := d.claim(); err != nil {
		return nil, err
	}
	return d.openLog(labLog)
}

// openLog opens a component's log for appending. If the log is larger than maxLog, openLog first
// renames it to NAME.log.old. An older NAME.log.old is lost.
func (d Dir) openLog(name string) (*os.File, error) {
	path := d.LogFile(name)
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// lastWords returns the end of a component's log. If a component does not start, the
// error message contains this text. lastWords drops consecutive duplicate lines.
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
		lines = lines[1:] // the first line may be cut
	}
	return strings.Join(slices.Compact(lines), "\n")
}

// killGroup sends sig to a process group. If the group no longer exists, killGroup returns nil.
func killGroup(pid int, sig unix.Signal) error {
	if err := unix.Kill(-pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %s to process group %d: %w", sig, pid, err)
	}
	return nil
}
