package h2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// inbound is what the reader knows. Nobody else uses it.
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
			if p = fill(in.head[:], &in.have, p); in.have < frameHead {
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

// fill adds p to a head of which some is there, and returns what is left of p.
func fill(head []byte, have *int, p []byte) []byte {
	n := copy(head[*have:], p)
	*have += n
	return p[n:]
}

// begin looks at a frame's head.
func (c *conn) begin() error {
	in := &c.in
	h := &in.head
	in.rest = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	in.frame = http2.FrameHeader{
		Type: http2.FrameType(h[3]), Flags: http2.Flags(h[4]), Length: uint32(in.rest), //nolint:gosec // three bytes
		StreamID: binary.BigEndian.Uint32(h[5:]) & (1<<31 - 1),
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
		go c.kick()
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
			c.giveBack(in.s, min(padding, in.pad+1), 0)
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
		err = c.badFrame(bad)
	case err == nil:
		err = c.frame(f)
	}
	if err != nil {
		return err
	}
	return c.calm()
}

// lastData is the end of what the peer says, which at a client has a status
// behind it.
func (c *conn) lastData(s *stream) {
	switch {
	case s.client != nil:
		c.punish(s, http2.ErrCodeProtocol, status.Error(codes.Internal, "the call ended without a status"))
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
		c.punish(s, http2.ErrCodeCancel, err)
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
	c.refuse(bad.StreamID, bad.Code)
	return nil
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
