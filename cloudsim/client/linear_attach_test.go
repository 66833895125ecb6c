package client_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// plug is a call that attaches, detaches or reads a disk.
type plug struct {
	disk     cloudsim.DiskID
	verb     string // attach, detach, read
	instance cloudsim.InstanceID
	many     bool // the disk allows attachments to several instances
}

// attachAnswer is an answer: an error, or the sorted list of the instances to which the disk is
// attached. The field instances contains this list as one string, with a space after each instance.
type attachAnswer struct {
	err       cloudsim.Kind
	instances string
}

// TestAttachmentsAreLinearizable proves that attachments are linearizable. Many callers attach,
// detach and read the same few disks, and some answers are lost. The checker porcupine must find
// one order of the calls that explains all answers. In this order, a disk that allows one
// attachment is never attached to two instances at the same time.
func TestAttachmentsAreLinearizable(t *testing.T) {
	calls := 2000
	if testing.Short() {
		calls = 400
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := cloudtest.Start(t, cloudtest.WithProfile(engine.Instant))
	disks, instances := madeToPlug(t, c)
	var history []porcupine.Operation
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now()
	for n := range 8 {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		own, h := *c, *c.HTTP
		h.Transport = losingTransport{h.Transport, rng}
		own.HTTP = &h
		wg.Go(func() {
			for range calls / 8 {
				d := disks[rng.IntN(len(disks))]
				in := plug{d.ID, []string{"attach", "attach", "detach", "read"}[rng.IntN(4)], instances[rng.IntN(len(instances))], d.MultiAttach}
				op := porcupine.Operation{ClientId: n, Input: in, Call: int64(time.Since(begin))}
				out := doPlug(t, &own, in)
				op.Output, op.Return = out, int64(time.Since(begin))
				if out.err == cloudsim.Unavailable {
					op.Return = math.MaxInt64
				}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	kinds := map[string]int{}
	for _, op := range history {
		kinds[op.Input.(plug).verb+" "+op.Output.(attachAnswer).err.Error()]++
	}
	t.Logf("%v", kinds)
	if result := porcupine.CheckOperationsTimeout(plugModel(), history, time.Minute); result != porcupine.Ok {
		t.Fatalf("%d calls are not linearizable: %v", len(history), result)
	}
	for i, op := range history { // the checker must find a wrong answer
		if out := op.Output.(attachAnswer); op.Input.(plug).verb == "read" && out.err == 0 {
			out.instances = "i-999999 "
			history[i].Output = out
			break
		}
	}
	if porcupine.CheckOperationsTimeout(plugModel(), history, time.Minute) != porcupine.Illegal {
		t.Error("the checker accepts a wrong answer")
	}
}

// madeToPlug creates three instances, two disks that allow one attachment, and one disk that allows
// several attachments.
func madeToPlug(t *testing.T, c *client.Client) (disks []cloudsim.Disk, instances []cloudsim.InstanceID) {
	t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		d, err1 := c.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: name, Zone: "sim-1a", Type: "fast", SizeGiB: 10, MultiAttach: name == "c"})
		i, err2 := c.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small"})
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		disks, instances = append(disks, d), append(instances, i.ID)
	}
	return disks, instances
}

func doPlug(t *testing.T, c *client.Client, in plug) attachAnswer {
	ctx := context.Background()
	var d cloudsim.Disk
	var err error
	switch in.verb {
	case "attach":
		d, err = c.AttachDisk(ctx, in.disk, cloudsim.AttachDisk{Instance: in.instance})
	case "detach":
		d, err = c.DetachDisk(ctx, in.disk, cloudsim.DetachDisk{Instance: in.instance})
	default:
		d, err = c.GetDisk(ctx, in.disk)
	}
	if err != nil {
		if kind := cloudsim.KindOf(err); kind != cloudsim.Unavailable && kind != cloudsim.Conflict {
			t.Errorf("%+v: got error %v, want Unavailable or Conflict", in, err)
		}
		return attachAnswer{err: cloudsim.KindOf(err)}
	}
	var instances []string
	for _, a := range d.Attachments {
		instances = append(instances, string(a.Instance)+" ")
	}
	slices.Sort(instances)
	return attachAnswer{instances: strings.Join(instances, "")}
}

// plugModel returns a model of the disks for the checker porcupine. The checker checks the calls of
// each disk separately. The state of a disk is the list of the instances to which the disk is
// attached.
func plugModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{""} },
		Partition: func(history []porcupine.Operation) (all [][]porcupine.Operation) {
			by := map[cloudsim.DiskID][]porcupine.Operation{}
			for _, op := range history {
				id := op.Input.(plug).disk
				by[id] = append(by[id], op)
			}
			for _, ops := range by {
				all = append(all, ops)
			}
			return all
		},
		Step: func(s, in, out any) []any { return plugStep(s.(string), in.(plug), out.(attachAnswer)) },
	}
	return m.ToModel()
}

// plugStep returns the possible states of a disk after a call with the given answer. It returns nil
// if the answer is impossible.
func plugStep(instances string, in plug, out attachAnswer) []any {
	me := string(in.instance) + " "
	has, next := strings.Contains(instances, me), instances
	refused := in.verb == "attach" && !has && instances != "" && !in.many
	switch {
	case refused:
	case in.verb == "attach" && !has:
		all := append(strings.SplitAfter(instances, " "), me)
		slices.Sort(all)
		next = strings.Join(all, "")
	case in.verb == "detach":
		next = strings.ReplaceAll(instances, me, "")
	}
	switch {
	case out.err == cloudsim.Unavailable: // unknown whether the cloud has done the work
		return slices.Compact([]any{instances, next})
	case refused && out.err == cloudsim.Conflict, !refused && out.err == 0 && out.instances == next:
		return []any{next}
	}
	return nil
}
