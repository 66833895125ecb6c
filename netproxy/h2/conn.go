package h2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/netproxy/socket"
)

// Config is what both ends need. Every field must be set.
type Config struct {
	// Codec reads and writes messages. It may keep what it reads, and takes over
	// what it writes.
	Codec Codec
	// Pool has the buffers that connections read into.
	Pool mem.BufferPool
	// Window is how many bytes of a stream may wait to be taken, and MaxMessage
	// how many a message may have: one that is longer than half of the window is
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
	// maxFrame is the largest frame that is taken: a message of a tunnel is one.
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
	keptPieces  = 1 << 8
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

// pendingOf is where the framer writes.
type pendingOf struct{ *conn }

func (p pendingOf) Write(b []byte) (int, error) {
	p.pending = append(p.pending, b...)
	return len(b), nil
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

// kick has what is pending written, by somebody else: the caller does not wait.
func (c *conn) kick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flushing || len(c.pending) == 0 {
		return
	}
	c.flushing = true
	go c.flush() // ends with its write, which ends with the connection
}

// flush writes what is pending.
func (c *conn) flush() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	c.flushing = false
	c.mu.Unlock()
	c.gather()
	c.write()
}

// gather begins a write with what is pending, and tells how large a frame may
// be. The caller holds c.writing, and adds to c.out what else there is.
func (c *conn) gather() (largest int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.pending
	c.pending, c.spare, c.answers = c.spare[:0], first, 0
	c.out = c.out[:0]
	if len(first) > 0 {
		c.out = append(c.out, first)
	}
	return c.largest
}

// write writes c.out, with one system call if the connection can do that.
func (c *conn) write() {
	if len(c.out) > 0 {
		if err := socket.WriteBuffers(c.net, c.out); err != nil {
			c.fail(err)
		}
	}
	clear(c.out) // hold no buffer that is given back
	if cap(c.out) > keptPieces {
		c.out = nil
	}
	if cap(c.spare) > keptBuffer {
		c.spare = nil
	}
}

// inbound is what the reader knows. Nobody else uses it, but for left.
type inbound struct {
	head  [frameHead]byte
	have  int // bytes of head
	frame http2.FrameHeader
	rest  int          // bytes of the frame's payload that are to come
	s     *stream      // of a DATA frame; nil: nobody waits for it
	pad   int          // bytes at the end of a DATA frame that mean nothing; -1: not known yet
	block bytes.Buffer // of other frames, until they are whole
	left  int64        // bytes that the peer may send on all streams
	hello bool         // the peer's settings were read
}

