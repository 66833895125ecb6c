package real

import (
	"context"
	"sync"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// cableSet holds the zone of each machine and the dark (unreachable) zones. The veth pair of
// a machine must be down while the machine's zone is dark.
type cableSet struct {
	news notification

	mu    sync.Mutex
	zones map[cloudsim.InstanceID]string
	dark  map[string]bool
}

func newCables() *cableSet {
	return &cableSet{news: newNotification(), zones: map[cloudsim.InstanceID]string{}, dark: map[string]bool{}}
}

func (c *cableSet) change(fn func()) {
	c.mu.Lock()
	fn()
	c.mu.Unlock()
	c.news.notify()
}

func (c *cableSet) setZone(i cloudsim.Instance) { c.change(func() { c.zones[i.ID] = i.Zone }) }

// darken stores whether a zone is dark, which means unreachable.
func (c *cableSet) darken(z cloudsim.Zone) { c.change(func() { c.dark[z.Name] = z.Dark() }) }

// cut returns a map with the value true for each instance in a dark zone, and false for all other
// instances.
func (c *cableSet) cut() map[cloudsim.InstanceID]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[cloudsim.InstanceID]bool{}
	for id, zone := range c.zones {
		all[id] = c.dark[zone]
	}
	return all
}

// keepCables sets veth pairs down for machines in dark zones, and up for all other machines, until
// ctx ends. A zone is dark while its network fails.
func (h *hypervisor) keepCables(ctx context.Context) {
	h.cables.news.forEach(ctx, func() error { return h.bridge.setCables(h.cables.cut()) }, func(err error) {
		h.log.Warn("network links of zones with an outage not updated; retrying", "err", err)
	})
}
