//go:build !linux

package dataplane

import "net"

// pooledReader reads a socket into one buffer. It keeps the buffer even while it waits for bytes.
type pooledReader struct {
	c   net.Conn
	buf []byte
}

func newPooledReader(c net.Conn, max int) (*pooledReader, error) {
	return &pooledReader{c, make([]byte, max)}, nil
}

func (l *pooledReader) readOnce() ([]byte, error) {
	n, err := l.c.Read(l.buf)
	return l.buf[:n], err
}

func (l *pooledReader) release() {}
