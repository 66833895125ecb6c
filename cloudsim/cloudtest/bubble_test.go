package cloudtest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestInBubble proves that an hour of the cloud's time takes no real time in a bubble of
// testing/synctest. During this hour, a client watches the cloud's events.
func TestInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := engine.Instant
		slow.Provision = time.Hour
		cloud := cloudtest.Start(t, cloudtest.InBubble(), cloudtest.WithProfile(slow))
		i, err := cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "one", Zone: "sim-1a", Type: "small"})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for e, err := range cloud.Watch(t.Context(), cloudsim.WatchOptions{Since: i.Revision, Kinds: []cloudsim.ResourceKind{cloudsim.KindInstance}}) {
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); e.Type != cloudsim.EventPut || took != time.Hour {
				t.Errorf("got event %+v after %s, want the instance to run after an hour", e, took)
			}
			break
		}
		if _, err := cloud.GetInstance(t.Context(), "i-999999"); !errors.Is(err, cloudsim.NotFound) {
			t.Error(err)
		}
	})
}
