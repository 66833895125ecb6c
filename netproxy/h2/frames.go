package h2

import (
	"fmt"

	"golang.org/x/net/http2"
)

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
			c.over(s, statusOf(f.ErrCode).Err())
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
	go c.kick()
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

// refuse resets a stream that may not be there.
func (c *conn) refuse(id uint32, code http2.ErrCode) {
	if s := c.stream(id); s != nil {
		c.punish(s, code, statusOf(code).Err())
		return
	}
	c.mu.Lock()
	c.last = max(c.last, id)
	_ = c.framer.WriteRSTStream(id, code)
	c.answers += resetSize
	c.mu.Unlock()
	c.kick()
}
