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
	// maxTranscript bounds the file of a transcript. What comes later is not
	// recorded, and its last line says so.
	maxTranscript = 256 << 20
	// maxRecordedAnswer bounds an answer that is compared; a larger one counts
	// by its status alone.
	maxRecordedAnswer = 8 << 20
)

// Transcript records calls. A nil one records nothing.
type Transcript struct {
	log  *slog.Logger
	head cloudsim.TranscriptHead

	mu   sync.Mutex
	w    io.Writer
	left int // bytes that may be written yet; negative when it is over
}

// NewTranscript begins a transcript: it writes the head. Each call is one
// Write, in the order in which they are answered: calls that overlap may be
// told in another order than the cloud did them.
func NewTranscript(log *slog.Logger, w io.Writer, head cloudsim.TranscriptHead) (*Transcript, error) {
	t := &Transcript{log: log, head: head, w: w, left: maxTranscript}
	raw, err := json.Marshal(head)
	if err == nil {
		_, err = w.Write(append(raw, '\n'))
	}
	return t, err
}

// add writes one call. The cloud goes on when it cannot.
func (t *Transcript) add(c cloudsim.TranscriptCall) {
	raw, err := json.Marshal(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left < 0 {
		return
	}
	if t.left -= len(raw) + 1; t.left < 0 {
		raw, err = json.Marshal(cloudsim.TranscriptFull{Full: true})
		t.log.Warn("the transcript is full: calls from now on are not in it", "bytes", maxTranscript)
	}
	if err == nil {
		_, err = t.w.Write(append(raw, '\n'))
	}
	if err != nil {
		t.left = -1
		t.log.Error("the transcript ends here: it cannot be written", "error", err)
	}
}

// transcribe is next with every call of the API recorded, but watches: they
// have no end.
func (t *Transcript) transcribe(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/") || r.URL.Path == "/v1/watch" {
			next.ServeHTTP(w, r)
			return
		}
		asked := &listener{ReadCloser: r.Body}
		r.Body = asked
		said := &taped{ResponseWriter: w}
		ended := false
		defer func() {
			if !ended {
				said.status = 0 // no whole answer: the connection is dropped
			}
			t.add(t.callOf(r, asked, said))
		}()
		next.ServeHTTP(said, r)
		ended = true
	})
}

func (t *Transcript) callOf(r *http.Request, asked *listener, said *taped) cloudsim.TranscriptCall {
	x := exchangeOf(r.Context())
	c := cloudsim.TranscriptCall{
		RequestID: x.requestID, Caller: x.caller, Token: x.token, Project: r.Header.Get("Cloud-Project"),
		IdempotencyKey: r.Header.Get("Idempotency-Key"), IfMatch: r.Header.Get("If-Match"),
		Method: r.Method, Path: r.URL.RequestURI(), Status: said.status,
	}
	clean, secret := cloudsim.Redact(asked.heard.Bytes())
	switch {
	case asked.over || len(clean) > maxBody:
		c.Withheld = "it is too long"
	case secret:
		c.Withheld, c.Body = "it holds a secret", clean
	case len(clean) == 0:
	case json.Valid(clean):
		c.Body = clean
	case isText(r.Header.Get("Content-Type")):
		c.Text = string(clean)
	default:
		c.Withheld = "it is no text"
	}
	// Who is not known is told why, in words that name a token that only the
	// caller had.
	if said.status != 0 && said.status != http.StatusUnauthorized && !said.over {
		c.Answer, c.Members = cloudsim.Digest(said.heard.Bytes(), t.head.Exact())
	}
	return c
}

func isText(contentType string) bool {
	return contentType == "" || strings.Contains(contentType, "json") || strings.HasPrefix(contentType, "text/")
}

// listener keeps the beginning of a body that is read. The server ends it, as
// it would without.
type listener struct {
	io.ReadCloser
	heard bytes.Buffer
	over  bool // there was more
}

func (l *listener) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	room := min(n, maxBody+1-l.heard.Len())
	l.over = l.over || room < n
	l.heard.Write(b[:room])
	if err != nil && !errors.Is(err, io.EOF) {
		l.over = true // what was to come is not known
	}
	return n, err
}

// taped keeps an answer.
type taped struct {
	http.ResponseWriter
	status int
	heard  bytes.Buffer
	over   bool
}

func (w *taped) WriteHeader(code int) {
	w.status = cmp.Or(w.status, code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *taped) Write(b []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	if w.over = w.over || w.heard.Len()+len(b) > maxRecordedAnswer; !w.over {
		w.heard.Write(b)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *taped) Unwrap() http.ResponseWriter { return w.ResponseWriter }
