package csidriver

import (
	"fmt"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// TestConcurrentStaging proves that concurrent staging calls, which compete for the free device
// numbers, get separate devices. After the unstaging calls, no device exists.
func TestConcurrentStaging(t *testing.T) {
	first := newNodeBench(t)
	b := first.secondDriver("node-2", "large")
	const many = 16
	volumes := make([]string, many)
	capabilities := make([]*csi.VolumeCapability, many)
	for i := range volumes {
		c := mounted("ext4")
		if i%4 == 0 {
			c = raw()
		}
		capabilities[i] = c
		volumes[i] = b.volume(fmt.Sprint("pvc-", i), func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{c} })
		b.publish(volumes[i], c)
	}
	each := func(do func(i int)) {
		var all sync.WaitGroup
		for i := range volumes {
			all.Go(func() { do(i) })
		}
		all.Wait()
	}
	for range 5 {
		each(func(i int) { wantCode(t, "stage", b.stage(volumes[i], capabilities[i]), codes.OK) })
		if devices := first.loopFiles(); len(devices) != many {
			t.Errorf("got %d devices for %d volumes: %v", len(devices), many, devices)
		}
		numbers := map[int]string{}
		for _, v := range volumes {
			n := b.number(v)
			if other := numbers[n]; other != "" {
				t.Errorf("%s and %s have the same device", v, other)
			}
			numbers[n] = v
		}
		each(func(i int) { wantCode(t, "unstage", b.unstage(volumes[i]), codes.OK) })
	}
}
