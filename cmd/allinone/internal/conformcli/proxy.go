package conformcli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/conform/httpdriver"
	"github.com/cloudsim-dev/allinone/conform/proxy"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// proxyGrace is the longest time that the function serve waits for running calls after its context
// has ended.
const proxyGrace = 2 * time.Second

func newProxyCommand(e cli.Env) *cobra.Command {
	var upstream, listen, control string
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Forward, count and record the calls of a CCM to its cloud, and inject faults",
		Long: `Forward the calls of a cloud controller manager (CCM) to the API of its cloud. The proxy
counts the calls, and records their paths, bodies and results. It records no header, and it
replaces secrets in paths and bodies by the word REDACTED.

In the CCM's configuration, set the URL of the cloud's API to the address of --listen. The
address of --control has the paths /fault, /calls and /recording of the HTTP driver
(conform/httpdriver/openapi.yaml). Give the URL of this address to 'allinone conform run
--proxy'. The checks then inject faults through the proxy.

Neither address uses TLS, so both should be on loopback. The proxy changes the Host header. An
API that checks a signature of this header, such as the API of AWS, refuses forwarded calls.`,
		Example: `  # Hetzner Cloud with injected errors
  allinone conform proxy --upstream https://api.hetzner.cloud/v1 &
  HCLOUD_ENDPOINT=http://127.0.0.1:8190 hcloud-cloud-controller-manager --kubeconfig ./kubeconfig &
  curl -X PUT http://127.0.0.1:8191/fault -d '{"kind":"throttle","count":3}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := proxy.New(upstream)
			if err != nil {
				return cloudsim.Misuse(fmt.Errorf("--upstream: %w", err))
			}
			api, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			controlled, err := net.Listen("tcp", control)
			if err != nil {
				return errors.Join(fmt.Errorf("--control: %w", err), api.Close())
			}
			fmt.Fprintf(e.Stdout, "API for the CCM: http://%s\ncontrol: http://%s\n", api.Addr(), controlled.Addr())
			g, ctx := errgroup.WithContext(cmd.Context())
			g.Go(func() error { return serve(ctx, api, p) })
			g.Go(func() error { return serve(ctx, controlled, httpdriver.FaultHandler(p)) })
			return g.Wait()
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&upstream, "upstream", "", "URL of the cloud's API")
	fl.StringVar(&listen, "listen", "127.0.0.1:8190", "address on which the proxy listens for the CCM's calls, HOST:PORT; port 0 chooses a free port")
	fl.StringVar(&control, "control", "127.0.0.1:8191", "address for faults, counted calls and the recording, HOST:PORT; port 0 chooses a free port")
	return cmd
}

// startProxy serves a recording proxy on a free port of loopback. The proxy forwards calls to the
// API at the URL upstream. The CCM gets the URL of the proxy in the environment variable envVar,
// which has the form CONFORM_API_URL=URL. The proxy serves until the caller calls stop. The end of
// ctx does not stop the proxy, because the cleanup after an interruption still needs the CCM and
// the proxy.
func startProxy(ctx context.Context, upstream string) (p *proxy.Proxy, envVar string, stop func(), err error) {
	if p, err = proxy.New(upstream); err != nil {
		return nil, "", nil, cloudsim.Misuse(fmt.Errorf("--upstream: %w", err))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", nil, err
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() { _ = serve(serving, ln, p) }) // if the proxy fails, the calls of the CCM fail, and the checks report this
	return p, "CONFORM_API_URL=http://" + ln.Addr().String(), func() { cancel(); ended.Wait() }, nil
}

func serve(ctx context.Context, ln net.Listener, h http.Handler) error {
	all := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run.Authenticated(r.Context()) // without this call, run.HTTP would limit the time of each request; the API checks the caller
		h.ServeHTTP(w, r)
	})
	srv := &http.Server{Handler: all, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	return run.HTTP(ctx, srv, ln, proxyGrace, run.Limits{})
}
