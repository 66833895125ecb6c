package h2_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/netproxy/h2"
)

// peer is a client that says what it likes.
type peer struct {
	testing.TB
	net.Conn
	*http2.Framer
}

// newPeer is one whose greeting is over.
func newPeer(t testing.TB, addr string) *peer {
	t.Helper()
	p := newMutePeer(t, addr)
	if _, err := io.WriteString(p, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	p.must(p.WriteSettings())
	return p
}

func newMutePeer(t testing.TB, addr string) *peer {
	t.Helper()
	network := "tcp"
	if filepath.IsAbs(addr) {
		network = "unix"
	}
	nc, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	p := &peer{t, nc, http2.NewFramer(nc, nc)}
	p.AllowIllegalWrites = true
	return p
}

func (p *peer) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// block is a call's header.
func block(fields ...string) []byte {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return b.Bytes()
}

func call(method string) []byte {
	return block(":method", "POST", ":scheme", "http", ":path", "/test/"+method, ":authority", "x", "content-type", "application/grpc", "te", "trailers")
}

func (p *peer) open(id uint32, method string) {
	p.Helper()
	p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: call(method), EndHeaders: true}))
}

// await is the next frame that is one of those looked for.
func (p *peer) await(what string, one func(http2.Frame) bool) http2.Frame {
	p.Helper()
	for {
		f, err := p.ReadFrame()
		if err != nil {
			p.Fatalf("no %s before %v", what, err)
		}
		if one(f) {
			return f
		}
	}
}

// ends is how the server ends the connection.
func (p *peer) ends() http2.ErrCode {
	p.Helper()
	return p.await("GOAWAY", of(http2.FrameGoAway, 0)).(*http2.GoAwayFrame).ErrCode
}

// of are the frames of a type and a stream.
func of(t http2.FrameType, id uint32) func(http2.Frame) bool {
	return func(f http2.Frame) bool { return f.Header().Type == t && f.Header().StreamID == id }
}

// resets is how the server ends a stream.
func (p *peer) resets(id uint32) http2.ErrCode {
	p.Helper()
	return p.await("RST_STREAM", of(http2.FrameRSTStream, id)).(*http2.RSTStreamFrame).ErrCode
}

// hears is the next data of a stream.
func (p *peer) hears(id uint32) []byte {
	p.Helper()
	return bytes.Clone(p.await("DATA", of(http2.FrameData, id)).(*http2.DataFrame).Data())
}

// notHeard is how a peer that reads nothing is let go.
const notHeard = http2.ErrCode(1 << 31)

// What breaks the rules ends the connection, with the rule's code.
func TestBrokenRules(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(p *peer)
		want http2.ErrCode
	}{
		"a stream of an even number":          {func(p *peer) { p.open(2, "Echo") }, http2.ErrCodeProtocol},
		"data of no stream":                   {func(p *peer) { p.must(p.WriteData(0, false, []byte("x"))) }, http2.ErrCodeProtocol},
		"data before its stream":              {func(p *peer) { p.must(p.WriteData(7, false, []byte("x"))) }, http2.ErrCodeProtocol},
		"a window of a stream that never was": {func(p *peer) { p.must(p.WriteWindowUpdate(7, 1)) }, http2.ErrCodeProtocol},
		"a window too large":                  {func(p *peer) { p.must(p.WriteWindowUpdate(0, 1<<31-1)) }, http2.ErrCodeFlowControl},
		"a frame too large": {func(p *peer) {
			_ = p.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 256<<10+1)) // of which the server reads the head
		}, http2.ErrCodeFrameSize},
		"a push": {func(p *peer) {
			p.must(p.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: call("Echo"), EndHeaders: true}))
		}, http2.ErrCodeProtocol},
		"a block that another frame cuts": {func(p *peer) {
			p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: call("Echo")[:4]}))
			p.must(p.WriteData(1, false, nil))
		}, http2.ErrCodeProtocol},
		"a block without an end": {func(p *peer) {
			p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: call("Echo")[:4]}))
			for range 100 {
				if p.WriteContinuation(1, false, make([]byte, 16<<10)) != nil {
					return // it has had enough
				}
			}
		}, http2.ErrCodeEnhanceYourCalm},
		"a block that is none": {func(p *peer) {
			p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true}))
		}, http2.ErrCodeCompression},
		"settings that are none": {func(p *peer) {
			p.must(p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}))
		}, http2.ErrCodeProtocol},
		"padding longer than its frame": {func(p *peer) {
			p.open(1, "Echo")
			p.must(p.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{9, 0, 0}))
		}, http2.ErrCodeProtocol},
		"pings whose answers nobody reads": {func(p *peer) {
			for range 1_000_000 {
				if p.WritePing(false, [8]byte{}) != nil {
					return
				}
			}
			p.Error("it was not let go")
		}, notHeard},
		"calls whose refusals nobody reads": {func(p *peer) {
			for id := uint32(1); id < 2_000_000; id += 2 {
				if p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: call("None"), EndHeaders: true}) != nil {
					return
				}
			}
			p.Error("it was not let go")
		}, notHeard},
		"windows that are none": {func(p *peer) {
			for id := uint32(1); id < 2_000_000; id += 2 {
				if p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: call("Echo"), EndHeaders: true}) != nil || p.WriteWindowUpdate(id, 0) != nil {
					return
				}
			}
			p.Error("it was not let go")
		}, notHeard},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s")) // over TCP a peer that does not read is slow to send, too
			if err != nil {
				t.Fatal(err)
			}
			p := newPeer(t, serveOursAt(t, ln, map[string]grpc.StreamHandler{"Echo": echo}))
			tc.do(p)
			if tc.want == notHeard {
				return // that it was let go is the proof
			}
			if got := p.ends(); got != tc.want {
				t.Errorf("ended with %v, want %v", got, tc.want)
			}
		})
	}
}

