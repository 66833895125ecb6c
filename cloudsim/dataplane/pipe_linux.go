//go:build !portable

package dataplane

import "golang.org/x/sys/unix"

const (
	pipeSize = 1024 << 10 // maximum bytes of one splice; without privileges the kernel may grant less
	spares   = 8          // unused pipes that a loop keeps
)

// pipe is a kernel pipe that holds spliced bytes between two sockets.
type pipe struct {
	in, out int
	holds   int // bytes
}

// pipePool lends pipes and keeps unused pipes, because making a pipe costs more
// than a splice.
type pipePool struct{ spare []*pipe }

// lend returns a pipe, or nil if the process has no free descriptors.
func (s *pipePool) lend() *pipe {
	if last := len(s.spare) - 1; last >= 0 {
		p := s.spare[last]
		s.spare = s.spare[:last]
		return p
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil
	}
	p := &pipe{out: ends[0], in: ends[1]}
	_, _ = unix.FcntlInt(uintptr(p.in), unix.F_SETPIPE_SZ, pipeSize) //nolint:gosec // a descriptor
	return p
}

// giveBack keeps p for the next connection. If p still holds bytes, or if s already has the
// maximum number of spare pipes, giveBack closes p instead.
func (s *pipePool) giveBack(p *pipe) {
	if p.holds == 0 && len(s.spare) < spares {
		s.spare = append(s.spare, p)
		return
	}
	p.close()
}

func (s *pipePool) close() {
	for _, p := range s.spare {
		p.close()
	}
	s.spare = nil
}

func (p *pipe) close() {
	_ = unix.Close(p.in)
	_ = unix.Close(p.out)
}
