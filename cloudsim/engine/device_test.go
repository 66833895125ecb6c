package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func deviceReport(id cloudsim.DiskID, ready bool, failure string) cloudsim.ReportDevices {
	return cloudsim.ReportDevices{Devices: []cloudsim.DeviceReport{{Disk: id, Ready: ready, Error: failure}}}
}

// TestDeviceReports proves that an attachment completes only after two events: the duration of the
// operation has ended, and the hypervisor has reported the device. A detachment completes only
// after its duration has ended and the hypervisor has sent a report without the device. In both
// cases, the report may come before or after the end of the duration.
func TestDeviceReports(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("early %t", early), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := engine.AsCloud(t.Context())
				e, down := boot(t, file(t), slowDisks)
				defer down()
				i, d := mustCreate(t, e, ctx, "a"), mustCreateDisk(t, e, ctx, "data")
				time.Sleep(30 * time.Second)
				synctest.Wait()
				none := cloudsim.ReportDevices{Devices: []cloudsim.DeviceReport{}}
				if i = must(e.ReportDevices(ctx, i.ID, none))(t); !i.ReportsDevices {
					t.Fatalf("instance after the first report: got %+v", i)
				}
				if repeated := must(e.ReportDevices(ctx, i.ID, none))(t); repeated.Revision != i.Revision {
					t.Errorf("repeated report: got revision %d, want %d", repeated.Revision, i.Revision)
				}
				for _, step := range []struct {
					begin  func() (cloudsim.Disk, error)
					report cloudsim.ReportDevices
					via    cloudsim.DiskState
					state  cloudsim.DiskState
				}{
					{func() (cloudsim.Disk, error) { return e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID}) }, deviceReport(d.ID, true, ""), cloudsim.DiskAttaching, cloudsim.DiskInUse},
					{func() (cloudsim.Disk, error) { return e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: i.ID}) }, none, cloudsim.DiskDetaching, cloudsim.DiskAvailable},
				} {
					must(step.begin())(t)
					wait := 21 * time.Second // longer than the duration of the operation
					if early {
						wait = time.Second
					}
					time.Sleep(wait)
					synctest.Wait()
					if got := must(e.GetDisk(ctx, d.ID))(t); got.State != step.via {
						t.Fatalf("before the report: got state %s, want %s", got.State, step.via)
					}
					must(e.ReportDevices(ctx, i.ID, step.report))(t)
					got := must(e.GetDisk(ctx, d.ID))(t)
					if early && got.State != step.via {
						t.Fatalf("after the report and before the end of the duration: got state %s, want %s", got.State, step.via)
					}
					if early {
						time.Sleep(20 * time.Second)
						synctest.Wait()
						got = must(e.GetDisk(ctx, d.ID))(t)
					}
					if op := must(e.GetOperation(ctx, got.Operation))(t); got.State != step.state || op.State != cloudsim.OperationDone {
						t.Fatalf("after the report and the duration: got state %s and operation %s, want %s and done", got.State, op.State, step.state)
					}
				}
				time.Sleep(2 * time.Minute) // the time limits of finished operations change nothing
				synctest.Wait()
				if got := must(e.GetDisk(ctx, d.ID))(t); got.State != cloudsim.DiskAvailable {
					t.Errorf("disk after the time limits: got %+v, want state available", got)
				}
			})
		})
	}
}

