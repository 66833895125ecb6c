package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/informer"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

const (
	mergeFor   = 100 * time.Millisecond
	heartbeat  = 2 * time.Second
	ringSize   = 100 // number of messages (frames) that a slow viewer can miss before it gets a snapshot
	keptEvents = 300
	retryMost  = 2 * time.Second
	linger     = 30 * time.Second // time without viewers after which the hub stops its watches
)

// key identifies an object of the cloud or of the cluster.
type key struct{ kind, id string }

// entry is an object of the cloud or of the cluster. It contains the JSON text of the object. If
// findDifferences uses the object, the entry also contains the object as a Go value.
type entry struct {
	project cloudsim.ProjectID
	raw     json.RawMessage
	value   any
}

// hub keeps one copy of the cloud and of the cluster for all viewers.
type hub struct {
	log   *slog.Logger
	cfg   Config
	kick  chan struct{} // signals that a change waits for the next frame
	moved chan struct{} // signals that a viewer has connected or disconnected
	boot  string
	cloud *client.Client

	mu sync.Mutex
	scene
	viewers int
	frames  []*frame // newest last; at most ringSize
	whole   *frame   // snapshot for viewers that connect before the next frame; nil: not yet made
	seq     uint64   // sequence number of the newest frame
	changed chan struct{}
}

// scene is the hub's copy of the cloud and of the cluster.
type scene struct {
	objects     map[key]entry
	dirty       map[key]cloudsim.ProjectID // changed objects, with their project
	events      []Event                    // newest last
	fresh       []Event                    // events that no frame contains yet
	rev         uint64
	cloudState  Connection
	cluster     *Connection // nil: no cluster
	clock       *Clock
	differences []Difference
	since       map[string]time.Time // first time of each difference, by rule, kind and id
	synced      bool                 // the scene contains the lists of the cloud
	reset       bool                 // the next frame is a snapshot for all viewers
	notice      string               // text for users in the next snapshot
}

// Event is an event of the cloud's journal, without the object.
type Event struct {
	Rev       uint64                `json:"rev"`
	Time      time.Time             `json:"time"`    // on the cloud's clock
	Machine   time.Time             `json:"machine"` // on the machine's clock
	Kind      cloudsim.ResourceKind `json:"kind"`
	ID        string                `json:"id"`
	Name      string                `json:"name,omitempty"`
	State     string                `json:"state,omitempty"`
	Deleted   bool                  `json:"deleted,omitempty"`
	Caller    string                `json:"caller,omitempty"`
	Cause     string                `json:"cause,omitempty"`
	RequestID string                `json:"requestId,omitempty"`
	project   cloudsim.ProjectID
}

// Connection is the state of one of the hub's watches: the watch of the cloud or the watch of the
// cluster.
type Connection struct {
	Live    bool      `json:"live"`
	Since   time.Time `json:"since"` // on the machine's clock
	Problem string    `json:"problem,omitempty"`
}

// Clock is the time of the cloud's clock, and the real time at which the hub read the cloud's
// clock.
type Clock struct {
	cloudsim.Clock
	ReadAt time.Time `json:"readAt"`
}

func newHub(log *slog.Logger, cfg Config) *hub {
	raw := make([]byte, 8)
	_, _ = rand.Read(raw) // crypto/rand.Read never fails
	h := &hub{
		log: log, cfg: cfg, kick: make(chan struct{}, 1), moved: make(chan struct{}, 1), boot: hex.EncodeToString(raw), cloud: cfg.Cloud,
		seq: 1, changed: make(chan struct{}),
	}
	h.scene = h.emptyScene()
	return h
}

func (h *hub) emptyScene() scene {
	s := scene{
		objects: map[key]entry{}, dirty: map[key]cloudsim.ProjectID{}, since: map[string]time.Time{},
		cloudState: Connection{Since: time.Now(), Problem: "the console has not yet read the cloud"},
	}
	if h.cfg.Cluster != nil {
		s.cluster = &Connection{Since: time.Now(), Problem: "the console has not yet read the cluster"}
	}
	return s
}

func (h *hub) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if h.hasViewers() {
			h.watchObjects(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case <-h.moved:
		}
	}
	return nil
}

func (h *hub) hasViewers() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.viewers > 0
}

// watchObjects watches the cloud and the cluster. When no viewer has been connected for
// the duration linger, it ends the watches and discards the copies of the objects.
func (h *hub) watchObjects(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		informer.Run(ctx, h.cloud.Watch, (*cloudHandler)(h), backoff.Backoff{First: 100 * time.Millisecond, Most: retryMost})
	})
	all.Go(func() { h.pollClock(ctx) })
	all.Go(func() { h.pollTraffic(ctx) })
	all.Go(func() { h.publishFrames(ctx) })
	if h.cfg.Cluster != nil {
		all.Go(func() {
			h.cfg.Cluster(ctx, Sink{
				Put:    func(kind, id string, object any) { h.put(key{kind, id}, "", object) },
				Delete: func(kind, id string) { h.remove(key{kind, id}) },
				State:  h.setCluster,
			})
		})
	}
	h.awaitIdle(ctx)
	cancel()
	all.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.scene, h.frames, h.whole = h.emptyScene(), nil, nil
}

// awaitIdle returns when no viewer has been connected for the duration linger, or when ctx ends.
func (h *hub) awaitIdle(ctx context.Context) {
	for {
		var idle <-chan time.Time
		if !h.hasViewers() {
			idle = time.After(linger)
		}
		select {
		case <-ctx.Done():
			return
		case <-idle:
			return
		case <-h.moved:
		}
	}
}

// requestFrame requests a new frame from publishFrames. The caller may hold mu.
func (h *hub) requestFrame() { signal(h.kick) }

