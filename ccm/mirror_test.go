package ccm_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/record"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// While the mirror (the CCM's copy of the cloud) is up to date, the methods of
// InstancesV2 make no calls to the cloud.
func TestMirrorAnswersForTheCloud(t *testing.T) {
	r := newRig(t)
	before := initializedNode(r.createMachine(t, "node-1"))
	r.startMirror(t)
	after := initializedNode(r.createMachine(t, "node-2")) // the mirror gets this instance from an event
	eventually.True(t, "the CCM makes no call", func() bool {
		r.wire.spoil(nil)
		for _, n := range []string{before.Name, after.Name} {
			// This Node has no provider id, so the provider finds the instance by name.
			if _, err := r.instances().InstanceMetadata(t.Context(), newNode(n)); err != nil {
				t.Fatal(err)
			}
		}
		if exists, err := r.instances().InstanceExists(t.Context(), after); err != nil || !exists {
			t.Fatalf("InstanceExists = %v, %v", exists, err)
		}
		return len(r.wire.takeCalls(false)) == 0
	})
}

// If the mirror does not contain an instance, the instance may still exist. So the CCM asks the
// cloud before it reports that the instance is deleted.
func TestMirrorNeverReportsAbsence(t *testing.T) {
	r := newRig(t)
	gone := r.createMachine(t, "node-1")
	r.startMirror(t)
	r.letFind(t, gone)
	if _, err := r.cloud.DeleteInstance(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	r.wire.spoil(nil)
	eventually.True(t, "the instance is gone", func() bool {
		exists, err := r.instances().InstanceExists(t.Context(), initializedNode(gone))
		return err == nil && !exists
	})
	calls := strings.Join(r.wire.takeCalls(false), "\n")
	for _, want := range []string{"GET /v1/instances/" + string(gone.ID), "GET /v1/instances"} {
		if !strings.Contains(calls+"\n", want+"\n") {
			t.Errorf("the CCM reported an absent instance without the call %s:\n%s", want, calls)
		}
	}
	r.wire.spoil(func(int, *http.Request) fault { return fault{cut: true} })
	if exists, err := r.instances().InstanceExists(t.Context(), initializedNode(gone)); err == nil || exists {
		t.Errorf("InstanceExists during an outage of the cloud: got %v, %v", exists, err)
	}
}

// The CCM updates the mirror with a watch of the cloud. Until this watch works, the CCM does not
// use the mirror. Afterward the CCM makes no calls for an instance that the mirror contains.
func TestMirrorIsUsedAfterOutage(t *testing.T) {
	r := newRig(t)
	i := r.createMachine(t, "node-1")
	r.wire.spoil(func(int, *http.Request) fault { return fault{cut: true} })
	stop := make(chan struct{})
	r.provider.Initialize(nil, stop)
	t.Cleanup(func() { close(stop); r.provider.Wait() })
	eventually.True(t, "the CCM makes 3 calls", func() bool { return len(r.wire.takeCalls(false)) >= 3 })
	if r.provider.Mirrored() {
		t.Error("the mirror is in use although the cloud never answered")
	}
	if err := r.provider.Health(); err == nil || !strings.Contains(err.Error(), errCut.Error()) {
		t.Errorf("Health = %v, want the reason of the failed watch", err)
	}
	r.wire.spoil(nil)
	eventually.True(t, "the mirror is in use", r.provider.Mirrored)
	if err := r.provider.Health(); err != nil {
		t.Errorf("Health = %v", err)
	}
	r.wire.spoil(nil)
	if exists, err := r.instances().InstanceExists(t.Context(), initializedNode(i)); err != nil || !exists || len(r.wire.takeCalls(false)) > 0 {
		t.Errorf("InstanceExists = %v, %v with the calls %v; want true without calls", exists, err, r.wire.takeCalls(false))
	}
}

// Every cloud numbers its instances from 1, so instances of two clouds can have
// the same id. The CCM therefore compares the whole provider id. It returns an
// error for a Node of another cloud.
func TestMirrorKnowsForeignNodes(t *testing.T) {
	r := newRig(t)
	n := initializedNode(r.createMachine(t, "node-1"))
	r.startMirror(t)
	n.Spec.ProviderID = strings.Replace(n.Spec.ProviderID, "sim-1a", "sim-9z", 1)
	if exists, err := r.instances().InstanceExists(t.Context(), n); err == nil {
		t.Errorf("InstanceExists for a Node of another cloud = %v, %v; want an error", exists, err)
	}
}

// If the last message of the watch is too old, the CCM does not use the mirror,
// even if the watch is still open.
func TestMirrorOfASilentCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := ccm.New(slog.New(slog.DiscardHandler), &client.Client{}, ccm.NewSettings(ccm.Config{}), record.NewFakeRecorder(1))
		p.Hear()
		time.Sleep(39 * time.Second)
		if !p.Mirrored() || p.Health() != nil {
			t.Errorf("the mirror is not in use after 39 s without a message (heartbeat 15 s): %v", p.Health())
		}
		time.Sleep(2 * time.Second)
		if p.Mirrored() || p.Health() == nil {
			t.Error("the mirror is in use after 41 s without a message")
		}
		p.Hear()
		if !p.Mirrored() {
			t.Error("the mirror is not in use after the next message")
		}
	})
}

func TestMirrorIsUnusedAfterWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cloudtest.InBubble())
		i := r.createMachine(t, "node-1")
		r.startMirror(t)
		r.wire.spoil(func(_ int, req *http.Request) fault { return fault{cut: strings.HasSuffix(req.URL.Path, "/watch")} })
		r.wire.hangUp()
		time.Sleep(time.Second)
		if r.provider.Mirrored() {
			t.Error("the mirror is in use after the watch ended")
		}
		if _, known := r.provider.MirroredInstance(i.ID); known {
			t.Error("the mirror answered for an instance after the watch ended")
		}
	})
}