// TestDeadHypervisor proves that an attachment fails if the hypervisor does not report in time. In
// this case, a detachment also fails, and the disk stays attached.
func TestDeadHypervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), slowDisks)
		defer down()
		i, d := mustCreate(t, e, ctx, "a"), mustCreateDisk(t, e, ctx, "data")
		time.Sleep(30 * time.Second)
		must(e.ReportDevices(ctx, i.ID, cloudsim.ReportDevices{}))(t)
		fails := func(d cloudsim.Disk, want cloudsim.DiskState, texts ...string) {
			t.Helper()
			time.Sleep(79 * time.Second)
			synctest.Wait()
			if op := must(e.GetOperation(ctx, d.Operation))(t); op.Over() {
				t.Errorf("operation before the time limit: got %s", op.State)
			}
			w := must(e.Why(ctx, string(d.ID)))(t)
			if len(w.Waits) != 1 || !strings.Contains(w.Waits[0].Text, "until the hypervisor of "+string(i.ID)+" reports the device") {
				t.Errorf("why the operation waits: got %+v", w.Waits)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			op := must(e.GetOperation(ctx, d.Operation))(t)
			if op.State != cloudsim.OperationFailed || op.Error == nil || op.Error.Kind != cloudsim.Unavailable {
				t.Fatalf("operation after the time limit: got %s with error %+v, want failed with unavailable", op.State, op.Error)
			}
			for _, text := range texts {
				if !strings.Contains(op.Error.Detail, text) {
					t.Errorf("error after the time limit: got %q, want %q in it", op.Error.Detail, text)
				}
			}
			if got := must(e.GetDisk(ctx, d.ID))(t); got.State != want {
				t.Errorf("disk after the time limit: got state %s, want %s", got.State, want)
			}
		}
		attach := func() cloudsim.Disk { return must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID}))(t) }
		fails(attach(), cloudsim.DiskAvailable, "has not added the device of disk disk-000001 within 1m0s", "check that the hypervisor runs")
		d = attach()
		must(e.ReportDevices(ctx, i.ID, deviceReport(d.ID, false, "no free loop device")))(t)
		fails(d, cloudsim.DiskAvailable, "no free loop device")
		attach()
		must(e.ReportDevices(ctx, i.ID, deviceReport(d.ID, true, "")))(t)
		time.Sleep(21 * time.Second)
		synctest.Wait()
		detach := func() cloudsim.Disk { return must(e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: i.ID}))(t) }
		fails(detach(), cloudsim.DiskInUse, "has not removed the device")

		// If the hypervisor of an instance never runs again, a user can tell the cloud to expect no
		// more reports for this instance. Then attachments and detachments do not wait for reports.
		d = detach()
		time.Sleep(21 * time.Second)
		synctest.Wait()
		must(e.ForgetDevices(ctx, i.ID))(t)
		if got := must(e.GetDisk(ctx, d.ID))(t); got.State != cloudsim.DiskAvailable {
			t.Errorf("disk after the end of the reports: got %+v, want state available", got)
		}
		attach()
		time.Sleep(21 * time.Second)
		synctest.Wait()
		if got := must(e.GetDisk(ctx, d.ID))(t); got.State != cloudsim.DiskInUse {
			t.Errorf("disk after the attachment without reports: got %+v, want state in-use", got)
		}
	})
}

// TestHeldDevice proves that a report does not complete an operation that a hold blocks.
func TestHeldDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), slowDisks)
		defer down()
		i, d := mustCreate(t, e, ctx, "a"), mustCreateDisk(t, e, ctx, "data")
		time.Sleep(30 * time.Second)
		must(e.ReportDevices(ctx, i.ID, cloudsim.ReportDevices{}))(t)
		h := must(e.CreateHold(ctx, cloudsim.CreateHold{Name: "attach", HoldSpec: cloudsim.HoldSpec{Transition: cloudsim.Transition{Kind: cloudsim.KindDisk, Verb: cloudsim.Attach}}}))(t)
		must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID}))(t)
		time.Sleep(21 * time.Second)
		must(e.ReportDevices(ctx, i.ID, deviceReport(d.ID, true, "")))(t)
		if got := must(e.GetDisk(ctx, d.ID))(t); got.State != cloudsim.DiskAttaching {
			t.Errorf("held attachment after the report: got state %s", got.State)
		}
		if err := e.DeleteHold(ctx, h.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := must(e.GetDisk(ctx, d.ID))(t); got.State != cloudsim.DiskInUse {
			t.Errorf("released attachment: got state %s", got.State)
		}
	})
}

// beginAttachment starts an engine with a stopped clock and lets it attach a disk to an instance. The
// hypervisor reports the devices of this instance, and has not yet reported the device of the disk.
func beginAttachment(t *testing.T, ctx context.Context) (*engine.Engine, cloudsim.Instance, cloudsim.Disk) {
	t.Helper()
	e, down := boot(t, file(t), frozen, slowDisks)
	t.Cleanup(down)
	i, d := mustCreate(t, e, ctx, "a"), mustCreateDisk(t, e, ctx, "data")
	advance(t, e, ctx, time.Hour)
	must(e.ReportDevices(ctx, i.ID, cloudsim.ReportDevices{Devices: []cloudsim.DeviceReport{}}))(t)
	must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID}))(t)
	return e, i, d
}

