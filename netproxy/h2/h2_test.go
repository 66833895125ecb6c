package h2_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/netproxy/h2"
)

// raw is a codec whose messages are *[]byte.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	if string(data.Materialize()) == "unreadable" {
		return errors.New("it is unreadable")
	}
	*v.(*[]byte) = data.Materialize()
	return nil
}

const window = 256 << 10

func config() h2.Config {
	return h2.Config{Codec: raw{}, Pool: mem.DefaultBufferPool(), Window: window, MaxMessage: 4 << 20, MaxStreams: 1000, HeaderTable: 4 << 10, KeepaliveTime: time.Minute, KeepaliveTimeout: time.Minute}
}

// service has the methods of these tests.
func service(methods map[string]grpc.StreamHandler) *grpc.ServiceDesc {
	d := &grpc.ServiceDesc{ServiceName: "test", HandlerType: (*any)(nil)}
	for name, h := range methods {
		d.Streams = append(d.Streams, grpc.StreamDesc{StreamName: name, Handler: h, ServerStreams: true, ClientStreams: true})
	}
	return d
}

var desc = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// caller is either client.
type caller interface {
	NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error)
	Close() error
}

// pairs are every client with every server, gRPC's with gRPC's to know that the
// test is right.
func pairs(t *testing.T, methods map[string]grpc.StreamHandler, f func(t *testing.T, c caller)) {
	for _, server := range []string{"ours", "grpc"} {
		for _, client := range []string{"ours", "grpc"} {
			t.Run(client+"-to-"+server, func(t *testing.T) {
				addr := serveOurs
				if server == "grpc" {
					addr = serveGRPC
				}
				dial := dialOurs
				if client == "grpc" {
					dial = dialGRPC
				}
				f(t, dial(t, addr(t, methods)))
			})
		}
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func serveGRPC(t *testing.T, methods map[string]grpc.StreamHandler) string {
	ln := listen(t)
	s := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.WaitForHandlers(true))
	s.RegisterService(service(methods), nil)
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(s.Stop)
	return ln.Addr().String()
}

func serveOurs(t *testing.T, methods map[string]grpc.StreamHandler) string {
	return serveOursAt(t, listen(t), methods)
}

func serveOursAt(t *testing.T, ln net.Listener, methods map[string]grpc.StreamHandler) string {
	t.Cleanup(func() { ln.Close() })
	t.Cleanup(ours(ln, methods).Stop)
	return ln.Addr().String()
}

// ours is a server that takes connections until ln is closed.
func ours(ln net.Listener, methods map[string]grpc.StreamHandler) *h2.Server {
	s := h2.NewServer(config())
	s.RegisterService(service(methods), nil)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _ = s.Serve(c, nil) }()
		}
	}()
	return s
}

func dialGRPC(t *testing.T, addr string) caller {
	c, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func dialOurs(t *testing.T, addr string) caller {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := h2.NewClient(nc, config(), "test", "test")
	t.Cleanup(func() { c.Close() })
	return c
}

func echo(_ any, s grpc.ServerStream) error {
	for {
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := s.SendMsg(&m); err != nil {
			return err
		}
	}
}

func open(t *testing.T, c caller, method string, md ...string) grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), md...), 30*time.Second)
	t.Cleanup(cancel)
	s, err := c.NewStream(ctx, desc, "/test/"+method)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMessages(t *testing.T) {
	pairs(t, map[string]grpc.StreamHandler{"Echo": echo}, func(t *testing.T, c caller) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				s := open(t, c, "Echo")
				// From nothing to more than a frame, and in all more than a window.
				for j, size := range []int{0, 1, 5, 1 << 10, 16<<10 - 5, 16 << 10, 16<<10 + 1, 64 << 10, 100_000, 100_001, 127 << 10, 3, 127 << 10, 0, 700_000, 7, 3 << 20} {
					want := bytes.Repeat([]byte{byte(i + j)}, size)
					if err := s.SendMsg(&want); err != nil {
						t.Error(err)
						return
					}
					var got []byte
					if err := s.RecvMsg(&got); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d bytes came back as %d: %v", size, len(got), err)
						return
					}
				}
				if err := s.CloseSend(); err != nil {
					t.Error(err)
				}
				var m []byte
				if err := s.RecvMsg(&m); !errors.Is(err, io.EOF) {
					t.Errorf("at the end: %v", err)
				}
			})
		}
		all.Wait()
	})
}

