package store

import "os"

// The type preallocation writes zeros beyond the last page of the file. A later commit to this part
// of the file needs no new block from the filesystem. The sync of this commit therefore waits only
// for the pages of the commit, and not for the filesystem's journal. The cost is that the program
// writes each new page twice.
type preallocation struct {
	file *os.File
	end  int64 // offset before which all bytes are written
	size int64 // size of the last extension in bytes
}

// The size of an extension doubles each time, so that a file with few writes
// stays small.
const (
	minPreallocation = 32 << 10
	maxPreallocation = 1 << 20
)

var zeros [maxPreallocation]byte // the program never writes to it, so it uses no memory

// extend writes zeros after the last page when half of the last extension is
// used. The parameter end is the end of the last page. Only the leader calls
// extend. The method extend ignores a write error. On a full disk the commit
// works without the zeros, or the commit itself returns the error.
func (p *preallocation) extend(end int64) {
	if p.end-end > p.size/2 {
		return
	}
	p.size = min(max(2*p.size, minPreallocation), maxPreallocation)
	from, to := max(p.end, end), end+p.size
	n, _ := p.file.WriteAt(zeros[:to-from], from)
	p.end = from + int64(n)
}
