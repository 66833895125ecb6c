package main

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // metrics of calls to the API server
	_ "k8s.io/component-base/metrics/prometheus/workqueue"  // metrics of the controllers' queues
	"k8s.io/klog/v2"
)

// status serves the liveness and readiness of the process and the metrics of
// its controllers over HTTP.
type status struct {
	controllers atomic.Int64

	mu       sync.Mutex
	registry []metrics.KubeRegistry
}

func (s *status) gather(r metrics.KubeRegistry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registry = append(s.registry, r)
}

// setReady records that n controllers run with complete caches.
func (s *status) setReady(n int) {
	s.controllers.Store(int64(n))
	klog.InfoS("Ready", "controllers", n)
}

// serve starts the HTTP server, and returns a function that closes the server.
// If the address is empty, serve starts no server.
func (s *status) serve(address string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if n := s.controllers.Load(); n > 0 {
			fmt.Fprintf(w, "%d controllers\n", n)
			return
		}
		http.Error(w, "waiting for the drivers, the API server or the lease", http.StatusServiceUnavailable)
	})
	mux.HandleFunc("GET /metrics", s.metrics)
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: 25 * time.Second, MaxHeaderBytes: 8 << 10}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(ln) // returns when the server is closed
	}()
	return func() {
		_ = srv.Close()
		<-served
	}, nil
}

func (s *status) metrics(w http.ResponseWriter, r *http.Request) {
	all := prometheus.Gatherers{legacyregistry.DefaultGatherer}
	s.mu.Lock()
	for _, g := range s.registry {
		all = append(all, g)
	}
	s.mu.Unlock()
	promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}