func TestMetadataAndStatus(t *testing.T) {
	methods := map[string]grpc.StreamHandler{"Who": func(_ any, s grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		if err := s.SendHeader(metadata.Pairs("said", md.Get("name")[0], "raw-bin", "\x00\xff")); err != nil {
			return err
		}
		s.SetTrailer(metadata.Pairs("last", "word"))
		return status.Error(codes.Aborted, "100 % \"über\"\n")
	}}
	pairs(t, methods, func(t *testing.T, c caller) {
		s := open(t, c, "Who", "name", "anna")
		h, err := s.Header()
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(h.Get("said"), h.Get("raw-bin")) != "[anna] [\x00\xff]" {
			t.Errorf("header: %v", h)
		}
		var m []byte
		err = s.RecvMsg(&m)
		if st := status.Convert(err); st.Code() != codes.Aborted || st.Message() != "100 % \"über\"\n" {
			t.Errorf("status: %v", err)
		}
		if fmt.Sprint(s.Trailer().Get("last")) != "[word]" {
			t.Errorf("trailer: %v", s.Trailer())
		}
	})
}

func TestUnknownMethod(t *testing.T) {
	pairs(t, nil, func(t *testing.T, c caller) {
		var m []byte
		if err := open(t, c, "None").RecvMsg(&m); status.Code(err) != codes.Unimplemented {
			t.Errorf("%v", err)
		}
	})
}

// A stream whose reader stands still holds up itself, and not more than a
// window of it.
func TestStalledReader(t *testing.T) {
	release := make(chan struct{})
	methods := map[string]grpc.StreamHandler{"Echo": echo, "Stall": func(_ any, s grpc.ServerStream) error {
		select {
		case <-release:
		case <-s.Context().Done():
		}
		var n int
		for {
			var m []byte
			if err := s.RecvMsg(&m); err != nil {
				last := []byte(fmt.Sprint(n))
				return s.SendMsg(&last)
			}
			n += len(m)
		}
	}}
	addr := serveOurs(t, methods)
	c := dialOurs(t, addr)
	stalled := open(t, c, "Stall")
	sent := make(chan int, 100)
	var sending sync.WaitGroup
	sending.Go(func() {
		for range 32 {
			m := make([]byte, 32<<10)
			if stalled.SendMsg(&m) != nil {
				break
			}
			sent <- len(m)
		}
		_ = stalled.CloseSend()
	})
	for range window/(32<<10) - 1 {
		<-sent
	}
	s := open(t, c, "Echo")
	for range 100 {
		m := make([]byte, 64<<10)
		if err := s.SendMsg(&m); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&m); err != nil {
			t.Fatal(err)
		}
	}
	if len(sent) > 1 {
		t.Errorf("%d messages more than a window left", len(sent))
	}
	close(release)
	sending.Wait()
	var m []byte
	if err := stalled.RecvMsg(&m); err != nil || string(m) != fmt.Sprint(32*32<<10) {
		t.Errorf("after the stall %q, %v", m, err)
	}
}

func TestCancel(t *testing.T) {
	ended := make(chan error, 4)
	methods := map[string]grpc.StreamHandler{"Wait": func(_ any, s grpc.ServerStream) error {
		var m []byte
		err := s.RecvMsg(&m)
		<-s.Context().Done()
		ended <- err
		return err
	}}
	pairs(t, methods, func(t *testing.T, c caller) {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := c.NewStream(ctx, desc, "/test/Wait")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		var m []byte
		if err := s.RecvMsg(&m); status.Code(err) != codes.Canceled {
			t.Errorf("client: %v", err)
		}
		select {
		case err := <-ended:
			if status.Code(err) != codes.Canceled {
				t.Errorf("server: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the server does not hear of it")
		}
	})
}

// A connection that breaks ends what is on it, at both ends.
func TestBrokenConnection(t *testing.T) {
	ended := make(chan error, 1)
	addr := serveOurs(t, map[string]grpc.StreamHandler{"Wait": func(_ any, s grpc.ServerStream) error {
		if err := s.SendHeader(nil); err != nil { // the client was faster than what tells that it is sent
			ended <- err
			return err
		}
		<-s.Context().Done()
		var m []byte
		ended <- s.RecvMsg(&m)
		return nil
	}})
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := h2.NewClient(nc, config(), "test", "test")
	defer c.Close()
	s := open(t, c, "Wait")
	if _, err := s.Header(); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	var m []byte
	if err := s.RecvMsg(&m); status.Code(err) != codes.Unavailable {
		t.Errorf("client: %v", err)
	}
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("server: %v", err)
	}
	if _, err := c.NewStream(t.Context(), desc, "/test/Wait"); status.Code(err) != codes.Unavailable {
		t.Errorf("a stream after it: %v", err)
	}
}

// A peer that says nothing any more is given up.
func TestKeepalive(t *testing.T) {
	ln := listen(t)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, c)
	}()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conf := config()
	conf.KeepaliveTime, conf.KeepaliveTimeout = 20*time.Millisecond, 20*time.Millisecond
	c := h2.NewClient(nc, conf, "test", "test")
	defer c.Close()
	var m []byte
	if err := open(t, c, "Wait").RecvMsg(&m); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
}