// What breaks the rules of a stream ends that, and no other.
func TestBrokenStream(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(p *peer)
		want http2.ErrCode
	}{
		"more than its window": {func(p *peer) {
			for range window/(16<<10) + 1 {
				p.must(p.WriteData(1, false, make([]byte, 16<<10)))
			}
		}, http2.ErrCodeFlowControl},
		"a message too long": {func(p *peer) { p.must(p.WriteData(1, false, []byte{0, 0xff, 0, 0, 0})) }, http2.ErrCodeNo},
		"compressed":         {func(p *peer) { p.must(p.WriteData(1, false, []byte{1, 0, 0, 0, 0})) }, http2.ErrCodeNo},
		"data after the end": {func(p *peer) {
			p.must(p.WriteData(1, true, nil))
			p.must(p.WriteData(1, false, []byte("x")))
		}, http2.ErrCodeStreamClosed},
		"a header in the middle": {func(p *peer) { p.open(1, "Echo") }, http2.ErrCodeProtocol},
		"a window too large":     {func(p *peer) { p.must(p.WriteWindowUpdate(1, 1<<31-1)) }, http2.ErrCodeFlowControl},
	} {
		t.Run(name, func(t *testing.T) {
			hold := make(chan struct{})
			defer close(hold)
			p := newPeer(t, serveOurs(t, map[string]grpc.StreamHandler{"Echo": echo, "Hold": func(_ any, s grpc.ServerStream) error {
				select {
				case <-hold:
				case <-s.Context().Done():
				}
				return nil
			}}))
			p.open(1, "Hold")
			tc.do(p)
			if got := p.resets(1); got != tc.want {
				t.Errorf("reset with %v, want %v", got, tc.want)
			}
			p.open(3, "Echo")
			want := []byte("\x00\x00\x00\x00\x02hi")
			p.must(p.WriteDataPadded(3, false, want, make([]byte, 20)))
			if got := p.hears(3); !bytes.Equal(got, want) {
				t.Errorf("the other stream says %q", got)
			}
		})
	}
}

// What ends a call by itself says why, as gRPC does.
func TestRefusedMessage(t *testing.T) {
	methods := map[string]grpc.StreamHandler{"Echo": echo}
	for _, addr := range []string{serveOurs(t, methods), serveGRPC(t, methods)} {
		for _, dial := range []func(*testing.T, string) caller{dialOurs, dialGRPC} {
			s := open(t, dial(t, addr), "Echo")
			m := make([]byte, 4<<20+1)
			_ = s.SendMsg(&m) // it may be refused before its end
			if err := s.RecvMsg(&m); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%v", err)
			}
		}
	}
}

