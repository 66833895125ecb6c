package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/real"
)

// hasVolumes reports whether this lab's pods can have volumes. Volumes need real machines, because
// a hollow node mounts no volumes. They also need the sidecars, which `make csi` builds.
func (c Config) hasVolumes() bool {
	return c.Volumes && c.Nodes == lab.Real && isExecutable(c.sidecars()) == nil
}

func (c Config) sidecars() string { return filepath.Join(c.CSIDir, "csi-sidecars") }

// csiSockets returns the folder with the sockets through which the sidecars call the driver's
// controller. The driver can have several names (see Config.ServeAs), and has one socket for each
// name.
func (d Dir) csiSockets() string {
	const longest = "/cinder.csi.openstack.org.sock"
	return strings.TrimSuffix(d.socket("csi"+longest), longest)
}

func (d Dir) csiSocket() string { return filepath.Join(d.csiSockets(), "csi.sock") }

// csiController returns the component that runs the controller part of the CSI driver. This
// part calls the cloud. The node part of the driver runs on each machine.
func (p *plan) csiController() component {
	health := p.ports.url("http", "csi")
	return component{
		name: "csi", address: health, program: program{p.Self, "allinone"},
		args: []string{
			"csi", "--mode=controller", "--endpoint=unix://" + p.dir.csiSocket(), "--health-bind-address=" + p.ports.addr("csi"),
			"--cloud-url=" + p.ports.url("http", "cloudsim"), "--cloud-token-file=" + p.dir.tokenFile("csi"),
			"--serve-as=" + strings.Join(p.ServeAs, ","),
		},
		before:     func(context.Context) error { return os.MkdirAll(p.dir.csiSockets(), 0o700) },
		startAfter: []string{"cloudsim"},
		ready:      lab.HTTPProbe(health+"/readyz", nil),
	}
}

// csiSidecars returns the component that runs Kubernetes' CSI sidecars. For example, the sidecars
// call the driver to create a disk for a PersistentVolumeClaim.
func (p *plan) csiSidecars() component {
	url := p.ports.url("http", "csi-sidecars")
	sockets := []string{p.dir.csiSocket()}
	for _, name := range p.ServeAs {
		sockets = append(sockets, filepath.Join(p.dir.csiSockets(), name+".sock"))
	}
	return component{
		name: "csi-sidecars", address: url, program: program{p.sidecars(), "csi-sidecars"},
		args: []string{
			"--csi-address=" + strings.Join(sockets, ","), "--kubeconfig=" + p.dir.configFile("csi-sidecars.kubeconfig"),
			"--http-endpoint=" + p.ports.addr("csi-sidecars"), "--capacity-namespace=kube-system",
		},
		startAfter: []string{"csi", "kube-apiserver"},
		ready:      lab.HTTPProbe(url+"/readyz", nil),
	}
}

// realVolumes returns the settings of the driver's node part on a machine, or nil if the lab has no
// volumes.
func (p *plan) realVolumes() *real.Volumes {
	if !p.hasVolumes() {
		return nil
	}
	return &real.Volumes{
		TokenFile: p.dir.tokenFile("csi-node"), Name: lab.VolumeDriver, ServeAs: p.ServeAs,
		URL: fmt.Sprintf("http://%s:%d", p.vpc().Host, p.ports["cloudsim"]),
	}
}
