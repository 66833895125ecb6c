package servecli

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/console"
)

// consoleTimeout is the time limit for each call of the API by the console. It does not apply to
// the console's watch.
const consoleTimeout = 30 * time.Second

// withConsole returns a handler that serves the API and the console. The console calls the API in
// this process with the admin token, because the console watches the resources of all projects.
func (f *cloudsimFlags) withConsole(log *slog.Logger, api http.Handler, secret string, hosts []string) (http.Handler, *console.Console) {
	c := console.New(log, console.Config{
		Cloud: &client.Client{
			URL: "http://cloud", HTTP: &http.Client{Transport: streamTransport{api}, Timeout: consoleTimeout}, Token: client.StaticToken(secret),
			Project: engine.AllProjects, UserAgent: "console/" + cli.Version(),
		},
	})
	pages := httpapi.CheckHost(c, hosts...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // not a ServeMux, which would redirect paths of the API
		if r.URL.Path == "/console" || strings.HasPrefix(r.URL.Path, "/console/") {
			pages.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	}), c
}

// streamTransport is an HTTP transport that calls a handler in this process, without a network. It
// returns the response as soon as the handler begins to write, so a client can watch through this
// transport. In contrast, the transport inProcess returns the response only after the handler has
// ended.
type streamTransport struct{ http.Handler }

func (s streamTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody // like an HTTP server, which never passes a nil body
	}
	body, out := io.Pipe()
	w := &pipeWriter{header: http.Header{}, out: out, begun: make(chan struct{})}
	go func() {
		dropped := inProcess(s).callHandler(w, r)
		w.WriteHeader(http.StatusOK)
		if dropped {
			_ = out.CloseWithError(io.ErrUnexpectedEOF) // never fails
		} else {
			_ = out.Close() // never fails
		}
	}()
	select {
	case <-r.Context().Done():
		_ = body.Close() // never fails; after this call, each write of the handler fails
		return nil, r.Context().Err()
	case <-w.begun:
	}
	return &http.Response{
		StatusCode: w.status, Header: w.sent, Body: body, Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
	}, nil
}

// pipeWriter is an http.ResponseWriter that writes the body to a pipe.
type pipeWriter struct {
	header, sent http.Header
	status       int
	out          *io.PipeWriter
	once         sync.Once
	begun        chan struct{}
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(code int) {
	w.once.Do(func() {
		w.status, w.sent = code, w.header.Clone()
		close(w.begun)
	})
}

func (w *pipeWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(b)
}

// Flush implements http.Flusher. It only sends the status and the header, because the pipe does not
// buffer the body.
func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }
