package h2

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// Config is what both ends need. Every field must be set.
type Config struct {
	// Codec reads and writes messages. It may keep what it reads, and takes over
	// what it writes.
	Codec Codec
	// Pool has the buffers that connections read into.
	Pool mem.BufferPool
	// Window is how many bytes of a stream may wait to be taken, and MaxMessage
	// how many a message may have: one that is longer than a quarter of the window is
	// let in beside it.
	Window     int
	MaxMessage int
	// MaxStreams is how many streams may be open at once, and at a server how many
	// handlers may run: a stream that its client has reset still has one.
	MaxStreams int
	// HeaderTable is how many bytes of header fields each end remembers so that
	// they need not be sent again: 0 where a connection has one stream.
	HeaderTable uint32
	// KeepaliveTime is the silence after which the peer is asked for a sign of
	// life, KeepaliveTimeout how long it may take to give one.
	KeepaliveTime    time.Duration
	KeepaliveTimeout time.Duration
}

// Codec is the part of encoding.CodecV2 that is called.
type Codec interface {
	Marshal(v any) (mem.BufferSlice, error)
	Unmarshal(data mem.BufferSlice, v any) error
}

const (
	// maxFrame is the largest frame of data that is taken: most messages of a
	// tunnel are one.
	maxFrame = 256 << 10
	// connWindow is given back when half of it is used.
	connWindow = 1<<31 - 1
	// maxHead bounds a block of header fields.
	maxHead = 64 << 10
	// maxAnswers bounds what the peer makes us answer and does not read.
	maxAnswers = 1 << 16
	// firstWindow is every window's before settings are known (RFC 9113, 6.9.2).
	firstWindow = 1<<16 - 1
	// keptBuffer is what a connection keeps for frames that wait.
	keptBuffer  = 1 << 10
	frameHead   = 9 // bytes (RFC 9113, 4.1)
	messageHead = 5 // bytes before each message of gRPC: compressed or not, and its length
)

// conn is a connection, of either end.
type conn struct {
	conf Config
	net  net.Conn
	role role

	// writing is held while frames are written, and taken before mu. Who holds
	// it writes what is pending first.
	writing sync.Mutex
	out     net.Buffers
	spare   []byte // the buffer of what was pending before
	heads   []byte // of the frames that are written

	heard atomic.Bool // something was read since watch looked

	mu       sync.Mutex
	err      error         // why it has ended
	pending  []byte        // frames that wait to be written
	flushing bool          // a goroutine is about to write them
	answers  int           // of them, what the peer made us say
	running  int           // handlers
	framer   *http2.Framer // writes to pending
	block    headerBlock   // what is written goes to pending before mu is given up
	timer    *time.Timer   // runs watch
	asked    bool          // the peer was asked for a sign of life
	leaving  bool          // no more streams are wanted
	streams  map[uint32]*stream
	last     uint32 // the highest id so far
	window   int64  // that we may send
	initial  int64  // window of a new stream
	largest  int    // frame that the peer takes
	most     int    // streams that the peer takes

	in inbound
}

// role is what the two ends do differently. The reader calls it.
type role interface {
	// opened is a block of fields for a stream that is not open.
	opened(f *http2.MetaHeadersFrame) error
	// fields is one for a stream that is.
	fields(s *stream, f *http2.MetaHeadersFrame) error
}

func newConn(nc net.Conn, conf Config) *conn {
	c := &conn{
		conf: conf, net: nc, streams: map[uint32]*stream{},
		window: firstWindow, initial: firstWindow, largest: 1 << 14, most: conf.MaxStreams,
	}
	c.block.enc = hpack.NewEncoder(&c.block.buf)
	c.framer = http2.NewFramer(pendingOf{c}, &c.in.block)
	c.framer.SetMaxReadFrameSize(maxFrame)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil) // until the peer knows better (RFC 9113, 6.5.2)
	c.block.enc.SetMaxDynamicTableSizeLimit(conf.HeaderTable)
	c.framer.MaxHeaderListSize = maxHead
	c.in.left = connWindow
	return c
}

// greet makes what each end says first.
func (c *conn) greet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	// To write to pending does not fail.
	_ = c.framer.WriteSettings(
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(c.conf.Window)}, //nolint:gosec // some MiB
		http2.Setting{ID: http2.SettingMaxFrameSize, Val: maxFrame},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHead},
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.conf.MaxStreams)}, //nolint:gosec // not so many
		http2.Setting{ID: http2.SettingHeaderTableSize, Val: c.conf.HeaderTable},
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
	)
	_ = c.framer.WriteWindowUpdate(0, connWindow-firstWindow)
}

// serve reads until the connection ends, and returns why.
func (c *conn) serve() error {
	c.mu.Lock()
	c.timer = time.AfterFunc(c.conf.KeepaliveTime, c.watch)
	c.mu.Unlock()
	err := c.read()
	var broken http2.ConnectionError
	if errors.As(err, &broken) {
		c.goAway(http2.ErrCode(broken), err)
	}
	c.fail(err)
	c.timer.Stop() // if it had failed before
	return err
}

// goAway tells the peer what it did wrong, if it still listens.
func (c *conn) goAway(code http2.ErrCode, err error) {
	c.mu.Lock()
	_ = c.framer.WriteGoAway(c.last, code, []byte(err.Error()))
	c.mu.Unlock()
	if c.net.SetWriteDeadline(time.Now().Add(time.Second)) == nil {
		c.flush()
	}
}

// fail ends the connection and all its streams, once.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	left := c.streams
	c.streams = nil
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	for _, s := range left {
		s.finish(status.Errorf(codes.Unavailable, "the connection ended: %v", err))
	}
	_ = c.net.Close() // what was to be said was said
}

var errDrained = errors.New("nothing is left on the connection, and no more is wanted")

// hangUp ends a connection when what it has to say is said.
func (c *conn) hangUp() {
	c.flush()
	c.fail(errDrained)
}

// leave takes no more streams, and hangs up after the last.
func (c *conn) leave() {
	c.mu.Lock()
	c.leaving = true
	_ = c.framer.WriteGoAway(c.last, http2.ErrCodeNo, nil)
	none := len(c.streams) == 0
	c.mu.Unlock()
	if none {
		c.hangUp()
		return
	}
	c.kick()
}

// watch asks a silent peer for a sign of life, and gives it up if none comes. It
// is a timer's function: a goroutine would be the dearest part of a connection
// that is idle.
func (c *conn) watch() {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	wait := c.conf.KeepaliveTime
	switch {
	case c.heard.Swap(false):
		c.asked = false
	case c.asked:
		c.mu.Unlock()
		c.fail(fmt.Errorf("no sign of life for %s", c.conf.KeepaliveTime+c.conf.KeepaliveTimeout))
		return
	default:
		c.asked, wait = true, c.conf.KeepaliveTimeout
		_ = c.framer.WritePing(false, [8]byte{})
	}
	c.timer.Reset(wait)
	c.mu.Unlock()
	c.kick()
}

// abort ends a stream that cannot go on, and tells the peer.
func (c *conn) abort(s *stream, code http2.ErrCode, err error) {
	c.mu.Lock()
	if s.gone == nil {
		_ = c.framer.WriteRSTStream(s.id, code)
	}
	c.drop(s)
	c.mu.Unlock()
	s.finish(err)
	c.kick()
}

// resetSize is the length of an RST_STREAM frame.
const resetSize = frameHead + 4

// punish is abort for what the peer has done, and counts.
func (c *conn) punish(s *stream, code http2.ErrCode, err error) {
	c.mu.Lock()
	c.answers += resetSize
	c.mu.Unlock()
	c.abort(s, code, err)
}

// reset is punish for who holds c.mu.
func (c *conn) reset(s *stream, code http2.ErrCode) {
	c.answers += resetSize
	go c.abort(s, code, statusOf(code).Err())
}

// remoteEnd notes that the peer has said all, which why tells when the
// messages before it were taken.
func (c *conn) remoteEnd(s *stream, why error) {
	c.mu.Lock()
	s.remote = true
	if s.local {
		c.drop(s)
	}
	c.mu.Unlock()
	s.say(why)
}

// over ends a stream that the peer has ended in both directions.
func (c *conn) over(s *stream, why error) {
	c.mu.Lock()
	c.drop(s)
	c.mu.Unlock()
	s.finish(why)
}

// drop takes a stream off the connection. The caller holds c.mu.
func (c *conn) drop(s *stream) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	if c.leaving && len(c.streams) == 0 {
		go c.hangUp()
	}
}
