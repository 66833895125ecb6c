package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/cloudsim-dev/allinone/internal/run"
)

// shutdownGrace is the longest time that Serve waits for running requests after its ctx has ended.
// After this time, Serve closes the connections.
const shutdownGrace = 5 * time.Second

// ServeProfiles serves Go's profiles on ln until ctx ends. The paths of the profiles begin with
// /debug/pprof/. A profile contains data from the memory of the process. Therefore ln should be
// a Unix socket from run.Socket, which only its owner may use.
func ServeProfiles(ctx context.Context, ln net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return Serve(ctx, ln, mux, run.Limits{})
}

// Serve serves h on ln until ctx ends. Then it waits until the running requests have finished, but
// at most shutdownGrace.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, limits run.Limits) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // the end of ctx ends the watches
	}
	return run.HTTP(ctx, srv, ln, shutdownGrace, limits)
}
