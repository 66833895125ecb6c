package credprovider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/credprovider"
)

// limit is the maximum duration of one run of the program in these tests.
const limit = 15 * time.Second

// program returns the path of the plugin's executable file. `make build` creates
// this file.
func program(tb testing.TB) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts a program: run make e2e")
	}
	path, err := filepath.Abs(filepath.Join("..", "bin", "allinone-credprovider"))
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("%v: run make build", err)
	}
	return path
}

func writeConfig(tb testing.TB, cfg credprovider.Config) string {
	tb.Helper()
	raw, err := json.Marshal(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "credprovider.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

type runResult struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

// execute runs the program in a new process group. It fails the test if a
// process of this group still exists after the end of the program.
func execute(t *testing.T, cfg credprovider.Config, stdin io.Reader, change ...func(*exec.Cmd)) runResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the time limit of the kubelet
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t), "--config="+writeConfig(t, cfg))
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, c := range change {
		c(cmd)
	}
	begin := time.Now()
	err := cmd.Run()
	if _, isExit := errors.AsType[*exec.ExitError](err); err != nil && !isExit {
		t.Fatal(err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the plugin left a child process: %v", err)
	}
	return runResult{cmd.ProcessState.ExitCode(), out.String(), stderr.String(), time.Since(begin)}
}

// checkFailed checks that the run ended within the limit with the exit code 1.
// Standard output must be empty. Standard error must be one line with one of
// the codes and without secrets.
func (e runResult) checkFailed(t *testing.T, codes ...credprovider.Code) {
	t.Helper()
	is := false
	for _, c := range codes {
		is = is || strings.HasPrefix(e.stderr, "allinone-credprovider: "+string(c)+": ")
	}
	if !is || e.code != 1 || e.stdout != "" || strings.Count(e.stderr, "\n") != 1 || e.took > limit {
		t.Errorf("after %s: exit code %d, stdout %q, stderr %q; want %v", e.took, e.code, e.stdout, e.stderr, codes)
	}
	if strings.Contains(e.stderr, sentinel) {
		t.Errorf("stderr contains a secret: %s", e.stderr)
	}
}

// sentinel is a part of every secret in these tests, so that a test finds
// secrets in the output.
const sentinel = "s3nt1nel"

type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// For every invalid input, the program ends in time and writes one line with
// the error. The program answers a valid request even if standard input stays
// open.
func TestProgramRefusesInvalidInput(t *testing.T) {
	_, cfg := node(t)
	for name, tc := range map[string]struct {
		stdin io.Reader
		want  credprovider.Code
	}{
		"empty":                    {strings.NewReader(""), credprovider.CodeInput},
		"huge":                     {io.LimitReader(endlessReader{}, 100<<20), credprovider.CodeInput},
		"request that is not JSON": {strings.NewReader(sentinel), credprovider.CodeInput},
		"another version":          {strings.NewReader(strings.Replace(ask(host+"/a", sentinel), "/v1", "/v1alpha1", 1)), credprovider.CodeVersion},
		"another kind":             {strings.NewReader(strings.Replace(ask(host+"/a", sentinel), "Request", "Question", 1)), credprovider.CodeVersion},
		"rejected token":           {strings.NewReader(ask(host+"/a", sentinel)), credprovider.CodeDenied},
		"a forged token":           {strings.NewReader(ask(host+"/a", "e30."+sentinel+".e30")), credprovider.CodeDenied},
	} {
		t.Run(name, func(t *testing.T) { execute(t, cfg, tc.stdin).checkFailed(t, tc.want) })
	}
	for name, written := range map[string]string{"never written": "", "never closed": ask(host+"/a", "")} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			if _, err := w.WriteString(written); err != nil {
				t.Fatal(err)
			}
			switch got := execute(t, cfg, r); {
			case written == "":
				got.checkFailed(t, credprovider.CodeInput)
			case got.code != 0 || got.stderr != "" || got.took > limit:
				t.Errorf("valid input without an end: got %+v, want exit code 0 within %s and an empty stderr", got, limit)
			}
		})
	}
}

// blackHole returns an address whose listener has a full queue. The kernel
// neither accepts nor refuses a connection to this address.
func blackHole(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
	for range 16 {
		conn, err := net.DialTimeout("tcp", address, 500*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the queue of the listener was never full")
	return ""
}

// faultyURLs returns the URLs of servers with faults. The key of each URL is
// the name of the fault.
func faultyURLs(t *testing.T) map[string]string {
	t.Helper()
	ended := make(chan struct{})
	serve := func(h http.HandlerFunc) string {
		srv := httptest.NewServer(h)
		t.Cleanup(srv.CloseClientConnections)
		return srv.URL
	}
	flow := func(part string, pause time.Duration) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, part); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(pause):
				}
			}
		}
	}
	t.Cleanup(func() { close(ended) }) // ends the handlers that still run
	return map[string]string{
		"refused":      unusedURL(t),
		"black-holed":  "http://" + blackHole(t),
		"stands still": serve(func(http.ResponseWriter, *http.Request) { <-ended }),
		"429": serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(429)
		}),
		"500":       serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }),
		"slow drip": serve(flow(" ", 100*time.Millisecond)),
		"floods":    serve(flow(strings.Repeat(" ", 1<<20), 0)),
	}
}

