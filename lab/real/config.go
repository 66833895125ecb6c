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

// Config holds the settings of a hypervisor of real machines.
type Config struct {
	// Cloud is the client for one project. The hypervisor runs machines for the instances of this
	// project. The client's token must permit the hypervisor to read instances, instance types,
	// zones, disks and events, and to report the devices of machines. If Router is set, the token
	// must also permit the router to read routes.
	Cloud *client.Client
	// Zones selects instances by their zone: the hypervisor runs machines only for the instances in
	// these zones. If Zones is empty, it runs machines for the instances of all zones. Other
	// hypervisors on this host may run machines of other zones. This hypervisor does not change the
	// machines of other hypervisors.
	Zones []string
	// Router holds the services of the VPC's router, if this process also runs the router. Router
	// is nil if another process runs the router (see the function Route).
	Router *Services
	// Registry holds the settings of the cloud's container registry.
	Registry Registry
	// Mirrors lists mirrors of other registries.
	Mirrors []Mirror
	// RuntimeEnv lists additional environment variables for the machines' container runtime. For
	// example, a variable can set the HTTP proxy for image pulls.
	RuntimeEnv []string
	// Dir is the absolute path of the hypervisor's own folder for machines, the network
	// and images.
	Dir string
	// Name is the name of this hypervisor's cgroup. It must differ from the names of all other
	// hypervisors on the host, including other hypervisors of the same lab.
	Name    string
	Network Network
	// Programs lists the programs that machines run.
	Programs Programs
	// ClusterDNS is the address of the cluster's name server.
	ClusterDNS string
	// Identify returns the files with the cluster identity of a machine. The keys are file names in
	// the machine's folder /etc/kubernetes. The files are ca.crt, kubelet.kubeconfig,
	// kube-proxy.kubeconfig, kubelet.crt and kubelet.key. The last two files are the certificate
	// and the key of the kubelet's server.
	Identify func(host string, address netip.Addr) (map[string][]byte, error)
	// NodeOf returns the provider id of the cluster's Node with this name. It returns "" if the
	// cluster has no Node with this name.
	NodeOf func(ctx context.Context, name string) (providerID string, err error)
	// NotReady sets a Node to NotReady after the shutdown of the Node's machine. On a host with
	// systemd, the kubelet sets its Node to NotReady when systemd announces a shutdown.
	// Machines run no systemd, so the hypervisor calls NotReady instead.
	NotReady func(ctx context.Context, name, providerID string) error
	// Disks holds the settings for the disks of machines.
	Disks Disks
	// Volumes holds the settings for pods' volumes. If Volumes is nil, pods
	// have no volumes.
	Volumes *Volumes
	// NetworkProxy holds the settings for the network proxy's agents. It is nil if
	// kube-apiserver reaches machines directly or through a network proxy that the user runs.
	NetworkProxy *NetworkProxy
	// Say shows the user a message about a slow step.
	Say func(format string, args ...any)
}

// Registry holds the settings of a container registry. Machines pull images from this registry with
// credentials that the cloud issues.
type Registry struct {
	// Name is host:port, as in image names.
	Name string
	// Aliases lists further host names of the registry. If an image name begins with an alias,
	// machines pull the image from this registry.
	Aliases []string
	// CA is the path of a file on the host. The file contains the certificate of the registry's
	// certificate authority.
	CA string
	// Kubelet maps file names to contents. The kubelet and the kubelet's image
	// credential provider need these files. On a machine, these files are in
	// the folder CredentialDir.
	Kubelet map[string][]byte
}

// Programs holds the paths of programs on the host.
type Programs struct {
	Machine string // folder with containerd, runc, the program of the machine's first process, and the folder cni
	Images  string // folder with the programs of the built images and with more image archives
	// Archives is a folder with image archives that machines need in addition to the archives in
	// Images. If both folders contain an image with the same name, machines get the image from
	// Archives. If Archives is "", machines need no additional archives.
	Archives string
	Kubelet  string
	Proxy    string
	Kubectl  string
	Plugin   string // the kubelet's image credential provider
	// Plugins lists image credential providers in addition to Plugin. It maps the name of each
	// provider on a machine to the provider's path on the host.
	Plugins  map[string]string
	Allinone string // contains the CSI driver's node part and the network proxy's agent
}

// kube maps the names of Kubernetes' programs on a machine to their paths on the host.
func (p Programs) kube() map[string]string {
	return map[string]string{"kubelet": p.Kubelet, "kube-proxy": p.Proxy, "kubectl": p.Kubectl}
}

// Required returns the paths of all programs that must exist on the host. The keys of the map
// describe the programs.
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

// Validate returns one error that lists all invalid fields of c.
func (c Config) Validate() error {
	errs := []error{checkCloud(c.Cloud), checkDir(c.Dir), c.Network.Validate(), asRoot()}
	if !filepath.IsAbs(c.Disks.Dir) {
		errs = append(errs, fmt.Errorf("disks must have an absolute path, got %q", c.Disks.Dir))
	}
	switch {
	case c.Router != nil && c.Router.Metadata == nil:
		errs = append(errs, errNoMetadata)
	case c.Router == nil && !c.Network.BridgeOnHost:
		errs = append(errs, errors.New("a router is required: a router of another process can be reached only through a bridge on the host"))
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

// errNoMetadata is the error of a hypervisor or router without a metadata service.
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
