package lab

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

	"golang.org/x/sys/unix"
)

// The test binary is also the programs that its tests supervise: which one,
// its zeroth argument says. Their environment is empty, so that all they know
// comes by arguments.
var testPrograms = map[string]func(args []string) error{
	"serve":     testServe,
	"stubborn":  testStubborn,
	"headless":  testHeadless,
	"fail":      func(args []string) error { return errors.New("no such luck: " + args[0]) },
	"supervise": testSupervise,
}

// The program that ends its first thread must be on it: main is on it while
// packages are initialised, and stays there if it is locked then.
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

// testServe NAME ADDR JOURNAL [CHILD] serves until SIGTERM, and writes into
// JOURNAL when it starts and stops. With CHILD it leaves a stubborn process
// behind, and that one's pid in the file CHILD.
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
		left := &exec.Cmd{Path: stubborn.path, Args: []string{stubborn.name, journal}}
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

// testStubborn JOURNAL does not stop when it is asked to.
func testStubborn(args []string) error {
	signal.Ignore(unix.SIGTERM)
	if err := note(args[0], "start stubborn"); err != nil {
		return err
	}
	// A bare select{} would be a deadlock to a runtime without cgo: nothing
	// else runs here that could end it.
	for range time.Tick(time.Hour) {
	}
	return nil
}

// testHeadless ends its first thread and lives on in the others: to the kernel
// it is a zombie that still holds its files and ports. This is what a killed
// program looks like for a moment.
func testHeadless([]string) error {
	go func() {
		for range time.Tick(time.Hour) {
		}
	}()
	_, _, errno := unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	return errno
}

// testSupervise DIR ADDR JOURNAL is a process that runs a lab of two programs.
func testSupervise(args []string) error {
	dir, addr, journal := Dir(args[0]), args[1], args[2]
	unlock, err := open(context.Background(), dir)
	if err != nil {
		return err
	}
	defer unlock()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	table := []component{
		testServer("base", addr, journal),
		{name: "stubborn", program: testProgram("stubborn"), args: []string{journal}, after: []string{"base"}},
	}
	units, err := newUnits(table)
	if err != nil {
		return err
	}
	d := &diary{dir: dir, now: record{Supervisor: identify(os.Getpid()), Components: []running{{Name: "base"}, {Name: "stubborn"}}}}
	s := &supervisor{dir: dir, diary: d, say: func(string, ...any) {}, grace: 100 * time.Millisecond}
	return errors.Join(s.run(ctx, units), d.close())
}

// testProgram is one of the table above.
func testProgram(name string) program {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return program{self, name}
}

// testServer is a row for testServe.
func testServer(name, addr, journal string, more ...string) component {
	return component{
		name: name, address: addr, program: testProgram("serve"),
		args:  append([]string{name, addr, journal}, more...),
		ready: httpProbe("http://"+addr, nil),
	}
}

// patience is how long a loaded machine may take for what must come.
const patience = 30 * time.Second
