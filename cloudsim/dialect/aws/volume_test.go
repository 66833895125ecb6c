package aws_test

import (
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/dialect/aws"
)

// TestDiskLink proves that the device of a volume has the path at which the EBS CSI driver looks
// for the device.
func TestDiskLink(t *testing.T) {
	if got, want := aws.New().DiskLink("disk-00002a"), "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0000000000000002a"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
