package store

import "os"

// preallocation writes zeros beyond the last page of the file. A later commit
// that writes there needs no new block from the filesystem. Its sync therefore
// waits only for its own pages and not for the filesystem's journal. The cost
// is that new pages are written twice.
type preallocation struct {
	file *os.File
	end  int64 // all bytes before it are written
	size int64 // bytes of the last extension
}

// The size of an extension doubles each time, so that a file with few writes
// stays small.
const (
	minPreallocation = 32 << 10
	maxPreallocation = 1 << 20
)

var zeros [maxPreallocation]byte // never written, so it uses no memory

// extend writes zeros beyond end, the end of the last page, when half of the
// last extension is used. Only the leader calls extend. It ignores a write
// error: on a full disk the commit works without the zeros, or the commit
// returns the error.
func (p *preallocation) extend(end int64) {
	if p.end-end > p.size/2 {
		return
	}
	p.size = min(max(2*p.size, minPreallocation), maxPreallocation)
	from, to := max(p.end, end), end+p.size
	n, _ := p.file.WriteAt(zeros[:to-from], from)
	p.end = from + int64(n)
}
