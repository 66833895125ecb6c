package csidriver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cloudsim-dev/allinone/internal/run"
)

// probeWithin is how long an answer to who asks for health may take. What Probe
// asks for has less, see othersWithin: it must not be taken for the driver.
const probeWithin = 5 * time.Second

// health answers over HTTP what livenessprobe would: it calls the driver through
// its own socket. /healthz is whether it answers at all, which a restart can
// mend, and asks nobody else; /readyz is whether it can work, which also asks the
// cloud. A cloud that is down, or hangs, must not restart the drivers of every
// node.
type health struct{ driver csi.IdentityClient }

func (h health) alive(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeWithin)
	defer cancel()
	if _, err := h.driver.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (h health) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeWithin)
	defer cancel()
	resp, err := h.driver.Probe(ctx, &csi.ProbeRequest{})
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case !resp.GetReady().GetValue():
		http.Error(w, "the cloud, or the folder of the disks, does not answer: the driver waits for it", http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "ok")
	}
}

// serveHealth serves until ctx ends.
func serveHealth(ctx context.Context, ln net.Listener, endpoint string, limits run.Limits) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // its calls are over
	h := health{csi.NewIdentityClient(conn)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.alive)
	mux.HandleFunc("GET /readyz", h.ready)
	return run.HTTP(ctx, &http.Server{Handler: mux, ReadHeaderTimeout: probeWithin}, ln, 0, limits) // a probe is repeated
}
