package real

import (
	"context"
	"sync"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// cables are what the hypervisor knows of its machines' cables: which zones they
// are in, and which zones are dark.
type cables struct {
	news bell

	mu    sync.Mutex
	zones map[cloudsim.InstanceID]string
	dark  map[string]bool
}

func newCables() *cables {
	return &cables{news: newBell(), zones: map[cloudsim.InstanceID]string{}, dark: map[string]bool{}}
}

func (c *cables) change(fn func()) {
	c.mu.Lock()
	fn()
	c.mu.Unlock()
	c.news.ring()
}

// locate takes note of the zone of an instance.
func (c *cables) locate(i cloudsim.Instance) { c.change(func() { c.zones[i.ID] = i.Zone }) }

// darken takes note of whether anything reaches what runs in a zone.
func (c *cables) darken(z cloudsim.Zone) { c.change(func() { c.dark[z.Name] = z.Dark() }) }

// cut are the instances whose cables are: those in a dark zone are, and the
// others are not.
func (c *cables) cut() map[cloudsim.InstanceID]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[cloudsim.InstanceID]bool{}
	for id, zone := range c.zones {
		all[id] = c.dark[zone]
	}
	return all
}

// keepCables has the cables to dark zones cut, and no other, until ctx ends.
func (h *hypervisor) keepCables(ctx context.Context) {
	h.cables.news.each(ctx, func() error { return h.bridge.setCables(h.cables.cut()) }, func(err error) {
		h.log.Warn("the cables to dark zones are not as the cloud says; trying again", "err", err)
	})
}