// However long its messages are, a stream whose reader stands still holds a
// window and one message.
func TestStalledLongMessages(t *testing.T) {
	for name, dial := range map[string]func(*testing.T, string) caller{"ours": dialOurs, "grpc": dialGRPC} {
		t.Run(name, func(t *testing.T) {
			hold := make(chan struct{})
			s := open(t, dial(t, serveOurs(t, map[string]grpc.StreamHandler{"Hold": func(_ any, s grpc.ServerStream) error {
				<-hold
				return echo(nil, s)
			}})), "Hold")
			var sent atomic.Int64
			var sending sync.WaitGroup
			const all = 64
			sending.Go(func() {
				for range all {
					m := make([]byte, window-1000)
					if err := s.SendMsg(&m); err != nil {
						t.Error(err)
						return
					}
					sent.Add(1)
				}
			})
			time.Sleep(200 * time.Millisecond) // time to do wrong
			if n := sent.Load(); n > 4 {       // gRPC's client holds one more
				t.Errorf("%d messages of a window each were sent to who takes none", n)
			}
			close(hold)
			for range all {
				var m []byte
				if err := s.RecvMsg(&m); err != nil || len(m) != window-1000 {
					t.Fatalf("%d bytes, %v", len(m), err)
				}
			}
			sending.Wait()
		})
	}
}

// A stream that has said all goes on to hear, and can be cancelled.
func TestAfterCloseSend(t *testing.T) {
	ended := make(chan struct{}, 4)
	methods := map[string]grpc.StreamHandler{
		"Flood": func(_ any, s grpc.ServerStream) error {
			m := make([]byte, 32<<10)
			for range 64 {
				if err := s.SendMsg(&m); err != nil {
					return err
				}
			}
			return nil
		},
		"Wait": func(_ any, s grpc.ServerStream) error {
			<-s.Context().Done()
			ended <- struct{}{}
			return nil
		},
	}
	pairs(t, methods, func(t *testing.T, c caller) {
		s := open(t, c, "Flood")
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for range 64 {
			var m []byte
			if err := s.RecvMsg(&m); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s, err := c.NewStream(ctx, desc, "/test/Wait")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		cancel()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("the server does not hear of it")
		}
	})
}

