package process

import (
	"path/filepath"

	"github.com/cloudsim-dev/allinone/lab/real"
)

// ImageReport is an image and the nodes that have it.
type ImageReport = real.OnMachines

// Images returns the images on the machines of the lab. The argument self is the path of
// allinone, and nodes limits the machines; empty means all.
func (d Dir) Images(self string, nodes []string) real.Images {
	return real.Images{Dir: d.machines(), Name: d.machineName(), Machine: filepath.Join(filepath.Dir(self), "machine"), Nodes: nodes}
}