// For every fault of the cloud or of the metadata service, the program ends in
// time, writes one line with the error, and leaves no processes.
func TestProgramAlwaysEnds(t *testing.T) {
	_, good := node(t)
	for fault, url := range faultyURLs(t) {
		for which, cfg := range map[string]credprovider.Config{
			"cloud":    {CloudURL: url, MetadataURL: good.MetadataURL, Registries: good.Registries, CacheDir: filepath.Join(t.TempDir(), "cache")},
			"metadata": {CloudURL: good.CloudURL, MetadataURL: url, Registries: good.Registries},
		} {
			t.Run(which+" "+fault, func(t *testing.T) {
				t.Parallel()
				want := map[string]credprovider.Code{"cloud": credprovider.CodeCloud, "metadata": credprovider.CodeMetadata}[which]
				got := execute(t, cfg, strings.NewReader(ask(host+"/a", "")))
				got.checkFailed(t, want)
				t.Logf("%s: %s", got.took.Round(time.Millisecond), strings.TrimSpace(got.stderr))
			})
		}
	}
}

// The program sends tokens directly to the configured URLs. It ignores the
// environment variables that configure a proxy.
func TestProgramUsesNoProxy(t *testing.T) {
	_, good := node(t)
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the plugin sent a request for %s to a proxy", r.URL)
	}))
	defer proxy.Close()
	env := func(cmd *exec.Cmd) {
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
			cmd.Env = append(cmd.Environ(), name+"="+proxy.URL)
		}
	}
	const invalidURL = "http://cloud.invalid"
	for want, cfg := range map[credprovider.Code]credprovider.Config{
		credprovider.CodeCloud:    {CloudURL: invalidURL, MetadataURL: good.MetadataURL, Registries: good.Registries},
		credprovider.CodeMetadata: {CloudURL: good.CloudURL, MetadataURL: invalidURL, Registries: good.Registries},
	} {
		execute(t, cfg, strings.NewReader(ask(host+"/a", "")), env).checkFailed(t, want)
	}
}

// If the program cannot write its answer, it exits with an error, so that the
// kubelet does not use a part of the answer.
func TestProgramCannotWrite(t *testing.T) {
	_, cfg := node(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	execute(t, cfg, strings.NewReader(ask(host+"/a", "")), func(cmd *exec.Cmd) { cmd.Stdout = full }).checkFailed(t, credprovider.CodeOutput)
}

// If a signal kills a run that holds the lock of the cache, later runs can
// still use the cache.
func TestProgramIsKilled(t *testing.T) {
	cl, cfg := node(t)
	requests, let := make(chan struct{}, 16), make(chan struct{})
	cfg.CloudURL = startProxy(t, cl, func(*http.Request) {
		requests <- struct{}{}
		<-let
	})
	cfg.CacheDir = filepath.Join(t.TempDir(), "cache")
	file := writeConfig(t, cfg)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		cmd := exec.Command(program(t), "--config="+file)
		cmd.Stdin = strings.NewReader(ask(host+"/a", ""))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-requests
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("%s does not end the plugin", signal)
		}
	}
	close(let)
	if got := execute(t, cfg, strings.NewReader(ask(host+"/a", ""))); got.code != 0 || got.took > limit {
		t.Errorf("run after the killed runs: got %+v, want exit code 0 within %s", got, limit)
	}
}

// startProxy starts a proxy that passes every received request to the cloud.
// Before the proxy sends a request, it calls onRequest with the request.
func startProxy(t *testing.T, cl *client.Client, onRequest func(*http.Request)) (url string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		onRequest(r)
		req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, cl.URL+r.URL.Path, r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = r.Header
		resp, err := cl.HTTP.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// A run that waits for another run to release the cache lock still ends in time.
func TestWaitForCacheLockEnds(t *testing.T) {
	_, good := node(t)
	cfg := credprovider.Config{CloudURL: faultyURLs(t)["stands still"], MetadataURL: good.MetadataURL, Registries: good.Registries, CacheDir: filepath.Join(t.TempDir(), "cache")}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			execute(t, cfg, strings.NewReader(ask(host+"/a", ""))).checkFailed(t, credprovider.CodeCloud, credprovider.CodeMetadata)
		})
	}
	all.Wait()
}

// Two hundred concurrent runs all end. The cloud's counters show that these
// runs together make only one call to the cloud.
func TestTwoHundredPrograms(t *testing.T) {
	path := program(t)
	cl, cfg := node(t)
	cfg.CacheDir = filepath.Join(t.TempDir(), "cache")
	file := writeConfig(t, cfg)
	if err := cl.ResetBill(t.Context()); err != nil {
		t.Fatal(err)
	}
	const runs = 200
	var all sync.WaitGroup
	errs, took := make(chan error, runs), make(chan time.Duration, runs)
	begin := time.Now()
	for i := range runs {
		all.Go(func() {
			cmd := exec.Command(path, "--config="+file)
			cmd.Stdin = strings.NewReader(ask(fmt.Sprintf("%s/team/app-%d", host, i), ""))
			began := time.Now()
			out, err := cmd.Output()
			took <- time.Since(began)
			var a answer
			if err == nil {
				err = json.Unmarshal(out, &a)
			}
			if err == nil && a.Auth[host].Password == "" {
				err = errors.New("no password")
			}
			errs <- err
		})
	}
	all.Wait()
	total := time.Since(begin)
	var longest time.Duration
	for range runs {
		if err := <-errs; err != nil {
			t.Error(err)
		}
		longest = max(longest, <-took)
	}
	bill, err := cl.Bill(t.Context(), cloudsim.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]uint64{}
	for _, row := range bill.Rows {
		calls[row.Operation] += row.Calls
	}
	if got := calls["registry.credential"]; got != 1 {
		t.Errorf("calls of registry.credential: got %d, want 1", got)
	}
	t.Logf("%d executions in %s, the longest %s; calls of the cloud: %v", runs, total.Round(time.Millisecond), longest.Round(time.Millisecond), calls)
}
