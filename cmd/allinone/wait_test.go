package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// runCLI runs the command "allinone cloud" with the given arguments in this process. The command
// calls the same cloud as the client cl.
func runCLI(ctx context.Context, t *testing.T, cl *client.Client, stderr *bytes.Buffer, args ...string) (code int, stdout string) {
	t.Helper()
	secret, err := cl.Token()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"CLOUDSIM_URL": cl.URL, "CLOUDSIM_TOKEN_FILE": file}
	var out bytes.Buffer
	e := cli.Env{Getenv: func(k string) string { return vars[k] }, Stdin: strings.NewReader(""), Stdout: &out, Stderr: stderr}
	code = start(ctx, e, append([]string{"cloud"}, args...))
	return code, out.String()
}

// TestWaitFailures checks the output and the exit code of commands with --wait. It checks
// a wait that times out, a failed operation, and an interruption by the user. In the test's cloud,
// every operation takes an hour.
func TestWaitFailures(t *testing.T) {
	slow := engine.Profile{Name: "slow", Provision: time.Hour, Boot: time.Hour, Shutdown: time.Hour, LoadBalancer: time.Hour}
	cl := cloudtest.Start(t, cloudtest.WithProfile(slow))
	interrupted, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, step := range []struct {
		args           string
		code           int
		stdout, stderr string // the expected beginning of the command's stdout and stderr
	}{
		{"instances create node-1 --zone sim-1a --wait --timeout 30ms -o name", 10, "i-000001\n",
			"allinone cloud instances create: operation op-000001 has not ended within the time limit of 30ms (--timeout), and the cloud continues the operation: see 'allinone cloud operations list'\n"},
		{"instances delete node-1", 0, "instance i-000001 (node-1): terminating\n", ""},
		{"operations wait op-000001 -o name", 5, "op-000001\n",
			"allinone cloud operations wait: op-000001 (create instance i-000001) failed: replaced by a newer operation (terminate)\n"},
		{"instances delete node-1 --wait --timeout 30ms", 10, "instance i-000001 (node-1): being deleted\n", "allinone cloud instances delete: operation op-000002 has not ended"},
		{"operations wait op-000002 --timeout 0", cli.ExitInterrupted, "", "allinone cloud operations wait: interrupted\n"},
	} {
		var stderr bytes.Buffer
		ctx := t.Context()
		if step.code == cli.ExitInterrupted {
			ctx = interrupted
			time.AfterFunc(50*time.Millisecond, cancel)
		}
		code, stdout := runCLI(ctx, t, cl, &stderr, strings.Fields(step.args)...)
		// Ignore the line with the state of the operation. The command prints this line only if it
		// has read the operation before the wait ended.
		gotStderr := strings.TrimPrefix(stderr.String(), "op-000001 (create instance i-000001): running\n")
		gotStderr = strings.TrimPrefix(gotStderr, "op-000002 (terminate instance i-000001): running\n")
		if code != step.code || stdout != step.stdout || !strings.HasPrefix(gotStderr, step.stderr) {
			t.Errorf("%s: exit %d, want %d\nstdout %q, want %q\nstderr %q, want %q", step.args, code, step.code, stdout, step.stdout, gotStderr, step.stderr)
		}
	}
}
