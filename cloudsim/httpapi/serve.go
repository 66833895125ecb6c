package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/cloudsim-dev/allinone/internal/run"
)

// shutdownGrace is how long running requests may take after ctx ended.
const shutdownGrace = 5 * time.Second

// ServeProfiles serves Go's profiles below /debug/pprof/ on ln until ctx ends. A profile
// shows the contents of memory, so ln should be a Unix socket of run.Socket.
func ServeProfiles(ctx context.Context, ln net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return Serve(ctx, ln, mux, run.Limits{})
}

// Serve serves h on ln until ctx ends. Then it lets running requests finish.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, limits run.Limits) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends watches
	}
	return run.HTTP(ctx, srv, ln, shutdownGrace, limits)
}
