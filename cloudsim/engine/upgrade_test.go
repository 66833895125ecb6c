package engine_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// The command below writes a data directory of the current version. For each release, run the
// command with the name of the new release, commit the folder, and add the name to TestUpgrade.
//
//	go test ./cloudsim/engine -run TestWriteDataDir -count=1 -args -write-data-dir testdata/v0.1.0
var writeDataDir = flag.String("write-data-dir", "", "folder to create with the data directory of a cloud")

// TestWriteDataDir creates a folder with a cloud's store file, a saved state and the secret of a
// token. Without the flag -write-data-dir, the test does nothing.
func TestWriteDataDir(t *testing.T) {
	dir := *writeDataDir
	if dir == "" {
		t.Skip("no flag -write-data-dir")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, filepath.Join(dir, "cloud.db"), frozen, withStates(filepath.Join(dir, "states")))
	a, b := mustCreate(t, e, ctx, "a"), mustCreate(t, e, ctx, "b")
	d := mustCreateDisk(t, e, ctx, "data")
	advance(t, e, ctx, time.Hour)
	must(e.StopInstance(ctx, b.ID))(t)
	must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: a.ID}))(t)
	must(e.CreateLoadBalancer(ctx, loadBalancer("shop", a.ID, b.ID)))(t)
	must(e.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: "first", Disk: d.ID}))(t)
	advance(t, e, ctx, time.Hour)
	must(e.CreateHold(ctx, holdCreates()))(t)
	mustCreate(t, e, ctx, "held")
	must(e.SaveState(ctx, cloudsim.SaveState{Name: "before"}))(t)
	token := must(e.CreateToken(ctx, cloudsim.CreateToken{Name: "ci", Role: cloudsim.RoleReader}))(t)
	must(e.DeleteInstance(ctx, b.ID))(t)
	advance(t, e, ctx, time.Hour)
	mustCreate(t, e, ctx, "late") // the file contains the open operation of this instance
	stop()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token.Secret), 0o600); err != nil {
		t.Fatal(err)
	}
}

// holdCreates returns a request for a hold on the creation of all instances.
func holdCreates() cloudsim.CreateHold {
	return cloudsim.CreateHold{Name: "h", HoldSpec: cloudsim.HoldSpec{
		Transition: cloudsim.Transition{Kind: cloudsim.KindInstance, Verb: cloudsim.Create},
	}}
}

// TestUpgrade proves that this version opens the data directories of earlier releases, continues
// their open operations, and loads their saved states.
func TestUpgrade(t *testing.T) {
	for _, release := range []string{"v0.1.0"} {
		t.Run(release, func(t *testing.T) {
			dir, ctx := t.TempDir(), engine.AsCloud(t.Context())
			if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", release))); err != nil {
				t.Fatal(err)
			}
			e, stop := boot(t, filepath.Join(dir, "cloud.db"), withStates(filepath.Join(dir, "states")))
			defer func() { stop() }()
			secret := must(os.ReadFile(filepath.Join(dir, "token")))(t)
			if _, err := e.Authorize(t.Context(), engine.Request{Secret: string(secret), Access: engine.Read}); err != nil {
				t.Errorf("the token is not valid: %v", err)
			}
			checkDisk(t, e)
			checkInstances(t, e, map[string]cloudsim.InstanceState{
				"a": cloudsim.InstanceRunning, "held": cloudsim.InstanceProvisioning, "late": cloudsim.InstanceProvisioning,
			})

			if err := e.LoadState(ctx, "before", cloudsim.LoadState{}); err != nil {
				t.Fatal(err)
			}
			checkDisk(t, e)
			checkInstances(t, e, map[string]cloudsim.InstanceState{
				"a": cloudsim.InstanceRunning, "b": cloudsim.InstanceStopped, "held": cloudsim.InstanceProvisioning,
			})
			l := must(e.ListLoadBalancers(ctx, cloudsim.ListOptions{}))(t)
			if len(l.Items) != 1 || l.Items[0].State != cloudsim.LoadBalancerActive || len(l.Items[0].Targets) != 2 {
				t.Errorf("load balancers of the data directory: got %+v, want 1 active load balancer with 2 targets", l.Items)
			}
			holds := must(e.ListHolds(ctx, cloudsim.ListOptions{}))(t)
			if len(holds.Items) != 1 {
				t.Fatalf("holds: got %+v", holds.Items)
			}
			if err := e.DeleteHold(ctx, holds.Items[0].ID); err != nil {
				t.Fatal(err)
			}
			advance(t, e, ctx, time.Hour)
			checkInstances(t, e, map[string]cloudsim.InstanceState{
				"a": cloudsim.InstanceRunning, "b": cloudsim.InstanceStopped, "held": cloudsim.InstanceRunning,
			})
		})
	}
}

