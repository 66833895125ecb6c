package servecli

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
)

// inProcess is an HTTP transport that calls a handler in this process, without a network.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody // an HTTP server never calls a handler with a nil body
	}
	w := storedAnswer{header: http.Header{}}
	if dropped := p.callHandler(&w, r); dropped {
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{
		StatusCode: cmp.Or(w.status, http.StatusOK), Header: w.header, Body: io.NopCloser(&w.body), Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(w.body.Len()),
	}, nil
}

// callHandler calls the handler. It returns true if the handler aborts the request with
// http.ErrAbortHandler. An HTTP server would then close the connection, and its client would get an
// error. RoundTrip must therefore return an error.
func (p inProcess) callHandler(w http.ResponseWriter, r *http.Request) (dropped bool) {
	defer func() {
		v := recover()
		if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			dropped = true
		} else if v != nil {
			panic(v) //nolint:forbidigo // the handler's own panic
		}
	}()
	p.ServeHTTP(w, r)
	return false
}

// storedAnswer is an http.ResponseWriter that stores the answer of a handler.
type storedAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *storedAnswer) Header() http.Header         { return w.header }
func (w *storedAnswer) WriteHeader(code int)        { w.status = cmp.Or(w.status, code) }
func (w *storedAnswer) Write(b []byte) (int, error) { return w.body.Write(b) }
