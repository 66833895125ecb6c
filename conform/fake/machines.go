package fake

import (
	"context"
	"maps"
	"slices"

	"github.com/cloudsim-dev/allinone/conform"
)

// ListMachines implements conform.Machines.
func (c *Cloud) ListMachines(context.Context) ([]conform.Machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.machines)), nil
}
