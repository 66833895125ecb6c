//go:build !linux

package dataplane

import (
	"io"
	"net"
)

// lender reads a socket into one buffer, which it holds also while it waits.
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

// mover moves bytes from src to dst by reading and writing.
type mover struct {
	dst net.Conn
	few *lender
}

func newMover(dst, src *net.TCPConn) (*mover, error) {
	few, err := newLender(src, small)
	return &mover{dst, few}, err
}

func (m *mover) some() (int64, error) {
	bytes, err := m.few.read()
	if len(bytes) == 0 {
		if err == nil {
			err = io.EOF
		}
		return 0, err
	}
	n, err := m.dst.Write(bytes) // an error of the read comes again with the next one
	return int64(n), err
}

// unsent cannot be asked here: a slow reader has the idle timeout to take what
// waits for it.
func unsent(*net.TCPConn) bool { return false }
