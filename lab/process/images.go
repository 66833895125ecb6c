package process

import (
	"github.com/cloudsim-dev/allinone/lab/real"
)

// ImageReport is an image and the nodes that have it.
type ImageReport = real.OnMachines

// Images returns the images on the machines of the lab. If nodes is not empty, it limits the result
// to the machines of these nodes.
func (d Dir) Images(nodes []string) real.Images {
	return real.Images{Dir: d.machines(), Name: d.machineName(), Nodes: nodes}
}
