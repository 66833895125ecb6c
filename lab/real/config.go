package real

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
)

// Config is what a hypervisor of real machines needs.
type Config struct {
	// Cloud sees the instances of one project; each becomes a machine. It
	// needs to read instances, instance types, routes and events.
	Cloud *client.Client
	// Metadata answers for the metadata service, as whoever may speak for any
	// instance.
	Metadata metadata.Cloud
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
	// Endpoints are ports of the host's address in the VPC, by the address
	// that each leads to: what runs on the host and machines must reach.
	Endpoints map[int]string
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
	var errs []error
	if c.Cloud == nil || c.Cloud.URL == "" || c.Cloud.HTTP == nil {
		errs = append(errs, errors.New("cloud needs a URL and an HTTP client"))
	}
	if c.Metadata == nil {
		errs = append(errs, errors.New("metadata is required"))
	}
	if c.Registry.Name == "" || c.Registry.CA == "" {
		errs = append(errs, errors.New("registry needs a name and a CA"))
	}
	if !filepath.IsAbs(c.Dir) {
		errs = append(errs, fmt.Errorf("dir must be an absolute path, got %q", c.Dir))
	}
	if c.Name == "" {
		errs = append(errs, errors.New("name is required"))
	}
	if c.Identify == nil || c.NodeOf == nil || c.NotReady == nil || c.Say == nil {
		errs = append(errs, errors.New("identify, node-of, not-ready and say are required"))
	}
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("real machines need root"))
	}
	return errors.Join(append(errs, c.Network.Validate())...)
}
