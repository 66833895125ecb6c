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

// Where the machines of a composed lab are. It has a network namespace of its
// own, so that no two labs meet.
const (
	composedLink         = "vpc"
	composedAPIPort      = 6443
	composedCloudPort    = 8180
	composedProxyPort    = 8091
	composedRegistryPort = 5000
	composedMachines     = "/data"          // a volume of each host of machines: their disks
	composedName         = "/data/name"     // what its machines are called on the kernel
	composedRouter       = "/tmp"           // where the router has its namespace
	composedCloudData    = "/cloud"         // where it sees the cloud's own: disks, and the registry's authority
	composedMade         = "/opt/cloudsim"  // what machines are made of, in its image
	composedBin          = "/usr/local/bin" // where all images have programs
)

// composedNetworks are where a cloud with such nodes gives addresses. A container
// answers for 127/8 without any right; a VPC takes the right to make one.
func composedNetworks(nodes Nodes) networks {
	if nodes != Real {
		return networksFrom(firstNetwork)
	}
	n := realNetworksFrom(firstVPC)
	n.Pods = podRange
	return n
}

// composedVPC has its bridge where the router and all hosts of machines reach it.
func composedVPC() real.Network {
	n := composedNetworks(Real).real(composedLink)
	n.BridgeOnHost = true
	return n
}

// ComposedCloudFlags are the flags of the cloud that say where its instances and load
// balancers are, by name.
func ComposedCloudFlags(nodes Nodes) map[string]string {
	n := composedNetworks(nodes)
	flags := map[string]string{"instance-range": n.Instances, "load-balancer-range": n.LoadBalancers, "load-balancer-range6": ""}
	if nodes == Real {
		flags["registry-listen"] = composedAt(composedRegistryPort)
	}
	return flags
}

// composedAt is a port of the host's address in the VPC.
func composedAt(port int) string {
	return net.JoinHostPort(composedVPC().Host.String(), strconv.Itoa(port))
}

// composedCloudURL is the cloud as machines find it.
func composedCloudURL() string { return "http://" + composedAt(composedCloudPort) }

// keepNodes refuses nodes that are others than those of the first time, and
// lets those services know that are for one kind only.
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
		return fmt.Errorf("the nodes of this cluster are %s, and its instances have addresses for that: start it with COMPOSE_PROFILES=%s, or forget it with `docker compose down --volumes`, or give this one a name of its own with --project-name", was, was)
	}
	errs := []error{writeFile(file, []byte(nodes))}
	for _, service := range []string{"router", "machines"} {
		errs = append(errs, os.MkdirAll(c.file(service, ""), 0o700), writeFile(c.file(service, "nodes"), []byte(nodes)))
	}
	return errors.Join(errs...)
}

// openReal begins a service that is for real nodes only: it refuses others, and
// makes its container one that can do its work.
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

// Route makes the VPC that the hosts of all zones put their machines in, and is
// its router until ctx ends.
func (c Composed) Route(ctx context.Context, log *slog.Logger) error {
	if err := c.openReal("router"); err != nil {
		return err
	}
	return real.Route(ctx, log, real.RouterConfig{
		Cloud: componentClient("router", composedCloud, c.token("router")),
		Dir:   composedRouter, Network: composedVPC(),
		Services: real.Services{
			Metadata: componentClient("metadata", composedCloud, c.metadataToken()),
			// The cloud is in this network, and listens on that address itself.
			Endpoints: map[int]string{composedAPIPort: strings.TrimPrefix(composedAPI, "https://"), composedProxyPort: composedProxy},
		},
	})
}

// Machines makes the cloud's instances in some zones, or in all, real machines,
// until ctx ends.
func (c Composed) Machines(ctx context.Context, log *slog.Logger, zones []string) error {
	if err := c.openReal("machines"); err != nil {
		return err
	}
	unlock, err := Dir(composedMachines).lock()
	if errors.Is(err, errLocked) {
		return errors.New("another host has its machines in this volume: give each a volume and zones of its own")
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

// tokens say where an account's token goes: to the service of its name, but those
// of what is a part of the machines or of their network.
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

// MachinePID is the first process of a real node's machine, seen in the container
// of its host.
func (c Composed) MachinePID(node string) (int, error) {
	name, err := os.ReadFile(composedName)
	if err != nil {
		return 0, err
	}
	return real.First(composedMachines, string(name), node)
}

// machineName tells the loop devices of two hosts of machines on one kernel apart,
// by their zones, and of two composed labs, of which each has an authority of its
// own.
func (c Composed) machineName(zones []string) (string, error) {
	ca, err := os.ReadFile(c.file("machines", "ca.crt"))
	if err != nil {
		return "", err
	}
	return "cloudsim-" + hash(string(ca)+strings.Join(slices.Sorted(slices.Values(zones)), " ")), nil
}

// Furnish puts into the cluster what machines and volumes need there: the name
// server, the right to pull, snapshots and the classes of volumes.
func (c Composed) Furnish(ctx context.Context) error {
	k, err := connect(c.file("toolbox", "kubeconfig"), "")
	if err != nil {
		return err
	}
	pulls, err := pullFiles(composedCloudURL(), composedAt(composedRegistryPort))
	if err != nil {
		return err
	}
	return furnishReal(ctx, k, filepath.Join(composedMade, "csi", "crds"), nil, pulls[node.RBACFile])
}
