package real

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// Config is what a hypervisor of real machines needs.
type Config struct {
	// Cloud sees the instances of one project; each becomes a machine. It
	// needs to read instances, instance types, zones, events and, for a router,
	// routes.
	Cloud *client.Client
	// Zones are those whose instances become machines; none for all. Hypervisors
	// of other zones may be beside this one: what is left over of theirs is not
	// touched.
	Zones []string
	// Router is what is served in the VPC, if this process is its router, too; nil
	// if another is: see Route.
	Router *Services
	// Registry is the cloud's.
	Registry Registry
	// Dir is the hypervisor's own folder, absolute: machines, the network,
	// images.
	Dir string
	// Name tells this lab's cgroups from those of others on the host.
	Name    string
	Network Network
	// Programs are what machines run.
	Programs Programs
	// ClusterDNS is the address of the cluster's name server.
	ClusterDNS string
	// Identify writes into a folder who a machine is in the cluster: ca.crt,
	// kubelet.crt and kubelet.key for its server, kubelet.kubeconfig and
	// kube-proxy.kubeconfig.
	Identify func(dir, host string, address netip.Addr) error
	// NodeOf is the provider id of the cluster's Node of that name, or "".
	NodeOf func(ctx context.Context, name string) (providerID string, err error)
	// NotReady writes into the Node of a machine that was shut down that it is
	// not ready, as a kubelet does that systemd tells of a shutdown: machines
	// have no systemd.
	NotReady func(ctx context.Context, name, providerID string) error
	// Volumes is what lets pods have volumes; nil for none.
	Volumes *Volumes
	// NetworkProxy is what kube-apiserver reaches machines through; nil if it
	// goes there by itself, or through what the hypervisor does not know.
	NetworkProxy *NetworkProxy
	// Say tells people of what takes long.
	Say func(format string, args ...any)
}

// Registry is one that machines pull from, with passwords of the cloud.
type Registry struct {
	// Name is host:port, as image names have it.
	Name string
	// CA is a file of the host: the authority that machines trust for it.
	CA string
	// Kubelet are files for the kubelet and its image credential provider, by
	// name; machines have them in CredentialDir.
	Kubelet map[string][]byte
}

// Programs are files of the host.
type Programs struct {
	Machine string // folder of containerd, runc, the machine's first process, and cni/
	Images  string // folder of what the images are made of, and of archives of more
	// Archives is another folder of archives, whose images come before those of
	// the same name; "" for none.
	Archives string
	Kubelet  string
	Proxy    string
	Kubectl  string
	Plugin   string // the kubelet's image credential provider
	Allinone string // which is the CSI driver's node half and the network proxy's agent
}

// kube are upstream's programs on a machine, by name.
func (p Programs) kube() map[string]string {
	return map[string]string{"kubelet": p.Kubelet, "kube-proxy": p.Proxy, "kubectl": p.Kubectl}
}

// Required are all files that must be there, by what they are.
func (p Programs) Required() map[string]string {
	all := p.kube()
	all["image credential provider"], all["allinone"] = p.Plugin, p.Allinone
	for _, name := range []string{"machine", "containerd", "containerd-shim-runc-v2", "ctr", "runc"} {
		all[name] = filepath.Join(p.Machine, name)
	}
	for _, plugin := range []string{"bridge", "host-local", "loopback", "portmap"} {
		all["CNI plugin "+plugin] = filepath.Join(p.Machine, "cni", plugin)
	}
	for _, m := range builtImages(p.Images) {
		all["image "+m.ref] = m.program
	}
	return all
}

// Validate says everything that is wrong with c.
func (c Config) Validate() error {
	errs := []error{checkCloud(c.Cloud), checkDir(c.Dir), c.Network.Validate(), asRoot()}
	switch {
	case c.Router != nil && c.Router.Metadata == nil:
		errs = append(errs, errNoMetadata)
	case c.Router == nil && !c.Network.BridgeOnHost:
		errs = append(errs, errors.New("a router is required: that of another process is reached only with the bridge on the host"))
	}
	if c.Registry.Name == "" || c.Registry.CA == "" {
		errs = append(errs, errors.New("registry needs a name and a CA"))
	}
	if c.Name == "" {
		errs = append(errs, errors.New("name is required"))
	}
	if c.Identify == nil || c.NodeOf == nil || c.NotReady == nil || c.Say == nil {
		errs = append(errs, errors.New("identify, node-of, not-ready and say are required"))
	}
	return errors.Join(errs...)
}

// What both a hypervisor and a router need.
var errNoMetadata = errors.New("metadata is required")

func checkCloud(c *client.Client) error {
	if c == nil || c.URL == "" || c.HTTP == nil {
		return errors.New("cloud needs a URL and an HTTP client")
	}
	return nil
}

func checkDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("dir must be an absolute path, got %q", dir)
	}
	return nil
}

func asRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("real machines need root")
	}
	return nil
}
