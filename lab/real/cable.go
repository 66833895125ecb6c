package real

import (
	"context"
	"sync"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// The type cables holds the zone of each machine and the dark (unreachable) zones. The veth pair of
// a machine must be down while the machine's zone is dark.
type cables struct {
	news notification

	mu    sync.Mutex
	zones map[cloudsim.InstanceID]string
	dark  map[string]bool
}

func newCables() *cables {
	return &cables{news: newNotification(), zones: map[cloudsim.InstanceID]string{}, dark: map[string]bool{}}
}

func (c *cables) change(fn func()) {
	c.mu.Lock()
	fn()
	c.mu.Unlock()
	c.news.notify()
}

// locate stores the zone of an instance.
func (c *cables) locate(i cloudsim.Instance) { c.change(func() { c.zones[i.ID] = i.Zone }) }

// darken stores whether a zone is dark, which means unreachable.
func (c *cables) darken(z cloudsim.Zone) { c.change(func() { c.dark[z.Name] = z.Dark() }) }

// cut returns true for each instance in a dark zone, and false for each other instance.
func (c *cables) cut() map[cloudsim.InstanceID]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[cloudsim.InstanceID]bool{}
	for id, zone := range c.zones {
		all[id] = c.dark[zone]
	}
	return all
}

// keepCables sets the veth pairs of machines in dark zones down, and the veth pairs of other
// machines up, until ctx ends.
func (h *hypervisor) keepCables(ctx context.Context) {
	h.cables.news.each(ctx, func() error { return h.bridge.setCables(h.cables.cut()) }, func(err error) {
		h.log.Warn("links of dark zones not updated; retrying", "err", err)
	})
}
