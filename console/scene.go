package console

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/internal/run"
)

const (
	recheck     = 5 * time.Second  // interval between two checks of a viewer's token
	lineTimeout = 10 * time.Second // time within which a viewer must read a line
	maxViewers  = 1000
)

// head contains the fields that every message to the viewers has. The type line embeds head, and
// adds the changes of objects.
type head struct {
	Type        string       `json:"type"` // snapshot or delta
	Boot        string       `json:"boot"` // changes when the console restarts
	Rev         uint64       `json:"rev"`  // revision of the cloud's journal
	Now         time.Time    `json:"now"`  // the machine's time
	Name        string       `json:"name"`
	Cloud       Connection   `json:"cloud"`
	Cluster     *Connection  `json:"cluster,omitempty"` // absent if there is no cluster
	Clock       *Clock       `json:"clock,omitempty"`
	Viewers     int          `json:"viewers"`
	Logs        bool         `json:"logs,omitempty"` // the console has logs that the viewer may read
	Notice      string       `json:"notice,omitempty"`
	Differences []Difference `json:"differences"`
}

// A line is the JSON text of one message to a viewer. A message is a snapshot or a delta. In a
// snapshot, Put contains all objects. In a delta, Put contains only the changed objects.
type line struct {
	head
	Put    map[string][]json.RawMessage `json:"put,omitempty"` // by kind
	Delete map[string][]string          `json:"delete,omitempty"`
	Events []Event                      `json:"events,omitempty"`
}

type change struct {
	key     key
	entry   entry
	deleted bool
}

// A frame is one message to all viewers: a snapshot, or the changes that the hub collected for
// about 100 ms. Viewers with the same access get the same encoded message.
type frame struct {
	head        head
	differences []Difference // of all projects
	changes     []change
	events      []Event

	mu      sync.Mutex
	encoded map[encoding][]byte
}

// encoding is a key of the map frame.encoded. Viewers with different rights get different
// lines. Each line can be compressed or plain.
type encoding struct {
	access access
	zip    bool
}

// gzipHeader is the header of a gzip stream (RFC 1952 section 2.3). The console sends this header,
// and then any number of results of the function deflate. It never ends the stream.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

// deflate compresses a text. The result is independent of earlier data of a stream and ends at a
// byte boundary. So the console can send the same result in every stream, and compresses a line
// only once for all viewers with the same access.
func deflate(text []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	err = w.Flush()
	return out.Bytes(), err
}

func (f *frame) encodeFor(e encoding) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if line, ok := f.encoded[e]; ok {
		return line, nil
	}
	line, err := f.marshalFor(e.access)
	if err == nil && e.zip {
		line, err = deflate(line)
	}
	if err != nil {
		return nil, err
	}
	f.encoded[e] = line
	return line, nil
}

func (f *frame) marshalFor(a access) ([]byte, error) {
	l := line{head: f.head, Put: map[string][]json.RawMessage{}, Delete: map[string][]string{}}
	l.Logs = l.Logs && a.logs
	l.Differences = []Difference{}
	for _, d := range f.differences {
		if a.project == "" || d.project == "" || d.project == a.project {
			l.Differences = append(l.Differences, d)
		}
	}
	for _, c := range f.changes {
		switch {
		case !a.canSee(c.key.kind, c.entry.project):
		case c.deleted:
			l.Delete[c.key.kind] = append(l.Delete[c.key.kind], c.key.id)
		default:
			l.Put[c.key.kind] = append(l.Put[c.key.kind], c.entry.raw)
		}
	}
	for _, e := range f.events {
		if a.canSee(string(e.Kind), e.project) {
			l.Events = append(l.Events, e)
		}
	}
	raw, err := json.Marshal(l)
	return append(raw, '\n'), err
}

// viewer returns a client with the token of a request, and the rights of the token. If the token
// has no permission to use the console, the method refuses the request and returns false.
func (c *Console) viewer(w http.ResponseWriter, r *http.Request) (*client.Client, access, bool) {
	as := c.clientFor(r)
	if as == nil {
		writeRefusal(w, cloudsim.Unauthenticated, "the request has no bearer token: run 'allinone console open'")
		return nil, access{}, false
	}
	me, err := as.WhoAmI(r.Context())
	if err != nil {
		refuseError(w, err)
		return nil, access{}, false
	}
	a := accessOf(me)
	if !a.read {
		writeRefusal(w, cloudsim.Denied, "the token has no permission to read all resources of a project: use a token with the role reader")
		return nil, access{}, false
	}
	return as, a, true
}

// serveScene streams the hub's copy of the cloud and of the cluster to a viewer: a snapshot, and
// then changes. The stream ends when the viewer's token becomes invalid, or when the rights of the
// token change.
func (c *Console) serveScene(w http.ResponseWriter, r *http.Request) {
	as, a, ok := c.viewer(w, r)
	if !ok {
		return
	}
	run.Authenticated(r.Context())
	if !c.hub.addViewer() {
		writeRefusal(w, cloudsim.Exhausted, "the console has too many viewers: try again later")
		return
	}
	defer c.hub.removeViewer()
	h := w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	out := stream{rc: http.NewResponseController(w), w: w, zip: acceptsGzip(r)}
	if out.zip {
		h.Set("Content-Encoding", "gzip")
	}
	w.WriteHeader(http.StatusOK)
	if out.zip {
		if _, err := w.Write(gzipHeader); err != nil {
			return // the viewer has disconnected
		}
	}
	check := time.NewTicker(recheck)
	defer check.Stop()
	for seen := uint64(0); ; {
		frames, last, changed := c.hub.framesAfter(seen)
		if err := out.send(frames, a); err != nil {
			return // the viewer has disconnected, or is too slow
		}
		seen = last
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		case <-check.C:
			me, err := as.WhoAmI(r.Context())
			if k := cloudsim.KindOf(err); err != nil && (k == cloudsim.Unauthenticated || k == cloudsim.Denied) {
				_ = out.signedOut() // the stream ends in any case
				return
			}
			if err == nil && accessOf(me) != a {
				return // the browser reconnects with its new access
			}
		}
	}
}

// A stream writes messages to a viewer, each as one line.
type stream struct {
	rc  *http.ResponseController
	w   io.Writer
	zip bool // the viewer accepts gzip
}

func (s stream) send(frames []*frame, a access) error {
	for _, f := range frames {
		line, err := f.encodeFor(encoding{a, s.zip})
		if err != nil {
			return err
		}
		if err := s.write(line); err != nil {
			return err
		}
	}
	return nil
}

// signedOut tells the browser that its token is no longer valid.
func (s stream) signedOut() error {
	line := []byte(`{"type":"signedOut"}` + "\n")
	if s.zip {
		var err error
		if line, err = deflate(line); err != nil {
			return err
		}
	}
	return s.write(line)
}

func (s stream) write(line []byte) error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(lineTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write(line); err != nil {
		return err
	}
	return s.rc.Flush()
}

// addViewer counts a viewer. It returns false if there are too many viewers.
func (h *hub) addViewer() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.viewers >= maxViewers {
		return false
	}
	h.viewers++
	signal(h.moved)
	h.requestFrame()
	return true
}

func (h *hub) removeViewer() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.viewers--
	signal(h.moved)
	h.requestFrame()
}
