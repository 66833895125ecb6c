package store

import "os"

// preallocation writes zeros beyond the last page of the file. A later commit to this part of the
// file then needs no new block from the filesystem. The sync of this commit therefore waits only
// for the pages of the commit, and not for the filesystem's journal. The cost is that the program
// writes each new page twice: first as zeros, then with content.
type preallocation struct {
	file *os.File
	end  int64 // the file contains pages or zeros up to this offset
	size int64 // size of the last extension in bytes
}

// These constants are the minimum and the maximum size of an extension of the file. The first
// extension has the minimum size, so a file with few writes stays small. Each later extension is
// twice as large as the previous extension, up to the maximum.
const (
	minPreallocation = 32 << 10
	maxPreallocation = 1 << 20
)

var zeros [maxPreallocation]byte // the program never writes to zeros, so the kernel assigns no memory to the variable

// extend writes a new extension of zeros after the last page. It does nothing while more than half
// of the last extension is unused. The parameter end is the offset at which the last page ends.
// Only the leader of a batch calls extend (see Store.commitBatch). extend ignores a write error,
// because a commit can succeed without the zeros.
func (p *preallocation) extend(end int64) {
	if p.end-end > p.size/2 {
		return
	}
	p.size = min(max(2*p.size, minPreallocation), maxPreallocation)
	from, to := max(p.end, end), end+p.size
	n, _ := p.file.WriteAt(zeros[:to-from], from)
	p.end = from + int64(n)
}
