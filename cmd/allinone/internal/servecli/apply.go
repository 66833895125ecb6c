package servecli

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim/apply"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// applyAtStart applies a file with resources through the API, before the API has a listener. So
// the first caller already finds all resources of the file.
func applyAtStart(ctx context.Context, log *slog.Logger, api http.Handler, file, secret string) error {
	wanted, err := apply.Read(file, strings.NewReader(""))
	if err != nil {
		return err
	}
	cl := &client.Client{
		URL: "http://cloud", HTTP: &http.Client{Transport: inProcess{api}}, Token: client.StaticToken(secret),
		Project: engine.DefaultProject, UserAgent: "allinone/" + cli.Version(),
	}
	done, err := apply.All(ctx, cl, wanted, false)
	for _, a := range done {
		log.Info("applied", "list", a.List, "name", a.Name, "result", a.Result, "fields", a.Fields)
	}
	return err
}

// inProcess is an HTTP transport that calls a handler in this process, without a network.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody // like an HTTP server, which never passes a nil body
	}
	w := answered{header: http.Header{}}
	p.ServeHTTP(&w, r)
	return &http.Response{
		StatusCode: cmp.Or(w.status, http.StatusOK), Header: w.header, Body: io.NopCloser(&w.body), Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(w.body.Len()),
	}, nil
}

// answered is an http.ResponseWriter that stores the answer of a handler.
type answered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *answered) Header() http.Header         { return w.header }
func (w *answered) WriteHeader(code int)        { w.status = cmp.Or(w.status, code) }
func (w *answered) Write(b []byte) (int, error) { return w.body.Write(b) }
