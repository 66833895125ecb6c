package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"mvdan.cc/sh/v3/interp"
)

// limit is the longest time that a test waits for the shell.
const limit = 10 * time.Second

// typeIn runs an interactive shell with the given input. It returns the channel that gets the
// result of the shell, and the path of the file that gets the output.
func typeIn(t *testing.T, input string) (ended <-chan error, out string) {
	t.Helper()
	in, typed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin := os.Stdin
	os.Stdin = in
	t.Cleanup(func() { os.Stdin = stdin; in.Close(); typed.Close() })
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	r, err := interp.New(interp.StdIO(in, file, file), interp.ExecHandlers(runToEnd))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := typed.WriteString(input); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- interactive(r) }()
	return result, file.Name()
}

// TestInterruptEndsLoop proves that Ctrl-C ends a loop, and that the shell then runs the next line.
func TestInterruptEndsLoop(t *testing.T) {
	ended, out := typeIn(t, "echo begin; while true; do sleep 0.01; done; echo more\nexit 7\n")
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if said, _ := os.ReadFile(out); len(said) > 0 {
			break
		}
		if time.Since(begin) > limit {
			t.Fatal("the loop does not begin")
		}
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if said, _ := os.ReadFile(out); !errors.Is(err, interp.ExitStatus(7)) || string(said) != "begin\n" {
			t.Errorf("got %v and the output %q, want exit status 7", err, said)
		}
	case <-time.After(limit):
		t.Error("the loop continues after Ctrl-C")
	}
}

// TestUnusableProgram proves that the shell continues after a program that the kernel cannot run.
func TestUnusableProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	ended, _ := typeIn(t, file+"\nexit 7\n")
	select {
	case err := <-ended:
		if !errors.Is(err, interp.ExitStatus(7)) {
			t.Errorf("got %v, want exit status 7", err)
		}
	case <-time.After(limit):
		t.Error("the shell does not end")
	}
}
