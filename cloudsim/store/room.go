package store

import "os"

// ahead is how much room there is beyond the last page.
const ahead = 1 << 20

var zeros [ahead]byte // nobody writes to it, so it takes no memory

// room is the part of the file that is beyond its last page and was written to
// already, with zeros. A commit that writes there needs no block that the
// filesystem must give the file first, so its fdatasync waits for its pages
// alone, and not for the filesystem's journal and all that others have in it.
// The price is that each page is written twice when the file first has it.
type room struct {
	file *os.File
	end  int64 // everything before is written
}

// make makes room beyond end, where the last page ends, when half of it is used
// up. Only who may write to the file calls it. Without room, on a disk that is
// nearly full, a commit works as well or says why not: so a failure is no error.
func (r *room) make(end int64) {
	if r.end-end > ahead/2 {
		return
	}
	from, to := max(r.end, end), end+ahead
	n, _ := r.file.WriteAt(zeros[:to-from], from)
	r.end = from + int64(n)
}