// TestCancelDetachmentWithoutDevice detaches a disk that the cloud is still attaching. It proves that
// a client cannot cancel this detachment before the hypervisor has reported the device, because the
// disk would be attached without a device. After the report, the client can cancel the detachment.
func TestCancelDetachmentWithoutDevice(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, i, d := beginAttachment(t, ctx)
	d = must(e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: i.ID}))(t)
	_, err := e.CancelOperation(ctx, d.Operation)
	expectError(t, err, cloudsim.Conflict, string(d.ID), "no device")
	if got := must(e.GetDisk(ctx, d.ID))(t); got.State != cloudsim.DiskDetaching {
		t.Errorf("disk after the refused cancellation: got %+v, want state detaching", got)
	}
	must(e.ReportDevices(ctx, i.ID, deviceReport(d.ID, true, "")))(t)
	must(e.CancelOperation(ctx, d.Operation))(t)
	if got := must(e.GetDisk(ctx, d.ID))(t); got.State != cloudsim.DiskInUse || got.Attachments[0].State != cloudsim.AttachmentAttached {
		t.Errorf("disk after the cancellation with a device: got %+v, want state in-use and an attached device", got)
	}
}

// TestInvalidDeviceReports proves that an invalid report changes nothing.
func TestInvalidDeviceReports(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t))
	defer down()
	i := mustCreate(t, e, ctx, "a")
	_, err := e.ReportDevices(ctx, i.ID, cloudsim.ReportDevices{Devices: []cloudsim.DeviceReport{{}}})
	expectRefused(t, "report without a disk", err, cloudsim.Invalid, "devices[0].disk")
	_, err = e.ReportDevices(ctx, i.ID, cloudsim.ReportDevices{Devices: []cloudsim.DeviceReport{{Disk: "disk-000001"}, {Disk: "disk-000001"}}})
	expectRefused(t, "report with the same disk twice", err, cloudsim.Invalid, "devices[1].disk")
	_, err = e.ReportDevices(ctx, i.ID, cloudsim.ReportDevices{Devices: make([]cloudsim.DeviceReport, cloudsim.MaxDeviceReports+1)})
	expectRefused(t, "report with too many disks", err, cloudsim.Invalid, "devices")
	_, err = e.ReportDevices(ctx, "i-ffffff", cloudsim.ReportDevices{})
	expectRefused(t, "report about a missing instance", err, cloudsim.NotFound, "")
	if got := must(e.GetInstance(ctx, i.ID))(t); got.ReportsDevices {
		t.Errorf("instance after invalid reports: got %+v", got)
	}
}

// TestDeviceReportAfterTheClockGoesBack begins with an attachment that is due and waits only for a
// report. The test sets the clock back to a time before the due time. Then the report arrives, or
// ForgetDevices tells the cloud to expect no more reports for the instance. The test proves that
// the attachment completes when the clock reaches the due time again.
func TestDeviceReportAfterTheClockGoesBack(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	for name, report := range map[string]func(*engine.Engine, cloudsim.InstanceID, cloudsim.DiskID) (cloudsim.Instance, error){
		"report": func(e *engine.Engine, i cloudsim.InstanceID, d cloudsim.DiskID) (cloudsim.Instance, error) {
			return e.ReportDevices(ctx, i, deviceReport(d, true, ""))
		},
		"end of reports": func(e *engine.Engine, i cloudsim.InstanceID, _ cloudsim.DiskID) (cloudsim.Instance, error) {
			return e.ForgetDevices(ctx, i)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, i, d := beginAttachment(t, ctx)
			advance(t, e, ctx, 30*time.Second)
			must(e.SetClock(ctx, cloudsim.SetClock{Time: &newYear}))(t)
			must(report(e, i.ID, d.ID))(t)
			advance(t, e, ctx, time.Hour+21*time.Second)
			got := must(e.GetDisk(ctx, d.ID))(t)
			if op := must(e.GetOperation(ctx, got.Operation))(t); got.State != cloudsim.DiskInUse || op.State != cloudsim.OperationDone {
				t.Errorf("after the due time: got state %s and operation %s, want in-use and done", got.State, op.State)
			}
		})
	}
}
