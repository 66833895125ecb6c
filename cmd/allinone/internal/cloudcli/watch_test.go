package cloudcli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestWatchByNetwork proves that a watch with a filter by network prints the instances in this
// network. The watch also prints the instances for which this network is an additional network.
func TestWatchByNetwork(t *testing.T) {
	w := listWatch[cloudsim.Instance, cloudsim.InstanceID]{kind: instances, where: cloudsim.ListOptions{Network: "net-000002"}}
	for object, want := range map[string]bool{
		`{"network":"net-000001"}`: false,
		`{"network":"net-000002"}`: true,
		`{"network":"net-000001","networkInterfaces":[{"network":"net-000003"},{"network":"net-000002"}]}`: true,
		`{"network":"net-000001","networkInterfaces":[{"network":"net-000003"}]}`:                          false,
	} {
		if got := w.isSelected(cloudsim.Event{Object: []byte(object)}, cloudsim.Meta{}); got != want {
			t.Errorf("%s: got %v, want %v", object, got, want)
		}
	}
}

// TestWatchRepeatsNothingThatTheListShowed proves that a watch does not print a change again if the
// list before the watch already contained the change. A watch starts at the revision of the list's
// first page. The later pages can contain newer changes, and the watch gets events for these
// changes.
func TestWatchRepeatsNothingThatTheListShowed(t *testing.T) {
	cl, ctx := cloudtest.Start(t), t.Context()
	since, err := cl.ListRegions(ctx, cloudsim.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := cl.CreateAddress(ctx, cloudsim.CreateAddress{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	w := listWatch[cloudsim.Address, cloudsim.AddressID]{
		kind: addresses, printed: map[string]cloudsim.Address{},
		print: func(news []change[cloudsim.Address]) error {
			for _, c := range news {
				got = append(got, string(c.event.Type)+" "+c.thing.Name)
			}
			return nil
		},
	}
	if _, err := w.printDifferences(ctx, cl); err != nil {
		t.Fatal(err)
	}
	a, err := addresses.findResource(ctx, cl, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.DeleteAddress(ctx, a.ID); err != nil {
		t.Fatal(err)
	}
	events, err := cl.AllEvents(ctx, cloudsim.WatchOptions{Since: since.Revision, Kinds: []cloudsim.ResourceKind{cloudsim.KindAddress}})
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range events {
		if err := w.handle(ev); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"put a", "put b", "delete a"}, got); d != "" {
		t.Error(d)
	}
}
