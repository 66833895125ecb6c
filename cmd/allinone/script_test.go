package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cloudsim-dev/allinone/internal/eventually"
	"github.com/cloudsim-dev/allinone/internal/freeport"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"allinone": main})
}

// TestScripts runs the scripts in testdata/script. In the scripts, the test binary is the program
// allinone. With UPDATE_SCRIPTS=1, TestScripts writes the actual output into the scripts.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			// Without this setting, a binary with the race detector sleeps for a second before it
			// exits.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			e.Setenv("XDG_DATA_HOME", e.WorkDir+"/xdg")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"readenv": readenv, "until": awaitLine, "exits": checkExit, "address": freeAddress,
		},
	})
}

// readenv implements the script command "readenv NAME FILE". It waits until FILE exists and sets
// the variable NAME to the content of FILE.
func readenv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: readenv NAME FILE")
	}
	eventually.True(ts, args[1], func() bool {
		raw, err := os.ReadFile(ts.MkAbs(args[1]))
		ts.Setenv(args[0], strings.TrimSpace(string(raw)))
		return err == nil && strings.HasSuffix(string(raw), "\n")
	})
}

// awaitLine implements the script command "until FILE REGEXP". It waits until a line of
// FILE matches REGEXP.
func awaitLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: until FILE REGEXP")
	}
	re := regexp.MustCompile("(?m)" + args[1])
	var raw []byte
	defer func() { ts.Logf("%s", raw) }()
	eventually.True(ts, args[1], func() bool {
		raw, _ = os.ReadFile(ts.MkAbs(args[0]))
		return re.Match(raw)
	})
}

// freeAddress implements the script command "address NAME". It sets the variable NAME to
// an address with a free port. The kernel does not use this port for outgoing connections.
func freeAddress(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: address NAME")
	}
	ports, err := freeport.Choose(1)
	ts.Check(err)
	ts.Setenv(args[0], fmt.Sprintf("127.0.0.1:%d", ports[0]))
}

// checkExit implements the script command "exits CODE COMMAND...". It runs COMMAND and
// fails the script if the exit code is not CODE.
func checkExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}
