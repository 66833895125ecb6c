package httpdriver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/conform"
)

// These are exit codes of the program that NewExec runs. 0 means success, and each other code means
// an error.
const (
	exitNotFound    = 3
	exitUnsupported = 4
)

// NewExec returns a driver that runs a program. The parameter line is a command for sh(1). The file
// openapi.yaml describes the calls that the driver can make. For each call, the driver runs the
// command once, with the method and the path of the call as arguments. The standard input is the
// body of the call, and the standard output is the body of the answer. The exit code is 0 after a
// success, 3 if the named object does not exist, and 4 if the cloud does not support the method.
// After another exit code, the standard error is the text of the error. A call fails if the
// command has not ended after 5 minutes.
func NewExec(line string) (conform.Driver, error) {
	if strings.TrimSpace(line) == "" {
		return nil, errors.New("the command of the driver is empty")
	}
	return &driver{url: "http://exec", http: &http.Client{Timeout: timeout, Transport: program(line)}}, nil
}

// killDelay is the longest time that a driver waits for the end of the output after the program has
// ended.
const killDelay = time.Second

// program is an http.RoundTripper that runs a shell command with sh(1).
type program string

// RoundTrip implements http.RoundTripper.
func (p program) RoundTrip(r *http.Request) (*http.Response, error) {
	cmd := exec.CommandContext(r.Context(), "sh", "-c", string(p)+` "$@"`, "sh", r.Method, r.URL.RequestURI()) //nolint:gosec // the user's command
	ownGroup(cmd)                                                                                              // so that the end of the context kills all processes of the command
	cmd.WaitDelay = killDelay                                                                                  // a child process may keep the program's output open
	var out, stderr limitedBuffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if r.Body != nil {
		defer r.Body.Close()
		cmd.Stdin = r.Body
	}
	resp := &http.Response{StatusCode: http.StatusOK, Request: r}
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) { // ErrWaitDelay: the program has succeeded, but its child process keeps the output open
		var exit *exec.ExitError
		if !errors.As(err, &exit) || r.Context().Err() != nil {
			return nil, fmt.Errorf("run the driver: %w", err)
		}
		resp.StatusCode = http.StatusInternalServerError
		switch exit.ExitCode() {
		case exitNotFound:
			resp.StatusCode = http.StatusNotFound
		case exitUnsupported:
			resp.StatusCode = http.StatusNotImplemented
		}
		text, err := json.Marshal(problem{strings.TrimSpace(exit.String() + ": " + stderr.kept.String())})
		if err != nil {
			return nil, err
		}
		out.kept.Reset()
		_, _ = out.Write(text) // a bytes.Buffer returns no error
	}
	resp.Body = io.NopCloser(&out.kept)
	return resp, nil
}

// limitedBuffer is a buffer that keeps one byte more than the longest permitted body. With this
// byte, the reader of the buffer notices that the body is too long. The bytes.Buffer is not
// embedded. Otherwise os/exec would call the method ReadFrom of the bytes.Buffer, which has no
// limit.
type limitedBuffer struct{ kept bytes.Buffer }

// Write implements io.Writer. It discards bytes beyond the limit without an error, so that the
// program can continue.
func (l *limitedBuffer) Write(b []byte) (int, error) {
	l.kept.Write(b[:min(len(b), maxBody+1-l.kept.Len())])
	return len(b), nil
}
