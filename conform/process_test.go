//go:build linux

package conform_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// envPrograms is the name of an environment variable. The variable contains the path of a folder,
// and TestStartsPrograms starts the programs in this folder.
const envPrograms = "CONFORM_TEST_PROGRAMS"

// TestStartsPrograms starts the CCM, etcd and kube-apiserver. TestProgramsEndWithProcess runs
// TestStartsPrograms in a child process, and then kills the child process.
func TestStartsPrograms(t *testing.T) {
	dir := os.Getenv(envPrograms)
	if dir == "" {
		t.Skip("TestProgramsEndWithProcess runs this test in a process of its own")
	}
	ccm := &conform.Command{Line: "exec " + filepath.Join(dir, "ccm"), Log: filepath.Join(dir, "log")}
	if err := ccm.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := conform.StartAPIServer(t.Context(), dir) // does not return, because it waits for an answer of kube-apiserver
	t.Fatal(err)
}

// TestProgramsEndWithProcess starts a child process, which starts the CCM, etcd and kube-apiserver.
// It proves that these three programs end after the test has killed the child process. Each program
// keeps a pipe open while it runs.
func TestProgramsEndWithProcess(t *testing.T) {
	dir, names := t.TempDir(), []string{"ccm", "etcd", "kube-apiserver"}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := syscall.Mkfifo(path+".pipe", 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 60 >$0.pipe\n"), 0o700); err != nil { //nolint:gosec // the test executes this file
			t.Fatal(err)
		}
	}
	run := exec.Command(os.Args[0], "-test.run=^TestStartsPrograms$") //nolint:noctx // killed below
	run.Env = append(os.Environ(), envPrograms+"="+dir)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	var pipes []*os.File
	for _, name := range names {
		pipe, err := os.Open(filepath.Join(dir, name+".pipe")) // waits until the program has opened the pipe
		if err != nil {
			t.Fatal(err)
		}
		defer pipe.Close()
		pipes = append(pipes, pipe)
	}
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = run.Wait()
	for i, pipe := range pipes {
		if err := pipe.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(pipe); err != nil {
			t.Errorf("%s still runs 20 s after the end of the process that started it: %v", names[i], err)
		}
	}
}

// TestAPIServerWithAProgramThatEnds proves that StartAPIServer does not wait for a program that has
// ended. Instead, StartAPIServer returns an error with the name and the output of this program.
func TestAPIServerWithAProgramThatEnds(t *testing.T) {
	programs := []string{"etcd", "kube-apiserver"}
	for _, broken := range programs {
		dir := t.TempDir()
		for _, name := range programs {
			script := "#!/bin/sh\nexec sleep 60\n"
			if name == broken {
				script = "#!/bin/sh\necho wrong flag\nexit 7\n"
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil { //nolint:gosec // the test executes this file
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), eventually.Timeout/4)
		_, err := conform.StartAPIServer(ctx, dir)
		stop()
		for _, text := range []string{broken + " ended", "exit status 7", "wrong flag"} {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("start with a broken %s: got error %v, want %q in it", broken, err, text)
			}
		}
	}
}
