package disks

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// reportsCloud is a cloud that only takes reports of copies. It answers each report with the next
// error of the field named fails. After the last error, it stores the reports.
type reportsCloud struct {
	Cloud // nil: a call of another method panics
	fails []error
	disks []cloudsim.DiskStatus
	snaps []cloudsim.SnapshotReport
}

func (c *reportsCloud) nextError() error {
	if len(c.fails) == 0 {
		return nil
	}
	err := c.fails[0]
	c.fails = c.fails[1:]
	return err
}

func (c *reportsCloud) ReportDisk(_ context.Context, _ cloudsim.DiskID, s cloudsim.DiskStatus) error {
	if err := c.nextError(); err != nil {
		return err
	}
	c.disks = append(c.disks, s)
	return nil
}

func (c *reportsCloud) ReportSnapshots(_ context.Context, reports []cloudsim.SnapshotReport) error {
	if err := c.nextError(); err != nil {
		return err
	}
	c.snaps = append(c.snaps, reports...)
	return nil
}

func newTestManager(t *testing.T, cloud Cloud) *manager {
	dir := t.TempDir()
	return &manager{
		log: slog.New(slog.DiscardHandler), dir: dir, files: NewFiles(dir), cloud: cloud, jobs: newJobs(), reports: newReports(),
		failed: map[cloudsim.DiskID]cloudsim.Disk{},
	}
}

// If the report of a complete copy fails, the job reports the same result again.
func TestFailedReportOfACopyIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &reportsCloud{}
		k := newTestManager(t, cloud)
		if err := os.WriteFile(Path(k.dir, "disk-000001"), []byte("data"), made); err != nil {
			t.Fatal(err)
		}
		fails := []error{cloudsim.Errorf(cloudsim.Unavailable, "away"), cloudsim.Errorf(cloudsim.Unavailable, "away")}
		cloud.fails = fails
		d := cloudsim.Disk{ID: "disk-000002", SizeGiB: 1, SourceDisk: "disk-000001"}
		k.fill(t.Context(), d)
		k.running.Wait()
		if len(cloud.disks) != 1 || cloud.disks[0] != (cloudsim.DiskStatus{SizeGiB: 1}) {
			t.Errorf("reports of the disk: got %v, want one report with 1 GiB", cloud.disks)
		}
		cloud.fails = fails
		s := cloudsim.Snapshot{ID: "snap-000001", Disk: "disk-000001", SizeGiB: 1}
		k.takeSnapshots(t.Context(), string(s.ID), []cloudsim.Snapshot{s})
		k.running.Wait()
		if len(cloud.snaps) != 1 || cloud.snaps[0].Status != (cloudsim.DiskStatus{SizeGiB: 1}) {
			t.Errorf("reports of the snapshot: got %v, want one report with 1 GiB", cloud.snaps)
		}
	})
}

// If a copy fails because its source is lost, the copy job ends. After any other failure of a copy,
// the job tries again. If the cloud already has the result, the job does not report it again.
func TestReportResult(t *testing.T) {
	failed := errors.New("copy failed")
	k := &manager{log: slog.New(slog.DiscardHandler)}
	for _, test := range []struct {
		isKnown, isLost bool
		want            error
		reports         int
	}{
		{isKnown: false, isLost: false, want: failed, reports: 1},
		{isKnown: false, isLost: true, want: nil, reports: 1},
		{isKnown: true, isLost: false, want: failed, reports: 0},
		{isKnown: true, isLost: true, want: nil, reports: 0},
	} {
		reports := 0
		err := k.reportResult(context.Background(), "disk-000001", failed, test.isKnown, func() error { reports++; return nil }, test.isLost)
		if !errors.Is(err, test.want) || reports != test.reports {
			t.Errorf("known %t, lost %t: got error %v and %d reports, want %v and %d", test.isKnown, test.isLost, err, reports, test.want, test.reports)
		}
	}
}

// While the method put tries again to create the file of a disk, notCreated returns true for the
// disk. So a copy job that finds no file during this time does not report lost data.
func TestNotCreatedDuringARetry(t *testing.T) {
	k := newTestManager(t, nil)
	if err := os.Remove(k.dir); err != nil {
		t.Fatal(err)
	}
	d := cloudsim.Disk{ID: "disk-000001", SizeGiB: 1}
	k.put(t.Context(), d)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			k.put(t.Context(), d)
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			if !k.notCreated(d.ID) {
				t.Error("notCreated returned false during a retry")
				<-done
				return
			}
		}
	}
	k.dir = t.TempDir()
	k.put(t.Context(), d)
	if k.notCreated(d.ID) {
		t.Error("notCreated returned true after the file was created")
	}
}

// If the source disk of a copy job has no file yet, the job tries again until the disk has a file.
// The job does not report lost data.
func TestCopyOfADiskThatIsCreatedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &reportsCloud{}
		k := newTestManager(t, cloud)
		source := cloudsim.Disk{ID: "disk-000001", SizeGiB: 1}
		k.setFailed(source, true)
		for range atOnce {
			k.turns <- struct{}{} // the copies wait
		}
		k.fill(t.Context(), cloudsim.Disk{ID: "disk-000002", SizeGiB: 1, SourceDisk: source.ID})
		k.takeSnapshots(t.Context(), "snap-000001", []cloudsim.Snapshot{{ID: "snap-000001", Disk: source.ID, SizeGiB: 1}})
		synctest.Wait()
		k.setFailed(source, false)
		for range atOnce {
			<-k.turns
		}
		synctest.Wait() // both copies have failed
		k.put(t.Context(), source)
		k.running.Wait()
		if len(cloud.disks) != 2 || cloud.disks[0].Lost || cloud.disks[1] != (cloudsim.DiskStatus{SizeGiB: 1}) {
			t.Errorf("reports of the disk: got %+v, want a failure without lost data and then 1 GiB", cloud.disks)
		}
		if len(cloud.snaps) != 2 || cloud.snaps[0].Status.Lost || cloud.snaps[1].Status != (cloudsim.DiskStatus{SizeGiB: 1}) {
			t.Errorf("reports of the snapshot: got %+v, want a failure without lost data and then 1 GiB", cloud.snaps)
		}
	})
}
