package servecli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// serveDialects opens the listeners of the dialects, which are the APIs of other clouds. For each
// dialect, it returns one function that serves this dialect. A dialect calls the API in this
// process, without a network. If the cloud uses TLS, the dialects use the certificate of the cloud.
func (f *cloudsimFlags) serveDialects(log *slog.Logger, api http.Handler, metrics prometheus.Registerer) (parts []func(context.Context) error, err error) {
	all, err := cli.ParseDialects("dialect", f.dialects)
	if err != nil {
		return nil, err
	}
	var open []net.Listener
	for _, d := range all {
		ln, err := f.openListener(log, "--dialect "+d.Name, d.Address)
		if err != nil {
			for _, ln := range open {
				err = errors.Join(err, ln.Close())
			}
			return nil, err
		}
		open = append(open, ln)
		h := dialect.New(log.With("component", "dialect"), d.Dialect, dialect.Config{URL: "http://cloud", Transport: inProcess{api}, Metrics: metrics}) //nolint:contextcheck // each request has its own context
		log.Info("dialect is up", "dialect", d.Name, "url", f.url(ln))
		parts = append(parts, func(ctx context.Context) error { return dialect.Serve(ctx, ln, h) })
	}
	return parts, nil
}
