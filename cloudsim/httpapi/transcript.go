package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const (
	// maxTranscript is the maximum number of bytes that the calls in a transcript's file can use.
	// The first call that does not fit ends the recording. Instead of this call, the last line of
	// the file records that the transcript is full.
	maxTranscript = 256 << 20
	// maxRecordedAnswer is the largest answer in bytes that a replay can compare. For a larger
	// answer the transcript contains only the status.
	maxRecordedAnswer = 8 << 20
)

// Transcript records calls. A nil Transcript records no calls.
type Transcript struct {
	log  *slog.Logger
	head cloudsim.TranscriptHead

	mu   sync.Mutex
	w    io.Writer
	left int // number of bytes that the transcript may still write; negative: the recording has ended
}

// NewTranscript begins a transcript and writes its head. It returns an error if it cannot write the
// head. The transcript calls w.Write once for each recorded API call. It records the calls in the
// order of their answers. For overlapping calls this order can differ from the order in which the
// cloud did the work.
func NewTranscript(log *slog.Logger, w io.Writer, head cloudsim.TranscriptHead) (*Transcript, error) {
	t := &Transcript{log: log, head: head, w: w, left: maxTranscript}
	raw, err := json.Marshal(head)
	if err == nil {
		_, err = w.Write(append(raw, '\n'))
	}
	return t, err
}

// add writes one call. If the write fails, the recording ends, but the cloud continues.
func (t *Transcript) add(c cloudsim.TranscriptCall) {
	raw, err := json.Marshal(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left < 0 {
		return
	}
	if t.left -= len(raw) + 1; t.left < 0 {
		raw, err = json.Marshal(cloudsim.TranscriptFull{Full: true})
		t.log.Warn("the transcript has its maximum size: later calls are not recorded", "bytes", maxTranscript)
	}
	if err == nil {
		_, err = t.w.Write(append(raw, '\n'))
	}
	if err != nil {
		t.left = -1
		t.log.Error("cannot write the transcript: later calls are not recorded", "error", err)
	}
}

// transcribe returns a handler that passes every request to the given handler, and records the
// calls of the API. It does not record watches, because a watch has no end.
func (t *Transcript) transcribe(handler http.Handler) http.Handler {
	if t == nil {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/") || isWatchPath(r.URL.Path) {
			handler.ServeHTTP(w, r)
			return
		}
		reqBody := &listener{ReadCloser: r.Body}
		r.Body = reqBody
		response := &recordedResponse{ResponseWriter: w}
		ended := false
		defer func() {
			if !ended {
				response.status = 0 // the answer is incomplete: the connection was dropped
			}
			t.add(t.callOf(r, reqBody, response))
		}()
		handler.ServeHTTP(response, r)
		ended = true
	})
}

func (t *Transcript) callOf(r *http.Request, reqBody *listener, response *recordedResponse) cloudsim.TranscriptCall {
	x := exchangeOf(r.Context())
	c := cloudsim.TranscriptCall{
		RequestID: x.requestID, Caller: x.caller, Token: x.token, Project: r.Header.Get("Cloud-Project"),
		IdempotencyKey: r.Header.Get("Idempotency-Key"), IfMatch: r.Header.Get("If-Match"), DialectCall: x.dialectCall,
		Method: r.Method, Path: r.URL.RequestURI(), Status: response.status,
	}
	clean, secret := cloudsim.Redact(reqBody.buf.Bytes())
	switch {
	case reqBody.over || len(clean) > maxBody:
		c.Withheld = "the body is too long"
	case secret:
		c.Withheld, c.Body = "the body contains a secret", clean
	case len(clean) == 0:
	case json.Valid(clean):
		c.Body = clean
	case isText(r.Header.Get("Content-Type")):
		c.Text = string(clean)
	default:
		c.Withheld = "the body is not text"
	}
	// For status 401, the transcript leaves out the answer. The answer depends on the caller's
	// token. A replay does not have this token, so it can get a different answer.
	if response.status != 0 && response.status != http.StatusUnauthorized && !response.over {
		c.Answer, c.Members = cloudsim.Digest(response.buf.Bytes(), t.head.Exact())
	}
	return c
}

func isText(contentType string) bool {
	return contentType == "" || strings.Contains(contentType, "json") || strings.HasPrefix(contentType, "text/")
}

// listener passes a request body to the server, and keeps a copy of the first bytes. The copy has
// at most maxBody+1 bytes. The server still receives the later bytes of a longer body.
type listener struct {
	io.ReadCloser
	buf  bytes.Buffer
	over bool // the body is longer than maxBody, or its rest is unknown
}

func (l *listener) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	limit := min(n, maxBody+1-l.buf.Len())
	l.over = l.over || limit < n
	l.buf.Write(b[:limit])
	if err != nil && !errors.Is(err, io.EOF) {
		l.over = true // the rest of the body is unknown
	}
	return n, err
}

type recordedResponse struct {
	http.ResponseWriter
	status int
	buf    bytes.Buffer
	over   bool
}

func (w *recordedResponse) WriteHeader(code int) {
	w.status = cmp.Or(w.status, code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *recordedResponse) Write(b []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	if w.over = w.over || w.buf.Len()+len(b) > maxRecordedAnswer; !w.over {
		w.buf.Write(b)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recordedResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }
