package real

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// A hypervisor makes machines of its own zones only, and switches one off whose
// zone it serves no more. The disk stays for when it does again.
func TestZones(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs root")
	}
	onHostOfItsOwn(t)
	bridge, err := hostBridge(Network{Link: "vpc"})
	if err != nil {
		t.Fatal(err)
	}
	defer bridge.link.Close()
	h := &hypervisor{
		log: slog.New(slog.DiscardHandler), cfg: Config{Dir: t.TempDir(), Zones: []string{"here"}},
		bridge: bridge, cables: newCables(), keepers: map[cloudsim.InstanceID]*keeper{},
	}
	h.tell(t.Context(), cloudsim.Instance{ID: "i-000001", Zone: "there", State: cloudsim.InstanceRunning}, false)
	if len(h.keepers) > 0 || len(h.cables.cut()) > 0 {
		t.Errorf("it keeps a machine of another zone")
	}
	for zone, want := range map[string]bool{"here": true, "there": false, "": false} {
		if h.serves(zone) != want {
			t.Errorf("it serves %q: %v", zone, !want)
		}
	}
	m := h.newMachine("i-000002")
	disk := m.folder.path("disk")
	if err := os.MkdirAll(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if m.init, err = watchProcess(bareMachine(t).Process.Pid); err != nil {
		t.Fatal(err)
	}
	k := &keeper{news: newBell()}
	k.tell(cloudsim.Instance{ID: m.id, Zone: "there", State: cloudsim.InstanceRunning}, false)
	if done, err := h.settle(t.Context(), m, k); done || err != nil || m.on() {
		t.Errorf("a machine of a zone that is served no more: scrapped %v, on %v, %v", done, m.on(), err)
	}
	if _, err := os.Stat(disk); err != nil {
		t.Errorf("its disk: %v", err)
	}
	k.tell(cloudsim.Instance{ID: m.id, Zone: "there"}, true)
	if done, err := h.settle(t.Context(), m, k); !done || err != nil {
		t.Errorf("one whose instance is gone: scrapped %v, %v", done, err)
	}
	if _, err := os.Stat(filepath.Dir(disk)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its folder: %v", err)
	}
}
