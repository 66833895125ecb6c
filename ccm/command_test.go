package ccm_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cloud-provider/app"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/internal/freeport"
)

type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	kill func() // kills the program that writes to this buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func TestCommandRefuses(t *testing.T) {
	token := writeTemp(t, "token", "hush")
	config := writeTemp(t, "cloud.yaml", "url: ftp://file\ntokenFile: "+token+"\n")
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		says []string
	}{
		"nothing":                    {nil, nil, []string{"url is required", "tokenFile is required", "--kubeconfig is required"}},
		"file":                       {[]string{"--cloud-config=" + config}, nil, []string{`host "file"`}},
		"environment beats file":     {[]string{"--cloud-config=" + config}, map[string]string{ccm.EnvURL: "ftp://env"}, []string{`host "env"`}},
		"flag beats environment":     {[]string{"--cloud-config=" + config, "--cloud-url=ftp://flag"}, map[string]string{ccm.EnvURL: "ftp://env"}, []string{`host "flag"`}},
		"missing configuration file": {[]string{"--cloud-config=" + config + "-gone"}, nil, []string{config + "-gone"}},
		"another cloud provider":     {[]string{"--cloud-provider=aws"}, nil, []string{"--cloud-provider", "cloudsim", "aws"}},
		"missing kubeconfig":         {[]string{"--cloud-url=http://x", "--cloud-token-file=" + token, "--kubeconfig=" + token + "-gone"}, nil, []string{"--kubeconfig", token + "-gone"}},
		"unknown controller":         {[]string{"--cloud-url=http://x", "--cloud-token-file=" + token, "--controllers=wine"}, nil, []string{"wine"}},
		"positional argument":        {[]string{"go"}, nil, []string{"go"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := ccm.NewCommand(func(k string) string { return tc.env[k] }, &output{})
			cmd.SetArgs(append([]string{}, tc.args...))
			cmd.SilenceErrors = true
			err := cmd.ExecuteContext(t.Context())
			if err == nil {
				t.Fatal("the command ran without an error")
			}
			for _, word := range tc.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
		})
	}
}

// A flag that the user sets to an empty value, false or 0 takes precedence over
// the configuration file. But if a flag for the URL, the token file or the CA file
// is empty, the value in the configuration file applies. A flag that the user does
// not set has no effect.
func TestEmptyFlagBeatsFile(t *testing.T) {
	token := writeTemp(t, "token", "hush")
	config := writeTemp(t, "cloud.yaml", "url: http://file\ntokenFile: "+token+"\ndeleteOrphans: true\nonlyLoadBalancerClass: true\nnodeDeletionGrace: 5m\norphanGrace: 5m\nproject: p\nregion: r\nloadBalancerClass: x.io/c\nloadBalancerIPMode: VIP\n")
	for name, tc := range map[string]struct {
		flags []string
		want  ccm.Config
	}{
		"no flags": {nil, ccm.Config{
			Project: "p", Region: "r", NodeDeletionGrace: metav1.Duration{Duration: 5 * time.Minute}, LoadBalancerClass: "x.io/c",
			OnlyLoadBalancerClass: true, LoadBalancerIPMode: "VIP", DeleteOrphans: true, OrphanGrace: metav1.Duration{Duration: 5 * time.Minute},
		}},
		"flags": {[]string{
			"--delete-orphans=false", "--only-load-balancer-class=false", "--node-deletion-grace=0", "--orphan-grace=0",
			"--cloud-project=", "--cloud-region=", "--load-balancer-class=", "--load-balancer-ip-mode=",
		}, ccm.Config{}},
	} {
		tc.want.URL, tc.want.TokenFile = "http://file", token
		if cfg, err := ccm.ConfigOf(config, tc.flags...); err != nil || cfg != tc.want {
			t.Errorf("%s: got configuration %+v, error %v\nwant %+v", name, cfg, err, tc.want)
		}
	}
}

func TestFlags(t *testing.T) {
	cmd := ccm.NewCommand(func(string) string { return "" }, &output{})
	for name, want := range map[string]string{
		"cloud-provider": "cloudsim", "configure-cloud-routes": "false", "leader-elect": "true",
		"kube-api-qps": "100", "kube-api-burst": "200", "concurrent-service-syncs": "5", "concurrent-node-syncs": "10",
		"node-monitor-period": "5s", "node-status-update-frequency": "5m0s", "cluster-name": "kubernetes",
		"cloud-url": "", "cloud-token-file": "", "cloud-project": "", "cloud-region": "", "v": "0", "logging-format": "text",
	} {
		f := cmd.Flags().Lookup(name)
		if f == nil {
			t.Errorf("flag --%s is missing", name)
		} else if f.DefValue != want || f.Value.String() != want {
			t.Errorf("flag --%s: got value %q and default %q, want %q", name, f.Value, f.DefValue, want)
		}
	}
}

