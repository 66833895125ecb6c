package process

import (
	"github.com/cloudsim-dev/allinone/lab/real"
)

// ImageReport is an image and the nodes that have it.
type ImageReport = real.OnMachines

// Images returns the images on the machines of the lab. The argument nodes limits the
// machines; empty means all.
func (d Dir) Images(nodes []string) real.Images {
	return real.Images{Dir: d.machines(), Name: d.machineName(), Nodes: nodes}
}
