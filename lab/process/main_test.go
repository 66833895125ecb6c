package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/lab"
	"golang.org/x/sys/unix"
)

// The test binary also contains the programs that the tests supervise. The zeroth
// argument selects the program. The programs get all settings as arguments, because
// their environment contains no variables of the user.
var testPrograms = map[string]func(args []string) error{
	"serve":     testServe,
	"stubborn":  testStubborn,
	"headless":  testHeadless,
	"fail":      func(args []string) error { return errors.New("no such luck: " + args[0]) },
	"supervise": testSupervise,
}

// The test program named headless ends the first thread of its process. Only code that runs on this
// thread can end the thread. The main goroutine runs on the first thread during package
// initialization, and LockOSThread keeps the goroutine on this thread.
func init() {
	if filepath.Base(os.Args[0]) == "headless" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if run, ok := testPrograms[filepath.Base(os.Args[0])]; ok {
		if err := run(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// testServe NAME ADDR JOURNAL [CHILD] serves HTTP at ADDR until SIGTERM. It writes into JOURNAL
// when it starts and when it stops. With CHILD it starts a child process that ignores SIGTERM and
// does not end together with testServe. testServe writes the pid of the child into the file CHILD.
func testServe(args []string) error {
	name, addr, journal := args[0], args[1], args[2]
	term := make(chan os.Signal, 1)
	signal.Notify(term, unix.SIGTERM)
	if os.Getenv("ETCD_NAME") != "" {
		return errors.New("it has the environment of whoever started the lab")
	}
	if err := note(journal, "start "+name); err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	go http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if len(args) > 3 {
		stubborn := testProgram("stubborn")
		left := &exec.Cmd{Path: stubborn.path, Args: []string{stubborn.argv0, journal}}
		if err := left.Start(); err != nil {
			return err
		}
		if err := os.WriteFile(args[3], fmt.Append(nil, left.Process.Pid), 0o600); err != nil {
			return err
		}
	}
	<-term
	return note(journal, "stop "+name)
}

func note(journal, line string) error {
	f, err := os.OpenFile(journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// testStubborn JOURNAL ignores SIGTERM.
func testStubborn(args []string) error {
	signal.Ignore(unix.SIGTERM)
	if err := note(args[0], "start stubborn"); err != nil {
		return err
	}
	// Without cgo, the Go runtime would report select{} as a deadlock, because no other
	// goroutine runs.
	for range time.Tick(time.Hour) {
	}
	return nil
}

// testHeadless ends its first thread and continues in its other threads. The kernel reports the
// process as a zombie, but the files and ports of the process are still open. A killed program is
// in this state for a moment.
func testHeadless([]string) error {
	go func() {
		for range time.Tick(time.Hour) {
		}
	}()
	_, _, errno := unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	return errno
}

// testSupervise DIR ADDR JOURNAL runs a lab with two components: testServe at ADDR, and
// testStubborn.
func testSupervise(args []string) error {
	dir, addr, journal := Dir(args[0]), args[1], args[2]
	unlock, err := lockDir(context.Background(), dir)
	if err != nil {
		return err
	}
	defer unlock()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	table := []component{
		testServer("base", addr, journal),
		{name: "stubborn", program: testProgram("stubborn"), args: []string{journal}, startAfter: []string{"base"}},
	}
	units, err := newUnits(table)
	if err != nil {
		return err
	}
	d := &recordFile{dir: dir, now: record{Supervisor: identify(os.Getpid()), Components: []componentEntry{{Name: "base"}, {Name: "stubborn"}}}}
	s := &supervisor{dir: dir, diary: d, say: func(string, ...any) {}, grace: 100 * time.Millisecond}
	return errors.Join(s.runUnits(ctx, units), d.close())
}

func testProgram(name string) program {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return program{self, name}
}

func testServer(name, addr, journal string, more ...string) component {
	return component{
		name: name, address: addr, program: testProgram("serve"),
		args:  append([]string{name, addr, journal}, more...),
		ready: lab.HTTPProbe("http://"+addr, nil),
	}
}

// testTimeout is the timeout of waits in tests. It is long, because the machine may be
// busy.
const testTimeout = 30 * time.Second