// signal sends to a channel of capacity one. If the channel is full, signal does nothing.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put adds or replaces an object for which the cloud's journal has no events: an object of the
// cluster, or a Traffic object.
func (h *hub) put(k key, project cloudsim.ProjectID, object any) {
	raw, err := json.Marshal(object)
	if err != nil {
		h.log.Error("object of the console not encoded", "kind", k.kind, "id", k.id, "err", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if old, ok := h.objects[k]; ok && string(old.raw) == string(raw) {
		return
	}
	h.objects[k] = entry{project: project, raw: raw, value: object}
	h.dirty[k] = project
	h.requestFrame()
}

func (h *hub) remove(k key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, ok := h.objects[k]
	if !ok {
		return
	}
	delete(h.objects, k)
	h.dirty[k] = old.project
	h.requestFrame()
}

func (h *hub) setCluster(problem string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if live := problem == ""; live != h.cluster.Live || problem != h.cluster.Problem {
		h.cluster = &Connection{Live: live, Since: time.Now(), Problem: problem}
		h.requestFrame()
	}
}

// pollClock reads the cloud's clock every second. It must poll, because a change of the clock
// causes no event.
func (h *hub) pollClock(ctx context.Context) {
	for ; ctx.Err() == nil; backoff.Sleep(ctx, time.Second) {
		c, err := h.cloud.GetClock(ctx)
		if err != nil {
			continue // the informer reports the problem
		}
		h.mu.Lock()
		h.clock = &Clock{c, time.Now()}
		h.requestFrame()
		h.mu.Unlock()
	}
}

// publishFrames builds a frame of all new changes. After the first change it waits for the duration
// mergeFor, so that the frame also contains the following changes. It also builds a frame every
// 2 s (the constant heartbeat), even if nothing has changed.
func (h *hub) publishFrames(ctx context.Context) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		case <-h.kick:
			backoff.Sleep(ctx, mergeFor)
		}
		h.mu.Lock()
		h.appendFrame()
		h.mu.Unlock()
	}
}

// appendFrame appends a frame to h.frames and wakes all viewers. The caller must hold mu.
func (h *hub) appendFrame() {
	select {
	case <-h.kick: // the signal is not needed any more: this frame contains all changes
	default:
	}
	h.findDifferences(time.Now())
	fresh := h.fresh
	h.events = append(h.events, fresh...)
	if n := len(h.events) - keptEvents; n > 0 {
		h.events = slices.Clone(h.events[n:])
	}
	f := h.newFrame("delta", fresh)
	if h.reset {
		f = h.fullFrame()
		f.head.Notice = h.notice
	} else {
		for _, k := range sortedKeys(h.dirty) {
			e, ok := h.objects[k]
			if !ok {
				e.project = h.dirty[k]
			}
			f.changes = append(f.changes, change{k, e, !ok})
		}
	}
	clear(h.dirty)
	h.fresh, h.reset, h.notice = nil, false, ""
	h.frames = append(h.frames, f)
	if n := len(h.frames) - ringSize; n > 0 {
		h.frames = slices.Clone(h.frames[n:])
	}
	h.whole = nil
	h.seq++
	close(h.changed)
	h.changed = make(chan struct{})
}

// newFrame returns a new frame (a message to the viewers) with the given events, but without
// objects. The argument kind is snapshot or delta. The caller must hold mu.
func (h *hub) newFrame(kind string, events []Event) *frame {
	return &frame{events: events, differences: h.differences, encoded: map[encoding][]byte{}, head: head{
		Type: kind, Boot: h.boot, Rev: h.rev, Now: time.Now(), Name: h.cfg.Name, Cloud: h.cloudState, Cluster: h.cluster, Clock: h.clock,
		Viewers: h.viewers, Logs: h.cfg.Logs != nil,
	}}
}

// fullFrame returns a frame with all objects. The caller must hold mu.
func (h *hub) fullFrame() *frame {
	f := h.newFrame("snapshot", slices.Clone(h.events))
	for _, k := range sortedKeys(h.objects) {
		f.changes = append(f.changes, change{key: k, entry: h.objects[k]})
	}
	return f
}

func sortedKeys[T any](m map[key]T) []key {
	return slices.SortedFunc(maps.Keys(m), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.id, b.id))
	})
}

// findDifferences compares the cloud with the cluster. While one of the watches does not work, it
// keeps the earlier differences. The caller must hold mu.
func (h *hub) findDifferences(now time.Time) {
	if h.cluster == nil || !h.cluster.Live || !h.cloudState.Live {
		return // a comparison with an old copy would be wrong
	}
	found := compare(h.objects)
	since := map[string]time.Time{}
	for i, d := range found {
		k := d.Rule + " " + d.Kind + " " + d.ID
		at, ok := h.since[k]
		if !ok {
			at = now
		}
		since[k] = at
		found[i].Since = at
	}
	h.since, h.differences = since, found
}

// framesAfter returns the frames that a viewer needs, and the number of the newest frame. The
// argument seen is the number of the newest frame that the viewer already has. A new viewer, or a
// viewer that has missed too many frames, gets a snapshot. If the hub has not read the cloud yet,
// the viewer gets a delta without objects instead of a snapshot. When the hub appends the next
// frame, it closes the returned channel.
func (h *hub) framesAfter(seen uint64) (frames []*frame, newest uint64, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	missing := h.seq - seen
	switch {
	case missing <= uint64(len(h.frames)):
		frames = slices.Clone(h.frames[uint64(len(h.frames))-missing:])
	case h.synced:
		if h.whole == nil {
			h.whole = h.fullFrame()
		}
		frames = []*frame{h.whole}
	default:
		frames = []*frame{h.newFrame("delta", nil)}
	}
	return frames, h.seq, h.changed
}
