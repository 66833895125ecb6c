package client_test

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func everyStateVerb(t *testing.T, c *client.Client) {
	ctx := t.Context()
	must(c.SaveState(ctx, cloudsim.SaveState{Name: "s", RecordsOnly: true}))(t)
	if l := must(c.ListStates(ctx))(t); len(l.Items) != 1 || l.Items[0].Name != "s" || l.Items[0].Bytes == 0 {
		t.Errorf("states: got %+v, want state s with more than 0 bytes", l.Items)
	}
	if d := must(c.DiffStates(ctx, "s", ""))(t); len(d.Items) != 0 {
		t.Errorf("differences between state s and the cloud: got %+v, want none", d.Items)
	}
	var file bytes.Buffer
	if err := c.ExportState(ctx, "s", &file); err != nil {
		t.Fatal(err)
	}
	must(c.ImportState(ctx, "t", &file))(t)
	for _, act := range []error{c.LoadState(ctx, "t", cloudsim.LoadState{}), c.DeleteState(ctx, "t")} {
		if act != nil {
			t.Error(act)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestExportToAFullDisk proves that ExportState returns the error of the writer. The error is not
// Unavailable, because the cloud has answered.
func TestExportToAFullDisk(t *testing.T) {
	c, ctx := cloudtest.Start(t), t.Context()
	must(c.SaveState(ctx, cloudsim.SaveState{Name: "s"}))(t)
	if err := c.ExportState(ctx, "s", fullDisk{}); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("export to a full disk: got error %v, want ENOSPC without the kind Unavailable", err)
	}
}

func TestStateRefuses(t *testing.T) {
	c, ctx := cloudtest.Start(t, cloudtest.WithConfig(func(c *engine.Config) { c.DiskData = true })), t.Context()
	if _, err := c.CreateDisk(ctx, cloudsim.CreateDisk{Name: "d", Zone: "sim-1a", Type: "balanced", SizeGiB: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SaveState(ctx, cloudsim.SaveState{Name: "s"}); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("state with the contents of external disks: got error %v, want Conflict", err)
	}
	if _, err := c.SaveState(ctx, cloudsim.SaveState{Name: "../s", RecordsOnly: true}); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("state name with a path: got error %v, want Invalid", err)
	}
	if err := c.LoadState(ctx, "..", cloudsim.LoadState{}); !errors.Is(err, cloudsim.Invalid) && !errors.Is(err, cloudsim.NotFound) && !errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("load of a state name with a path: got error %v, want Invalid, NotFound or Unavailable", err)
	}
	if _, err := c.ImportState(ctx, "s", bytes.NewReader([]byte("no"))); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("import of an invalid state: got error %v, want Invalid", err)
	}
	if err := c.ResetState(ctx); err != nil {
		t.Error(err)
	}
	must(c.SaveState(ctx, cloudsim.SaveState{Name: "s"}))(t)
}
