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

// probeWithin is the time limit for a health check. It is longer than othersWithin, the limit for
// the checks in Probe. So Probe answers in time even if the cloud is slow. Only a hung driver
// exceeds probeWithin.
const probeWithin = 5 * time.Second

// health serves health checks over HTTP, like the livenessprobe sidecar. It
// calls the driver through the driver's own socket. /healthz reports whether
// the driver answers. /healthz does not call the cloud, because the kubelet
// restarts a driver that fails this check. A failed cloud must not cause
// restarts on all nodes. /readyz reports whether the driver can work, and also
// checks the cloud.
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
		http.Error(w, "not ready: the cloud or the folder of the disks does not answer", http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "ok")
	}
}

// serveHealth serves health checks on ln until ctx ends.
func serveHealth(ctx context.Context, ln net.Listener, endpoint string, limits run.Limits) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the HTTP server has stopped, so no calls are running
	h := health{csi.NewIdentityClient(conn)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.alive)
	mux.HandleFunc("GET /readyz", h.ready)
	return run.HTTP(ctx, &http.Server{Handler: mux, ReadHeaderTimeout: probeWithin}, ln, 0, limits) // callers repeat a probe, so no grace period is needed
}
