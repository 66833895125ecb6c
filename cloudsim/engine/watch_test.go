package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// A page of events is Gone like a watch to who was there before a load or a
// reset; who begins at 0 reads what was loaded, and goes on from there.
func TestEventsEndWithALoad(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), instant, withStates(t.TempDir()))
	defer stop()
	mustCreate(t, e, ctx, "a")
	saved := must(e.SaveState(ctx, cloudsim.SaveState{Name: "s"}))(t).Revision
	mustCreate(t, e, ctx, "b")
	last := must(e.ListInstances(ctx, cloudsim.ListOptions{}))(t).Revision
	for what, replace := range map[string]func() error{
		"a load":  func() error { return e.LoadState(ctx, "s", cloudsim.LoadState{}) },
		"a reset": func() error { return e.ResetState(ctx) },
	} {
		if err := replace(); err != nil {
			t.Fatal(err)
		}
		now := must(e.ListInstances(ctx, cloudsim.ListOptions{}))(t).Revision
		for since, want := range map[uint64]error{1: cloudsim.Gone, saved: cloudsim.Gone, last: cloudsim.Gone, 0: nil, now: nil} {
			if _, err := e.ListEvents(ctx, cloudsim.WatchOptions{Since: since}); !errors.Is(err, want) {
				t.Errorf("after %s, since %d: %v; want %v", what, since, err, want)
			}
		}
		l := must(e.ListEvents(ctx, cloudsim.WatchOptions{}))(t)
		if _, err := e.ListEvents(ctx, cloudsim.WatchOptions{Since: l.Revision}); err != nil || l.Revision != now {
			t.Errorf("after %s, what there is was read up to %d of %d, and then: %v", what, l.Revision, now, err)
		}
	}
}

// A watch that begins at 0 reads what was loaded, however many pages it is, and
// is told of what came after.
func TestWatchReadsWhatWasLoaded(t *testing.T) {
	ctx, leave := context.WithTimeout(engine.AsCloud(t.Context()), time.Minute)
	defer leave()
	e, stop := boot(t, file(t), instant, withStates(t.TempDir()))
	defer stop()
	for rev := uint64(0); rev <= cloudsim.DefaultPageSize; {
		rev = must(e.CreateAddress(ctx, cloudsim.CreateAddress{Name: fmt.Sprintf("a-%d", rev)}))(t).Revision
	}
	saved := must(e.SaveState(ctx, cloudsim.SaveState{Name: "s"}))(t).Revision
	if err := e.LoadState(ctx, "s", cloudsim.LoadState{}); err != nil {
		t.Fatal(err)
	}
	a := mustCreate(t, e, ctx, "news")
	read := uint64(0)
	for ev, err := range e.Watch(ctx, cloudsim.WatchOptions{}) {
		if err != nil {
			t.Fatalf("after %d events: %v", read, err)
		}
		if ev.Rev <= saved {
			read++
		}
		if ev.ID == string(a.ID) {
			break
		}
	}
	if read != saved {
		t.Errorf("it read %d of %d events", read, saved)
	}
}
