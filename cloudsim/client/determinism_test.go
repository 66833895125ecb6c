package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// randomCall is one call of a random history. The field Call selects the operation, and the
// field Which selects the object.
type randomCall struct{ Call, Which int }

// take makes the call. The call may fail, but then it must fail in the same way in every run.
func (s randomCall) take(ctx context.Context, c *client.Client) error {
	name := fmt.Sprintf("n%d", s.Which)
	i := cloudsim.InstanceID(fmt.Sprintf("i-%06x", s.Which))
	var err error
	switch s.Call {
	case 0, 1:
		_, err = c.CreateInstance(ctx, cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small", Labels: map[string]string{"a": "1", "b": "2", "c": "3"}})
	case 2:
		_, err = c.StopInstance(ctx, i)
	case 3:
		_, err = c.StartInstance(ctx, i)
	case 4:
		_, err = c.DeleteInstance(ctx, i)
	case 5:
		_, err = c.CreateLoadBalancer(ctx, balancer(name, i))
	case 6:
		_, err = c.DeleteLoadBalancer(ctx, cloudsim.LoadBalancerID(fmt.Sprintf("lb-%06x", s.Which)))
	case 7:
		_, err = c.CreateAddress(ctx, cloudsim.CreateAddress{Name: name})
	case 8:
		_, err = c.CreateDisk(ctx, cloudsim.CreateDisk{Name: name, Zone: "sim-1a", Type: "balanced", SizeGiB: 10})
	case 9:
		_, err = c.AttachDisk(ctx, cloudsim.DiskID(fmt.Sprintf("disk-%06x", s.Which)), cloudsim.AttachDisk{Instance: i})
	case 10:
		_, err = c.AdvanceClock(ctx, cloudsim.AdvanceClock{Seconds: 0.2})
	case 11:
		_, err = c.CreateFault(ctx, cloudsim.CreateFault{Name: name, FaultSpec: cloudsim.FaultSpec{
			Match: cloudsim.FaultMatch{Operation: "instances.*"}, When: cloudsim.FaultWhen{Probability: new(0.3), Max: 5},
			Effect: cloudsim.FaultEffect{Type: cloudsim.FaultErrorAfterCommit},
		}})
	case 12:
		_, err = c.CreateHold(ctx, cloudsim.CreateHold{Name: name, HoldSpec: cloudsim.HoldSpec{Transition: cloudsim.Transition{Kind: cloudsim.KindInstance, Verb: cloudsim.Any}}})
	case 13:
		err = c.DeleteHold(ctx, cloudsim.HoldID(fmt.Sprintf("hold-%06x", s.Which)))
	case 14:
		_, err = c.CancelOperation(ctx, cloudsim.OperationID(fmt.Sprintf("op-%06x", s.Which)))
	}
	return err
}

// history makes the given calls on a new cloud. It returns the errors of the calls, and the journal
// of the cloud.
func history(t *testing.T, steps []randomCall, seed uint64) []byte {
	t.Helper()
	c, ctx := cloudtest.Start(t, cloudtest.WithFrozenClock(time.Time{}), cloudtest.WithSeed(seed), cloudtest.WithProfile(engine.Realistic)), t.Context()
	var out bytes.Buffer
	for n, s := range steps {
		fmt.Fprintln(&out, n, s, s.take(ctx, c))
	}
	journal := json.NewEncoder(&out)
	for since := uint64(0); ; {
		l := must(c.ListEvents(ctx, cloudsim.WatchOptions{Since: since}))(t)
		for _, ev := range l.Items {
			ev.MachineTime = time.Time{}
			if err := journal.Encode(ev); err != nil {
				t.Fatal(err)
			}
		}
		if l.Revision == since {
			return out.Bytes()
		}
		since = l.Revision
	}
}

// TestSameCallsSameJournal proves that two clouds with the same seed answer the same calls with the
// same ids, addresses, request ids and faults. Their journals are equal byte for byte, except for
// the field machineTime.
func TestSameCallsSameJournal(t *testing.T) {
	calls := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) randomCall {
		return randomCall{rapid.IntRange(0, 14).Draw(t, "call"), rapid.IntRange(1, 8).Draw(t, "which")}
	}), 300, 300)
	for n := range 3 {
		steps := calls.Example(n)
		first, second := history(t, steps, 7), history(t, steps, 7)
		if !bytes.Equal(first, second) {
			a, b := bytes.Split(first, []byte("\n")), bytes.Split(second, []byte("\n"))
			for i := range a {
				if i >= len(b) || !bytes.Equal(a[i], b[i]) {
					t.Fatalf("the histories differ first in line %d:\n%s\n%s", i, a[i], b[min(i, len(b)-1)])
				}
			}
		}
		if other := history(t, steps, 8); bytes.Equal(first, other) {
			t.Error("histories of two seeds are equal")
		}
	}
}
