package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/credprovider/node"
	"github.com/cloudsim-dev/allinone/lab/real"
)

// Settings of a composed lab with real machines. The lab has its own network
// namespace, so it does not conflict with other labs.
const (
	composedLink         = "vpc"
	composedAPIPort      = 6443
	composedCloudPort    = 8180
	composedProxyPort    = 8091
	composedRegistryPort = 5000
	composedMachines     = "/data"          // volume of each host of machines, with the machines' disks
	composedName         = "/data/name"     // file with the name of the hypervisor's cgroup
	composedRouter       = "/tmp"           // folder with the router's network namespace
	composedCloudData    = "/cloud"         // the cloud's volume in the hosts: disks and the registry's certificate authority
	composedMade         = "/opt/cloudsim"  // components of machines in the image
	composedBin          = "/usr/local/bin" // folder for programs in all images
)

// composedNetworks returns the address ranges of a cloud for this kind of nodes.
// Hollow nodes use 127/8, which a container answers without extra capabilities. A VPC
// needs the capability to create networks.
func composedNetworks(nodes Nodes) networks {
	if nodes != Real {
		return networksFrom(firstNetwork)
	}
	n := realNetworksFrom(firstVPC)
	n.Pods = podRange
	return n
}

// composedVPC returns the VPC. Its bridge is in the network namespace that the router and
// all hosts of machines share.
func composedVPC() real.Network {
	n := composedNetworks(Real).real(composedLink)
	n.BridgeOnHost = true
	return n
}

// ComposedCloudFlags returns the flags of the cloud, by name, that set the address
// ranges of instances and load balancers. For real nodes, the result also contains
// the flag that sets the registry's address.
func ComposedCloudFlags(nodes Nodes) map[string]string {
	n := composedNetworks(nodes)
	flags := map[string]string{"instance-range": n.Instances, "load-balancer-range": n.LoadBalancers, "load-balancer-range6": ""}
	if nodes == Real {
		flags["registry-listen"] = composedAt(composedRegistryPort)
	}
	return flags
}

// composedAt returns the host's address in the VPC with this port.
func composedAt(port int) string {
	return net.JoinHostPort(composedVPC().Host.String(), strconv.Itoa(port))
}

// composedCloudURL returns the URL at which machines call the cloud.
func composedCloudURL() string { return "http://" + composedAt(composedCloudPort) }

// keepNodes records the kind of nodes for the services that run with real nodes only.
// It returns an error if the kind differs from the kind of nodes at the first start.
func (c Composed) keepNodes(nodes Nodes) error {
	if nodes != Hollow && nodes != Real {
		return fmt.Errorf("nodes must be %s or %s, got %q: set COMPOSE_PROFILES to one of them", Hollow, Real, nodes)
	}
	file := c.file("init", "nodes")
	before, err := readIfThere(file)
	if err != nil {
		return err
	}
	if was := Nodes(before); was != "" && was != nodes {
		return fmt.Errorf("the nodes of this cluster are %s, and its instances have addresses for this kind: start it with COMPOSE_PROFILES=%s, delete it with `docker compose down --volumes`, or give the new cluster its own --project-name", was, was)
	}
	errs := []error{writeFile(file, []byte(nodes))}
	for _, service := range []string{"router", "machines"} {
		errs = append(errs, os.MkdirAll(c.file(service, ""), 0o700), writeFile(c.file(service, "nodes"), []byte(nodes)))
	}
	return errors.Join(errs...)
}

// openReal prepares the container of a service that runs with real nodes only. It
// returns an error if the cluster has another kind of nodes.
func (c Composed) openReal(service string) error {
	nodes, err := os.ReadFile(c.file(service, "nodes"))
	if err != nil {
		return err
	}
	if Nodes(nodes) != Real {
		return fmt.Errorf("the nodes of this cluster are %s: start it with COMPOSE_PROFILES=%s in the environment, which all services see, and not with --profile", nodes, Real)
	}
	return real.OpenContainer()
}

// Route creates the VPC to which the hosts of all zones connect their machines. It
// runs the VPC's router until ctx ends.
func (c Composed) Route(ctx context.Context, log *slog.Logger) error {
	if err := c.openReal("router"); err != nil {
		return err
	}
	return real.Route(ctx, log, real.RouterConfig{
		Cloud: componentClient("router", composedCloud, c.token("router")),
		Dir:   composedRouter, Network: composedVPC(),
		Services: real.Services{
			Metadata: componentClient("metadata", composedCloud, c.metadataToken()),
			// The cloud runs in this network namespace. It listens directly on the address
			// that the host has in the VPC. The map therefore does not contain the cloud.
			Endpoints: map[int]string{composedAPIPort: strings.TrimPrefix(composedAPI, "https://"), composedProxyPort: composedProxy},
		},
	})
}

