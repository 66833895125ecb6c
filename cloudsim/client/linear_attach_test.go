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

// plug is a call about who has a disk, and answered what it says.
type plug struct {
	disk     cloudsim.DiskID
	verb     string // attach, detach, read
	instance cloudsim.InstanceID
	many     bool // the disk is for many instances
}

// plugged is the answer: who has the disk, sorted, with a space after each.
type plugged struct {
	err cloudsim.Kind
	who string
}

// Many callers attach the same few disks to the same few instances, and detach
// and read them, and some answers are lost. There is an order of all calls in
// which each disk is a set of instances, of one at most unless it is for many.
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
		h.Transport = loses{h.Transport, rng}
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
		kinds[op.Input.(plug).verb+" "+op.Output.(plugged).err.Error()]++
	}
	t.Logf("%v", kinds)
	if result := porcupine.CheckOperationsTimeout(plugModel(), history, time.Minute); result != porcupine.Ok {
		t.Fatalf("%d calls are not linearizable: %v", len(history), result)
	}
	for i, op := range history { // the checker is no rubber stamp
		if out := op.Output.(plugged); op.Input.(plug).verb == "read" && out.err == 0 {
			out.who = "i-999999 "
			history[i].Output = out
			break
		}
	}
	if porcupine.CheckOperationsTimeout(plugModel(), history, time.Minute) != porcupine.Illegal {
		t.Error("a wrong answer is not found")
	}
}

// madeToPlug makes two disks for one instance at a time, one for many, and
// three instances.
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

func doPlug(t *testing.T, c *client.Client, in plug) plugged {
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
			t.Errorf("%+v: %v", in, err)
		}
		return plugged{err: cloudsim.KindOf(err)}
	}
	var who []string
	for _, a := range d.Attachments {
		who = append(who, string(a.Instance)+" ")
	}
	slices.Sort(who)
	return plugged{who: strings.Join(who, "")}
}

// plugModel holds every disk for itself; its state is who has it.
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
		Step: func(s, in, out any) []any { return plugStep(s.(string), in.(plug), out.(plugged)) },
	}
	return m.ToModel()
}

// plugStep returns who can have a disk after a call with that answer.
func plugStep(who string, in plug, out plugged) []any {
	me := string(in.instance) + " "
	has, next := strings.Contains(who, me), who
	refused := in.verb == "attach" && !has && who != "" && !in.many
	switch {
	case refused:
	case in.verb == "attach" && !has:
		all := append(strings.SplitAfter(who, " "), me)
		slices.Sort(all)
		next = strings.Join(all, "")
	case in.verb == "detach":
		next = strings.ReplaceAll(who, me, "")
	}
	switch {
	case out.err == cloudsim.Unavailable: // carried out, or not
		return slices.Compact([]any{who, next})
	case refused && out.err == cloudsim.Conflict, !refused && out.err == 0 && out.who == next:
		return []any{next}
	}
	return nil
}