// read reads until the connection ends.
func (c *conn) read() error {
	r := newReader(c.net, c.conf.Pool)
	defer r.close()
	for {
		p, err := r.read()
		if len(p) > 0 {
			c.heard.Store(true)
			if err := c.take(p, r.chunk); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// take reads frames from p, a part of k, wherever it begins and ends.
func (c *conn) take(p []byte, k *chunk) error {
	in := &c.in
	for len(p) > 0 {
		if in.have < frameHead {
			n := copy(in.head[in.have:], p)
			in.have += n
			p = p[n:]
			if in.have < frameHead {
				return nil
			}
			if err := c.begin(); err != nil {
				return err
			}
		} else {
			n := min(in.rest, len(p))
			if err := c.payload(p[:n], k); err != nil {
				return err
			}
			p = p[n:]
		}
		if in.rest == 0 {
			in.have = 0
			if err := c.whole(); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin looks at a frame's head.
func (c *conn) begin() error {
	in := &c.in
	h := &in.head
	in.rest = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	in.frame = http2.FrameHeader{
		Type: http2.FrameType(h[3]), Flags: http2.Flags(h[4]), Length: uint32(in.rest), //nolint:gosec // three bytes
		StreamID: (uint32(h[5])<<24 | uint32(h[6])<<16 | uint32(h[7])<<8 | uint32(h[8])) & (1<<31 - 1),
	}
	switch {
	case in.rest > maxFrame:
		return http2.ConnectionError(http2.ErrCodeFrameSize)
	case !in.hello && in.frame.Type != http2.FrameSettings:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case in.frame.Type == http2.FrameData && in.rest == 0 && in.frame.Flags.Has(http2.FlagDataPadded):
		return http2.ConnectionError(http2.ErrCodeFrameSize)
	case in.frame.Type != http2.FrameData && in.rest > maxHead:
		return http2.ConnectionError(http2.ErrCodeFrameSize)
	case in.frame.Type != http2.FrameData:
		if in.block.Len()+in.rest > 2*maxHead {
			return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
		}
		in.block.Write(h[:])
		return nil
	case in.block.Len() > 0: // a block of fields is not whole
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return c.beginData()
}

func (c *conn) beginData() error {
	in := &c.in
	in.s, in.pad = nil, 0
	if in.frame.Flags.Has(http2.FlagDataPadded) {
		in.pad = -1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if in.frame.StreamID == 0 || in.frame.StreamID > c.last {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if in.left -= int64(in.rest); in.left < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	if in.left < connWindow/2 {
		_ = c.framer.WriteWindowUpdate(0, uint32(connWindow-in.left)) //nolint:gosec // below 1<<31
		in.left = connWindow
		defer func() { go c.kick() }()
	}
	s := c.streams[in.frame.StreamID]
	if s == nil {
		return nil // we have ended it
	}
	if s.remote {
		c.reset(s, http2.ErrCodeStreamClosed)
		return nil
	}
	if s.left -= in.rest; s.left < 0 {
		c.reset(s, http2.ErrCodeFlowControl)
		return nil
	}
	in.s = s
	return nil
}

// payload takes a part of a frame's payload.
func (c *conn) payload(p []byte, k *chunk) error {
	in := &c.in
	in.rest -= len(p)
	if in.frame.Type != http2.FrameData {
		in.block.Write(p)
		return nil
	}
	if in.pad < 0 {
		in.pad, p = int(p[0]), p[1:]
		if in.pad > in.rest+len(p) {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
	}
	if over := in.pad - in.rest; over > 0 { // some of p is padding
		p = p[:len(p)-min(over, len(p))]
	}
	if in.s == nil || len(p) == 0 {
		return nil
	}
	if err := in.s.take(p, k); err != nil {
		c.reject(in.s, err)
		in.s = nil
	}
	return nil
}

// whole acts on a frame that was read.
func (c *conn) whole() error {
	in := &c.in
	if in.frame.Type == http2.FrameData {
		if padding := int(in.frame.Length); in.s != nil && in.frame.Flags.Has(http2.FlagDataPadded) {
			c.taken(in.s, min(padding, in.pad+1))
		}
		if in.s != nil && in.frame.Flags.Has(http2.FlagDataEndStream) {
			c.lastData(in.s)
		}
		in.s = nil
		return nil
	}
	if (in.frame.Type == http2.FrameHeaders || in.frame.Type == http2.FrameContinuation) && !in.frame.Flags.Has(http2.FlagHeadersEndHeaders) {
		return nil // more is to come
	}
	f, err := c.framer.ReadFrame()
	if in.block.Reset(); in.block.Cap() > small {
		in.block = bytes.Buffer{}
	}
	var bad http2.StreamError
	switch {
	case errors.As(err, &bad):
		return c.badFrame(bad)
	case err != nil:
		return err
	}
	if err := c.frame(f); err != nil {
		return err
	}
	return c.calm()
}

// lastData is the end of what the peer says, which at a client has a status
// behind it.
func (c *conn) lastData(s *stream) {
	switch {
	case s.client != nil:
		c.abort(s, http2.ErrCodeProtocol, status.Error(codes.Internal, "the call ended without a status"))
	case s.have > 0:
		c.remoteEnd(s, errCut)
	default:
		c.remoteEnd(s, io.EOF)
	}
}

var errCut = status.Error(codes.Internal, "the peer has ended in the middle of a message")

// reject ends a stream whose messages cannot be taken.
func (c *conn) reject(s *stream, err error) {
	if s.refuse == nil {
		c.abort(s, http2.ErrCodeCancel, err)
		return
	}
	s.refuse(err)
	c.kick()
}

// badFrame resets the stream of a frame that makes no sense.
func (c *conn) badFrame(bad http2.StreamError) error {
	t := c.in.frame.Type
	_, server := c.role.(*serving)
	c.mu.Lock()
	idle := bad.StreamID > c.last
	c.mu.Unlock()
	if idle && (!server || t != http2.FrameHeaders && t != http2.FrameContinuation) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return c.refuse(bad.StreamID, bad.Code)
}

// calm fails if the peer makes work and does not take what comes of it.
func (c *conn) calm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers > maxAnswers {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}

// frame acts on any frame but DATA.
func (c *conn) frame(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		c.in.hello = true
		return c.settings(f)
	case *http2.MetaHeadersFrame:
		if s := c.stream(f.StreamID); s != nil {
			return c.role.fields(s, f)
		}
		return c.role.opened(f)
	case *http2.WindowUpdateFrame:
		return c.grow(f)
	case *http2.RSTStreamFrame:
		if s := c.stream(f.StreamID); s != nil {
			c.forget(s)
			s.finish(statusOf(f.ErrCode).Err())
		}
	case *http2.PingFrame:
		if f.IsAck() {
			return nil
		}
		c.mu.Lock()
		_ = c.framer.WritePing(true, f.Data)
		c.answers += frameHead + len(f.Data)
		c.mu.Unlock()
		c.kick()
	case *http2.GoAwayFrame:
		if f.ErrCode != http2.ErrCodeNo {
			return fmt.Errorf("the peer hangs up: %v %q", f.ErrCode, f.DebugData())
		}
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil // priorities, and types that are not known
}

func (c *conn) stream(id uint32) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

func (c *conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		table := c.framer.ReadMetaHeaders
		table.SetAllowedMaxDynamicTableSize(c.conf.HeaderTable)
		table.SetMaxDynamicTableSize(c.conf.HeaderTable)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	initial := c.initial // the last of all counts: each would be work for every stream
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingInitialWindowSize:
			initial = int64(s.Val)
		case http2.SettingMaxFrameSize:
			c.largest = int(s.Val)
		case http2.SettingMaxConcurrentStreams:
			c.most = int(min(int64(s.Val), int64(c.conf.MaxStreams)))
		case http2.SettingHeaderTableSize:
			c.block.enc.SetMaxDynamicTableSizeLimit(min(s.Val, c.conf.HeaderTable))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, open := range c.streams {
		open.window += initial - c.initial
		ring(open.room)
	}
	c.initial = initial
	_ = c.framer.WriteSettingsAck()
	c.answers += frameHead
	defer func() { go c.kick() }()
	return nil
}

// grow takes a window that the peer gives.
func (c *conn) grow(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := int64(f.Increment)
	if f.StreamID == 0 {
		if c.window += by; c.window > connWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		if c.window-by < messageHead {
			for _, s := range c.streams {
				ring(s.room)
			}
		}
		return nil
	}
	s := c.streams[f.StreamID]
	if s == nil {
		if f.StreamID > c.last {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		return nil
	}
	if s.window += by; s.window > connWindow {
		c.reset(s, http2.ErrCodeFlowControl)
		return nil
	}
	ring(s.room)
	return nil
}

// taken gives back what was taken of a stream's messages, when it is worth a
// frame.
func (c *conn) taken(s *stream, n int) {
	c.mu.Lock()
	lent := min(n, s.lent)
	s.lent -= lent
	if s.taken += n - lent; s.remote || s.gone != nil || s.taken < c.conf.Window/4 {
		c.mu.Unlock()
		return
	}
	_ = c.framer.WriteWindowUpdate(s.id, uint32(s.taken)) //nolint:gosec // at most a window
	s.left += s.taken
	s.taken = 0
	c.mu.Unlock()
	c.kick()
}

// lend lets n bytes more of a stream in than its window, until they are taken.
func (c *conn) lend(s *stream, n int) {
	c.mu.Lock()
	_ = c.framer.WriteWindowUpdate(s.id, uint32(n)) //nolint:gosec // at most MaxMessage
	s.left += n
	s.lent += n
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

// reset is abort for who holds c.mu.
func (c *conn) reset(s *stream, code http2.ErrCode) { go c.abort(s, code, statusOf(code).Err()) }

// refuse resets a stream that may not be there.
func (c *conn) refuse(id uint32, code http2.ErrCode) error {
	if s := c.stream(id); s != nil {
		c.abort(s, code, statusOf(code).Err())
		return nil
	}
	c.mu.Lock()
	c.last = max(c.last, id)
	_ = c.framer.WriteRSTStream(id, code)
	c.answers += frameHead + 4
	c.mu.Unlock()
	c.kick()
	return c.calm()
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

func (c *conn) forget(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(s)
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