// Machines runs the hypervisor of real machines for the instances in these zones until
// ctx ends. No zones means all zones.
func (c Composed) Machines(ctx context.Context, log *slog.Logger, zones []string) error {
	if err := c.openReal("machines"); err != nil {
		return err
	}
	unlock, err := Dir(composedMachines).lock()
	if errors.Is(err, errLocked) {
		return errors.New("another host has its machines in this volume: give each host its own volume and zones")
	}
	if err != nil {
		return err
	}
	defer unlock()
	k, err := connect(c.file("machines", "kubeconfig"), hypervisorAgent)
	if err != nil {
		return err
	}
	keys := pki{dir: c.file("machines", ""), now: time.Now()}
	name, err := c.machineName(zones)
	if err != nil {
		return err
	}
	if err := writeFile(composedName, []byte(name)); err != nil {
		return err
	}
	pulls, err := pullFiles(composedCloudURL(), composedAt(composedRegistryPort))
	if err != nil {
		return err
	}
	self := filepath.Join(composedBin, "allinone")
	return real.Run(ctx, log, inCluster(k, keys, composedAPIPort, real.Config{
		Cloud: componentClient("hypervisor", composedCloud, c.machineToken("hypervisor")), Zones: zones,
		Dir: composedMachines, Name: name, Network: composedVPC(),
		Registry: real.Registry{Name: composedAt(composedRegistryPort), CA: filepath.Join(composedCloudData, "registry", "ca.crt"), Kubelet: pulls},
		Programs: realPrograms(Config{Self: self, Kube: filepath.Join(composedBin, "kube"), MachineDir: filepath.Join(composedMade, "machine")}),
		Volumes: &real.Volumes{
			Disks: filepath.Join(composedCloudData, "disks"), TokenFile: c.machineToken("csi-node"), Name: volumeDriver,
			URL: composedCloudURL(),
		},
		ClusterDNS:   clusterDNS.String(),
		NetworkProxy: keys.networkProxy(composedAt(composedProxyPort)),
		Say:          func(format string, args ...any) { log.Info(fmt.Sprintf(format, args...)) },
	}))
}

// tokens returns a function that names the token file for an account. A token goes to
// the service with the account's name. With real nodes, the token of the metadata
// service goes to the service router. The tokens of the hypervisor and of the CSI
// node driver go to the service machines.
func (c Composed) tokens(nodes Nodes) func(account string) string {
	return func(account string) string {
		switch {
		case nodes == Real && account == "metadata":
			return c.metadataToken()
		case nodes == Real && (account == "hypervisor" || account == "csi-node"):
			return c.machineToken(account)
		}
		return c.token(account)
	}
}

func (c Composed) machineToken(account string) string { return c.file("machines", account+".token") }

func (c Composed) metadataToken() string { return c.file("router", "metadata.token") }

// MachinePID returns the pid of the first process of a real node's machine. The
// pid is valid in the container of the host that runs the machine.
func (c Composed) MachinePID(node string) (int, error) {
	name, err := os.ReadFile(composedName)
	if err != nil {
		return 0, err
	}
	return real.First(composedMachines, string(name), node)
}

// machineName returns the hypervisor's Name on this host: the name of its cgroup and of
// its folder for disks. The name contains a hash of the zones, because two hosts may share
// a kernel. The hash includes the cluster's CA, because two composed labs may share a kernel.
func (c Composed) machineName(zones []string) (string, error) {
	ca, err := os.ReadFile(c.file("machines", "ca.crt"))
	if err != nil {
		return "", err
	}
	return "cloudsim-" + hash(string(ca)+strings.Join(slices.Sorted(slices.Values(zones)), " ")), nil
}

// InstallAddons applies the objects that machines and volumes need in the cluster: the name
// server, the permission to pull images, snapshot definitions and storage classes.
func (c Composed) InstallAddons(ctx context.Context) error {
	k, err := connect(c.file("toolbox", "kubeconfig"), "")
	if err != nil {
		return err
	}
	pulls, err := pullFiles(composedCloudURL(), composedAt(composedRegistryPort))
	if err != nil {
		return err
	}
	return installRealAddons(ctx, k, filepath.Join(composedMade, "csi", "crds"), nil, pulls[node.RBACFile])
}
