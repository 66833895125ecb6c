package csidriver

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// TestModify proves that the driver changes a volume in place, even while the
// volume is in use. A repeated call and a refused call do not change the
// volume.
func TestModify(t *testing.T) {
	b := newBench(t)
	v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 4 * gib })
	b.publish(v, mounted("ext4"))
	// When the data plane has made the disk's file, it reports the size of the
	// file, and the disk gets a new revision. Wait for this revision, because the
	// test compares revisions.
	eventually.True(t, "the disk's file exists", func() bool {
		return must(t)(b.cloud.GetDisk(t.Context(), cloudsim.DiskID(v))).(cloudsim.Disk).Status.SizeGiB == 4
	})
	modify := func(volume string, p map[string]string) error {
		_, err := b.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: volume, MutableParameters: p})
		return err
	}
	have := func() cloudsim.Disk {
		return must(t)(b.cloud.GetDisk(t.Context(), cloudsim.DiskID(v))).(cloudsim.Disk)
	}
	faster := map[string]string{"type": "fast", "iops": "5000", "throughputMiBps": "200"}
	wantCode(t, "change", modify(v, faster), codes.OK)
	changed := have()
	if changed.Type != "fast" || changed.IOPS != 5000 || changed.ThroughputMiBps != 200 || len(changed.Attachments) != 1 {
		t.Errorf("got the changed disk %+v", changed)
	}
	for name, c := range map[string]struct {
		volume     string
		parameters map[string]string
		want       codes.Code
	}{
		"same parameters again": {v, faster, codes.OK},
		"nothing":               {v, nil, codes.OK},
		"unknown key":           {v, map[string]string{"color": "red"}, codes.InvalidArgument},
		"fixed key":             {v, map[string]string{"replication": "regional"}, codes.InvalidArgument},
		"iops is not a number":  {v, map[string]string{"iops": "many"}, codes.InvalidArgument},
		"too many iops":         {v, map[string]string{"iops": "100000000"}, codes.InvalidArgument},
		"unknown type":          {v, map[string]string{"type": "gold"}, codes.InvalidArgument},
		"unknown volume":        {"disk-00ffff", faster, codes.NotFound},
		"path as volume id":     {"../x", faster, codes.NotFound},
		"no volume id":          {"", faster, codes.InvalidArgument},
	} {
		wantCode(t, name, modify(c.volume, c.parameters), c.want)
		if d := have(); d.Revision != changed.Revision {
			t.Errorf("%s: the disk changed to %+v", name, d)
		}
	}
}