// TestMain runs the tests. In a process that a test started, TestMain runs the
// command of this package instead. Some tests need the command in a separate
// process, because upstream changes the log settings of the whole process and
// does not stop all of its goroutines.
func TestMain(m *testing.M) {
	if os.Getenv("CCM_TEST_COMMAND") == "" {
		// The tests use only the first of upstream's error handlers. The second handler waits until
		// some time has passed since the previous error. For the first error, it uses the start
		// time of the process instead. The time in a synctest bubble begins in the year 2000, long
		// before this start time. So the handler would wait many years.
		utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
		// The fake API server panics if a watch has more unread events than
		// DefaultChanSize, whose default is 100. A test that patches 250 Nodes
		// at once causes more than 100 unread events.
		watch.DefaultChanSize = 10_000
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cmd := ccm.NewCommandWithSilence(os.Getenv, os.Stderr, 500*time.Millisecond)
	cmd.SetArgs(os.Args[1:])
	if err := cmd.ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}

// The command calls the API server. Every line of the command's log has the
// configured format. The command ends without an error when the command's
// context ends.
func TestCommandRunsUntilItsContextEnds(t *testing.T) {
	out, stop := startCommand(t, "--secure-port=0")
	stop()
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, `{"time":`) || strings.Contains(line, "hush") {
			t.Errorf("log line that is not structured or contains a secret: %s", line)
		}
	}
	if !strings.Contains(out.String(), "cloud-node-lifecycle-controller") {
		t.Errorf("the log does not name the controllers:\n%s", out.String())
	}
}

// The health and metrics server closes a connection if the client sends
// nothing, even in the middle of a request body. Upstream's server itself has
// no timeout for the body of a request.
func TestHealthServerClosesSilentConnections(t *testing.T) {
	ports, err := freeport.Choose(1)
	if err != nil {
		t.Fatal(err)
	}
	_, stop := startCommand(t, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[0]), "--cert-dir="+t.TempDir())
	closesSilent(t, fmt.Sprintf("127.0.0.1:%d", ports[0]))
	stop()
}

// startCommand runs the command in a separate process and waits until the
// command watches Nodes. When the caller calls stop, the process gets SIGTERM
// and ends.
func startCommand(t *testing.T, args ...string) (out *output, stop func()) {
	t.Helper()
	watched := make(chan struct{})
	var once sync.Once
	kube := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz":
			_, _ = w.Write([]byte("ok"))
		case "/api/v1/nodes":
			once.Do(func() { close(watched) })
			<-r.Context().Done()
		default:
			http.Error(w, "not here", http.StatusForbidden)
		}
	}))
	t.Cleanup(kube.Close)
	t.Cleanup(kube.CloseClientConnections)

	out = &output{}
	cmd := exec.CommandContext(t.Context(), os.Args[0], append(args,
		"--master="+kube.URL, "--cloud-url=http://127.0.0.1:1", "--cloud-token-file="+writeTemp(t, "token", "hush"),
		"--leader-elect=false", "--logging-format=json")...)
	cmd.Env = append(os.Environ(), "CCM_TEST_COMMAND=1")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-watched:
	case err := <-done:
		t.Fatalf("the CCM stopped: %v\n%s", err, out.String())
	}
	return out, func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("the CCM ended with the error %v", err)
		}
	}
}

// closesSilent sends three incomplete requests to the server at address, each on a new connection.
// It fails the test if the server does not close a connection within 20 seconds.
func closesSilent(t *testing.T, address string) {
	t.Helper()
	conf := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}} //nolint:gosec // a test
	for _, request := range []string{"", "GET /healthz HTTP/1.1\r\nX", "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"} {
		c, err := tls.Dial("tcp", address, conf)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, c)
		if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // io.Copy does not wrap
			t.Errorf("the server did not close the connection after %q", request)
		}
		_ = c.Close()
	}
}

// NewCommand does not change upstream's map of controllers, a global variable
// that other code in the process may use.
func TestUpstreamsControllersStay(t *testing.T) {
	before := slices.Sorted(maps.Keys(app.DefaultInitFuncConstructors))
	for range 2 {
		ccm.NewCommand(func(string) string { return "" }, io.Discard)
	}
	if d := cmp.Diff(before, slices.Sorted(maps.Keys(app.DefaultInitFuncConstructors))); d != "" {
		t.Error(d)
	}
}
