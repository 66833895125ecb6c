package csidriver

import (
	"bytes"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// busyWriter writes to a volume's file repeatedly until the caller calls stop. If the filesystem
// cannot clone files, the data plane copies the file for a snapshot. The writes change the file
// during this copy, so the data plane repeats the copy until the caller calls stop.
func (b *bench) busyWriter(v string) (f *os.File, stop func()) {
	b.t.Helper()
	if err := awaitSize(b.t.Context(), filepath.Join(b.path("disks"), v+".img"), gib); err != nil {
		b.t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(b.path("disks"), v+".img"), os.O_RDWR, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	big := bytes.Repeat([]byte("D"), 1<<20)
	for i := range int64(300) {
		if _, err := f.WriteAt(big, (300+i)<<20); err != nil {
			b.t.Fatal(err)
		}
	}
	var end atomic.Bool
	done := make(chan error, 1)
	go func() {
		var err error
		for i := byte(0); err == nil && !end.Load(); i++ {
			_, err = f.WriteAt([]byte{i}, 100<<20)
			time.Sleep(2 * time.Millisecond)
		}
		done <- err
	}()
	return f, func() {
		if end.Swap(true) {
			return
		}
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	}
}

// TestSnapshotExcludesLaterWrites proves that a snapshot does not contain data
// that a writer writes after the answer of CreateSnapshot. It also proves that
// lists do not contain a snapshot before it is ready to use.
func TestSnapshotExcludesLaterWrites(t *testing.T) {
	b := newBench(t)
	v := b.volume("pvc-1")
	f, stop := b.busyWriter(v)
	defer stop()
	answered := make(chan *csi.CreateSnapshotResponse, 1)
	go func() {
		s, err := b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s1", SourceVolumeId: v})
		if err != nil {
			t.Error(err)
		}
		answered <- s
	}()
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		l, err := b.cloud.ListSnapshots(t.Context(), cloudsim.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		begun = len(l.Items) == 1
	}
	if l, err := b.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{}); err != nil || len(l.GetEntries()) > 0 && len(answered) == 0 {
		t.Errorf("list during the snapshot: got %v, %v; want no entry", l, err)
	}
	time.AfterFunc(300*time.Millisecond, stop)
	s := (<-answered).GetSnapshot()
	if !s.GetReadyToUse() {
		t.Fatalf("got the answer %v, want a ready snapshot", s)
	}
	const late = "WRITTEN-AFTER-THE-ANSWER"
	if _, err := f.WriteAt([]byte(late), 200<<20); err != nil {
		t.Fatal(err)
	}
	cut, err := os.Open(filepath.Join(b.path("disks"), s.GetSnapshotId()+".img"))
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	got := make([]byte, len(late))
	if _, err := cut.ReadAt(got, 200<<20); err != nil || string(got) == late {
		t.Errorf("the snapshot contains %q, %v; want no data from after the answer", got, err)
	}
}

// TestSnapshotOutlivesAFailedPoll proves that the driver keeps a snapshot if
// the query of the snapshot's state fails.
func TestSnapshotOutlivesAFailedPoll(t *testing.T) {
	b := newBench(t)
	v, w := b.volume("pvc-1"), b.volume("pvc-2")
	_, stop := b.busyWriter(v)
	defer stop()
	one := func() error {
		_, err := b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s1", SourceVolumeId: v})
		return err
	}
	groups := csi.NewGroupControllerClient(dial(t, b.path("csi.sock")))
	group := func() error {
		_, err := groups.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "g1", SourceVolumeIds: []string{v, w}})
		return err
	}
	undo := b.injectFault("operations.get", cloudsim.FaultEffect{Type: cloudsim.FaultError, Kind: "unavailable"}, 0)
	wantCode(t, "snapshot with a failed poll", one(), codes.Unavailable)
	wantCode(t, "group with a failed poll", group(), codes.Unavailable)
	undo()
	before, err := b.cloud.ListSnapshots(t.Context(), cloudsim.ListOptions{})
	if err != nil || len(before.Items) != 3 {
		t.Fatalf("after the failed polls: got %d snapshots, %v; want 3", len(before.Items), err)
	}
	stop()
	wantCode(t, "snapshot again", one(), codes.OK)
	wantCode(t, "group again", group(), codes.OK)
	after, err := b.cloud.ListSnapshots(t.Context(), cloudsim.ListOptions{})
	if err != nil || len(after.Items) != 3 {
		t.Fatalf("after the repeated calls: got %d snapshots, %v; want 3", len(after.Items), err)
	}
	for i := range after.Items {
		if after.Items[i].ID != before.Items[i].ID {
			t.Errorf("snapshot %s was replaced by %s", before.Items[i].ID, after.Items[i].ID)
		}
	}
}

// TestThrottledPoll proves that the driver returns UNAVAILABLE if the cloud
// throttles the driver's calls. UNAVAILABLE means that the work may still be
// running. RESOURCE_EXHAUSTED would mean that no work is running (see the variable codeOf).
func TestThrottledPoll(t *testing.T) {
	b := newBench(t)
	v := b.volume("pvc-1")
	_, stop := b.busyWriter(v)
	defer stop()
	undo := b.injectFault("operations.get", cloudsim.FaultEffect{Type: cloudsim.FaultThrottle}, 0)
	_, err := b.CreateVolume(t.Context(), b.request("pvc-2", from("", v)))
	wantCode(t, "a throttled poll", err, codes.Unavailable)
	undo()
	undo = b.injectFault("disks.create", cloudsim.FaultEffect{Type: cloudsim.FaultThrottle}, 0)
	defer undo()
	_, err = b.CreateVolume(t.Context(), b.request("pvc-3"))
	wantCode(t, "a throttled call", err, codes.Unavailable)
}
