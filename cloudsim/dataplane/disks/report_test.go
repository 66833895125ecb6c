package disks

import (
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TestReports proves that the unsent reports contain only the latest report of each disk, and no
// report of a deleted disk.
func TestReports(t *testing.T) {
	r := newReports()
	for size, id := range []cloudsim.DiskID{"disk-1", "disk-2", "disk-1", "disk-3"} {
		r.add(id, cloudsim.DiskStatus{SizeGiB: size})
	}
	r.drop("disk-2")
	r.drop("disk-4")
	got := r.take()
	if len(got) != 2 || got["disk-1"].SizeGiB != 2 || got["disk-3"].SizeGiB != 3 {
		t.Errorf("reports: got %v, want disk-1 with 2 GiB and disk-3 with 3 GiB", got)
	}
	if second := r.take(); len(second) != 0 {
		t.Errorf("second take: got reports %v, want none", second)
	}
}