// checkDisk checks the disk and the snapshot that TestWriteDataDir has created.
func checkDisk(t *testing.T, e *engine.Engine) {
	t.Helper()
	ctx := engine.AsCloud(t.Context())
	d := must(e.GetDisk(ctx, "disk-000001"))(t)
	if d.Name != "data" || len(d.Attachments) != 1 {
		t.Errorf("disk of the data directory: got %+v, want name data and 1 attachment", d)
	}
	if l := must(e.ListSnapshots(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 1 || l.Items[0].Name != "first" {
		t.Errorf("snapshots: got %+v", l.Items)
	}
}

func checkInstances(t *testing.T, e *engine.Engine, want map[string]cloudsim.InstanceState) {
	t.Helper()
	l := must(e.ListInstances(engine.AsCloud(t.Context()), cloudsim.ListOptions{}))(t)
	if len(l.Items) != len(want) {
		t.Errorf("got %d instances; want %d", len(l.Items), len(want))
	}
	for _, i := range l.Items {
		if i.State != want[i.Name] {
			t.Errorf("instance %s: got state %q; want %q", i.Name, i.State, want[i.Name])
		}
	}
}

// TestLoadHold proves that LoadState restores the holds of a saved state and the operations that
// the holds block. A restored hold continues after a restart, until a client deletes the hold.
func TestLoadHold(t *testing.T) {
	path, dir, ctx := file(t), t.TempDir(), engine.AsCloud(t.Context())
	e, stop := boot(t, path, frozen, withStates(dir))
	h := must(e.CreateHold(ctx, holdCreates()))(t)
	a := mustCreate(t, e, ctx, "a")
	advance(t, e, ctx, time.Hour)
	must(e.SaveState(ctx, cloudsim.SaveState{Name: "held"}))(t)
	if err := e.DeleteHold(ctx, h.ID); err != nil {
		t.Fatal(err)
	}
	advance(t, e, ctx, 0)
	checkInstances(t, e, map[string]cloudsim.InstanceState{"a": cloudsim.InstanceRunning})

	if err := e.LoadState(ctx, "held", cloudsim.LoadState{}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second round runs after a restart
		advance(t, e, ctx, time.Hour)
		checkInstances(t, e, map[string]cloudsim.InstanceState{"a": cloudsim.InstanceProvisioning})
		op := must(e.GetOperation(ctx, a.Operation))(t)
		if op.HeldBy != string(h.ID) || op.Over() {
			t.Errorf("operation: got %+v; want an open operation that %s holds", op, h.ID)
		}
		if got, err := e.GetHold(ctx, h.ID); err != nil || got.Name != "h" {
			t.Errorf("hold: got %+v, %v", got, err)
		}
		stop()
		e, stop = boot(t, path, withStates(dir))
	}
	defer func() { stop() }()
	if err := e.DeleteHold(ctx, h.ID); err != nil {
		t.Fatal(err)
	}
	advance(t, e, ctx, 0)
	checkInstances(t, e, map[string]cloudsim.InstanceState{"a": cloudsim.InstanceRunning})
	if err := e.DeleteHold(ctx, h.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("second deletion of the hold: got error %v; want NotFound", err)
	}
}