// Streams that are reset as soon as they are opened run no more handlers than
// are allowed.
func TestRapidReset(t *testing.T) {
	var running, most atomic.Int64
	hold := make(chan struct{})
	p := newPeer(t, serveOurs(t, map[string]grpc.StreamHandler{"Slow": func(any, grpc.ServerStream) error {
		most.Store(max(most.Load(), running.Add(1)))
		<-hold
		running.Add(-1)
		return nil
	}}))
	defer close(hold)
	go func() { _, _ = io.Copy(io.Discard, p) }()
	for id := uint32(1); id < 2*3000; id += 2 {
		p.open(id, "Slow")
		p.must(p.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	p.must(p.WritePing(false, [8]byte{}))
	time.Sleep(100 * time.Millisecond) // time to do wrong
	if n := most.Load(); n > 1000 || n < 500 {
		t.Errorf("%d handlers ran at once, of 1000 that may", n)
	}
}

// The windows of a connection and a stream may grow in any order, by any step.
func TestSmallWindows(t *testing.T) {
	p := newMutePeer(t, serveOurs(t, map[string]grpc.StreamHandler{"Echo": echo}))
	if _, err := io.WriteString(p, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	p.must(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	p.open(1, "Echo")
	say := func(n int) { // a message, and its head
		p.must(p.WriteData(1, false, append([]byte{0, 0, 0, byte(n >> 8), byte(n)}, make([]byte, n)...)))
	}
	hear := func(n int) {
		for n > 0 {
			n -= len(p.hears(1))
		}
	}
	for range 4 {
		say(16000)
		hear(16005)
	}
	say(1508) // 2 bytes are left of 65,535 then, less than the head of a message
	hear(1513)
	say(100)
	time.Sleep(50 * time.Millisecond) // with less the answer may not wait yet, and the test sees nothing
	p.must(p.WriteWindowUpdate(0, 1<<20))
	hear(105)
}

// A message that the codec cannot read ends the call at both ends.
func TestUnreadable(t *testing.T) {
	ended := make(chan struct{}, 1)
	addr := serveOurs(t, map[string]grpc.StreamHandler{"Say": func(_ any, s grpc.ServerStream) error {
		m := []byte("unreadable")
		if err := s.SendMsg(&m); err != nil {
			return err
		}
		<-s.Context().Done()
		ended <- struct{}{}
		return nil
	}})
	s := open(t, dialOurs(t, addr), "Say")
	var m []byte
	if err := s.RecvMsg(&m); status.Code(err) != codes.Internal {
		t.Errorf("%v", err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the server does not hear of it")
	}
}

// Who does not speak HTTP/2 is let go.
func TestNoHTTP2(t *testing.T) {
	addr := serveOurs(t, nil)
	for _, said := range []string{"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n", http2.ClientPreface + "\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping"} {
		p := newMutePeer(t, addr)
		if _, err := io.WriteString(p, said); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, p); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("after %.10q: %v", said, err)
		}
	}
}

// Drain lets streams end, and takes no more.
func TestDrain(t *testing.T) {
	ln := listen(t)
	s := ours(ln, map[string]grpc.StreamHandler{"Echo": echo})
	for _, dial := range []func(*testing.T, string) caller{dialOurs, dialGRPC} {
		open := open(t, dial(t, ln.Addr().String()), "Echo")
		say := func(text string) {
			m := []byte(text)
			if err := open.SendMsg(&m); err != nil {
				t.Fatal(err)
			}
			if err := open.RecvMsg(&m); err != nil || string(m) != text {
				t.Fatalf("%q: %v", m, err)
			}
		}
		say("before")
		defer func() {
			say("meanwhile")
			if err := open.CloseSend(); err != nil {
				t.Error(err)
			}
			var m []byte
			if err := open.RecvMsg(&m); !errors.Is(err, io.EOF) {
				t.Errorf("at the end: %v", err)
			}
		}()
	}
	late := newPeer(t, ln.Addr().String())
	late.open(1, "Echo")
	late.must(late.WriteData(1, false, []byte("\x00\x00\x00\x00\x02hi")))
	late.hears(1) // so the server has it
	drained := make(chan struct{})
	t.Cleanup(func() {
		select {
		case <-drained:
		case <-time.After(30 * time.Second):
			t.Error("not drained when all streams have ended")
		}
	})
	go func() { s.Drain(); close(drained) }()
	if got := late.ends(); got != http2.ErrCodeNo {
		t.Errorf("GOAWAY %v", got)
	}
	late.open(3, "Echo")
	if got := late.resets(3); got != http2.ErrCodeRefusedStream {
		t.Errorf("a stream after GOAWAY: %v", got)
	}
	late.must(late.WriteRSTStream(1, http2.ErrCodeCancel))
}

// Whatever a peer says, the server ends, and without a panic.
func FuzzServer(f *testing.F) {
	frames := func(do func(*http2.Framer)) []byte {
		var b bytes.Buffer
		fr := http2.NewFramer(&b, nil)
		fr.AllowIllegalWrites = true
		_ = fr.WriteSettings()
		do(fr)
		return b.Bytes()
	}
	f.Add(frames(func(fr *http2.Framer) {
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: call("Echo"), EndHeaders: true})
		_ = fr.WriteDataPadded(1, false, []byte("\x00\x00\x00\x00\x02hi"), make([]byte, 3))
		_ = fr.WriteWindowUpdate(1, 100)
		_ = fr.WriteData(1, true, []byte("\x00\x00\x00\x00\x00"))
		_ = fr.WriteRSTStream(1, http2.ErrCodeCancel)
	}))
	f.Add(frames(func(fr *http2.Framer) {
		_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}, http2.Setting{ID: http2.SettingHeaderTableSize})
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: call("Echo")[:9]})
		_ = fr.WriteContinuation(1, true, call("Echo")[9:])
		_ = fr.WritePing(false, [8]byte{})
		_ = fr.WriteGoAway(0, http2.ErrCodeNo, nil)
	}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := h2.NewServer(config())
		s.RegisterService(service(map[string]grpc.StreamHandler{"Echo": echo}), nil)
		ours, theirs := net.Pipe()
		ended := make(chan struct{})
		go func() { _ = s.Serve(ours, nil); close(ended) }()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		_, _ = io.WriteString(theirs, http2.ClientPreface)
		_, _ = theirs.Write(raw)
		theirs.Close()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatal("it does not end")
		}
		s.Stop()
	})
}
