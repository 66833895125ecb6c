package cloudtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// fleet is an example of a controller. It keeps a fixed number of instances running. The field
// count contains this number. The controller replaces an instance that takes longer than
// startTimeout to start.
type fleet struct {
	cloud        *client.Client
	count        int
	startTimeout time.Duration
}

// reconcile does one step toward the wanted state of the cloud. The caller
// repeats the call.
func (f fleet) reconcile(ctx context.Context) error {
	clock, err := f.cloud.GetClock(ctx)
	if err != nil {
		return err
	}
	for n := range f.count {
		i, err := f.cloud.CreateInstance(ctx, cloudsim.CreateInstance{Name: fmt.Sprintf("web-%d", n), Zone: "sim-1a", Type: "small"})
		if err != nil {
			return err
		}
		if i.State == cloudsim.InstanceProvisioning && clock.Now.Sub(i.CreatedAt) > f.startTimeout {
			if _, err := f.cloud.DeleteInstance(ctx, i.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func instances(t *testing.T, cloud *client.Client) []cloudsim.Instance {
	t.Helper()
	l, err := cloud.ListInstances(t.Context(), cloudsim.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l.Items
}

// TestFleetSurvivesALostReply uses a fault: the cloud creates the instance, but the reply is lost.
// The next call of reconcile must find this instance, and must not create a second instance.
func TestFleetSurvivesALostReply(t *testing.T) {
	cloud, ctx := cloudtest.Start(t), t.Context()
	if _, err := cloud.CreateFault(ctx, cloudsim.CreateFault{Name: "lost", FaultSpec: cloudsim.FaultSpec{
		Match:  cloudsim.FaultMatch{Operation: "instances.create"},
		When:   cloudsim.FaultWhen{Max: 1},
		Effect: cloudsim.FaultEffect{Type: cloudsim.FaultLoseReply},
	}}); err != nil {
		t.Fatal(err)
	}
	f := fleet{cloud: cloud, count: 3, startTimeout: time.Hour}
	if err := f.reconcile(ctx); !errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("the first round: %v; want Unavailable", err)
	}
	if err := f.reconcile(ctx); err != nil {
		t.Errorf("the second round: %v", err)
	}
	if got := len(instances(t, cloud)); got != 3 {
		t.Errorf("%d instances; want 3", got)
	}
}

// TestFleetDeletesHungInstances proves that the fleet deletes an instance that does not start
// within an hour of the cloud's time. The test advances the clock and does not wait for this hour.
func TestFleetDeletesHungInstances(t *testing.T) {
	cloud := cloudtest.Start(t, cloudtest.WithFrozenClock(time.Time{}), cloudtest.WithProfile(engine.Realistic))
	ctx := t.Context()
	if _, err := cloud.CreateHold(ctx, cloudsim.CreateHold{Name: "stuck", HoldSpec: cloudsim.HoldSpec{
		Transition: cloudsim.Transition{Kind: cloudsim.KindInstance, Verb: cloudsim.Create},
	}}); err != nil {
		t.Fatal(err)
	}
	f := fleet{cloud: cloud, count: 1, startTimeout: time.Hour}
	for range 2 {
		if err := f.reconcile(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := cloud.AdvanceClock(ctx, cloudsim.AdvanceClock{Seconds: 3601}); err != nil {
			t.Fatal(err)
		}
	}
	if got := instances(t, cloud); len(got) != 0 {
		t.Errorf("instances: got %+v, want none", got)
	}
	if why, err := cloud.Why(ctx, "instance/web-0"); err != nil || !why.Gone {
		t.Errorf("history of instance/web-0: got %+v, error %v; want a deleted instance", why, err)
	}
}

// TestPageShowsTheseTests proves that all Go code in the page
// docs/howto/test-your-controller.md is identical to code in this file.
func TestPageShowsTheseTests(t *testing.T) {
	page, err := os.ReadFile("../../docs/howto/test-your-controller.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) == 0 {
		t.Error("the page shows no code")
	}
	for _, b := range blocks {
		b, _, _ = strings.Cut(b, "```")
		if !strings.Contains(string(code), b) {
			t.Errorf("the page shows what is not in example_test.go:\n%s", b)
		}
	}
}
