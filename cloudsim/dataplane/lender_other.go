//go:build !linux

package dataplane

import "net"

// lender reads a socket into one buffer, which it also holds while it waits for bytes.
type lender struct {
	c   net.Conn
	buf []byte
}

func newLender(c net.Conn, max int) (*lender, error) { return &lender{c, make([]byte, max)}, nil }

func (l *lender) read() ([]byte, error) {
	n, err := l.c.Read(l.buf)
	return l.buf[:n], err
}

func (l *lender) giveBack() {}
