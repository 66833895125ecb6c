package store

import "os"

// How much room is made at a time: twice as much each time, so that a file that
// is opened for a few writes does not pay for many.
const (
	leastRoom = 32 << 10
	mostRoom  = 1 << 20
)

var zeros [mostRoom]byte // nobody writes to it, so it takes no memory

// room is the part of the file that is beyond its last page and was written to
// already, with zeros. A commit that writes there needs no block that the
// filesystem must give the file first, so its fdatasync waits for its pages
// alone, and not for the filesystem's journal and all that others have in it.
// The price is that each page is written twice when the file first has it.
type room struct {
	file *os.File
	end  int64 // everything before is written
	size int64 // as it was made last
}

// make makes room beyond end, where the last page ends, when half of it is used
// up. Only who may write to the file calls it. Without room, on a disk that is
// nearly full, a commit works as well or says why not: so a failure is no error.
func (r *room) make(end int64) {
	if r.end-end > r.size/2 {
		return
	}
	r.size = min(max(2*r.size, leastRoom), mostRoom)
	from, to := max(r.end, end), end+r.size
	n, _ := r.file.WriteAt(zeros[:to-from], from)
	r.end = from + int64(n)
}
