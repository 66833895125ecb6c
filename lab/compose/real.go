package compose

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
	"github.com/cloudsim-dev/allinone/internal/flock"
	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/real"
)

// Settings of a lab that runs real machines in containers. The lab has its own network namespace,
// so it does not conflict with other labs.
const (
	vpcLink       = "vpc"
	apiPort       = 6443
	cloudPort     = 8180
	proxyPort     = 8091
	registryPort  = 5000
	machinesDir   = "/data"          // volume of each host of machines, with the machines' disks
	nameFile      = "/data/name"     // file with the name of the hypervisor's cgroup
	routerDir     = "/tmp"           // folder with the router's network namespace
	cloudDir      = "/cloud"         // the cloud's volume, with disks and the registry's certificate authority
	componentsDir = "/opt/cloudsim"  // components of machines in the image
	binDir        = "/usr/local/bin" // folder for programs in all images
)

// networksOf returns the address ranges of a cloud with the given kind of nodes. Hollow nodes use
// 127/8, which a container can use without extra capabilities. Real nodes use a separate network (a
// VPC). A container needs extra capabilities to create this network.
func networksOf(nodes lab.Nodes) lab.Networks {
	if nodes != lab.Real {
		return lab.HollowNetworks(lab.FirstHollowNetwork)
	}
	n := lab.RealNetworks(lab.FirstVPC)
	n.Pods = lab.PodRange
	return n
}

// vpc returns the settings of the machines' network (the VPC). The field Internet of the result is
// not set: connectedVPC sets it. The router's container and the containers with machines share a
// network namespace. The bridge of the VPC is in this namespace.
func vpc() real.Network {
	n := networksOf(lab.Real).VPCNetwork(vpcLink)
	n.BridgeOnHost = true
	return n
}

// Pulls holds the settings with which machines pull images from registries outside the lab.
type Pulls struct {
	NoInternet bool          // machines reach no network outside the lab
	Mirrors    []real.Mirror // registry mirrors
	Proxy      lab.Proxy     // HTTP proxy for pulls
}

// connectedVPC returns the settings of the VPC, including the field Internet. The second result
// describes the internet access of the machines. The field Isolated prevents connections from
// machines to the Docker networks of the router's container, because these networks contain the
// control plane.
func connectedVPC(noInternet bool) (real.Network, lab.Internet, error) {
	n := vpc()
	found, err := lab.FindInternet(noInternet)
	n.Internet = real.Internet{IPv4: found.IPv4, IPv6: found.IPv6, Isolated: true}
	return n, found, err
}

// CloudFlags returns a map from names of the cloud's flags to their values. The
// flags set the address ranges of instances and load balancers. For real nodes,
// another flag sets the registry's address.
func CloudFlags(nodes lab.Nodes) map[string]string {
	n := networksOf(nodes)
	flags := map[string]string{"instance-range": n.Instances, "load-balancer-range": n.LoadBalancers, "load-balancer-range6": ""}
	if nodes == lab.Real {
		flags["registry-listen"] = hostAt(registryPort)
	}
	return flags
}

// hostAt returns the host's address in the VPC, with the given port.
func hostAt(port int) string {
	return net.JoinHostPort(vpc().Host.String(), strconv.Itoa(port))
}

func machinesCloudURL() string { return "http://" + hostAt(cloudPort) }

// keepNodes writes the kind of nodes to a file. The services of real nodes read this file.
// keepNodes returns an error if the kind differs from the kind at the first start.
func (c Dir) keepNodes(nodes lab.Nodes) error {
	if nodes != lab.Hollow && nodes != lab.Real {
		return fmt.Errorf("nodes must be %s or %s, got %q: set COMPOSE_PROFILES to one of them", lab.Hollow, lab.Real, nodes)
	}
	file := c.file("init", "nodes")
	before, err := lab.ReadIfThere(file)
	if err != nil {
		return err
	}
	if was := lab.Nodes(before); was != "" && was != nodes {
		return fmt.Errorf("the nodes of this cluster are %s, and its instances have addresses for this kind of node: start the cluster with COMPOSE_PROFILES=%s, delete it with `docker compose down --volumes`, or give the new cluster its own --project-name", was, was)
	}
	errs := []error{lab.WriteFile(file, []byte(nodes))}
	for _, service := range []string{"router", "machines"} {
		errs = append(errs, os.MkdirAll(c.file(service, ""), 0o700), lab.WriteFile(c.file(service, "nodes"), []byte(nodes)))
	}
	return errors.Join(errs...)
}

// openReal prepares the container of a service that runs with real nodes only. It returns an error
// if the nodes of the cluster are hollow.
func (c Dir) openReal(service string) error {
	nodes, err := os.ReadFile(c.file(service, "nodes"))
	if err != nil {
		return err
	}
	if lab.Nodes(nodes) != lab.Real {
		return fmt.Errorf("the nodes of this cluster are %s: to use real nodes, delete the cluster with `docker compose down --volumes`, and set COMPOSE_PROFILES=%s in the environment instead of --profile, because all services read this variable", nodes, lab.Real)
	}
	return real.OpenContainer()
}

// Route creates the VPC to which the hosts of all zones connect their machines. It
// runs the VPC's router until ctx ends.
func (c Dir) Route(ctx context.Context, log *slog.Logger, noInternet bool) error {
	if err := c.openReal("router"); err != nil {
		return err
	}
	n, found, err := connectedVPC(noInternet)
	if err != nil {
		return err
	}
	log.Info(found.String())
	return real.Route(ctx, log, real.RouterConfig{
		Cloud: lab.ComponentClient("router", cloudURL, c.token("router")),
		Dir:   routerDir, Network: n,
		Services: real.Services{
			Metadata: lab.ComponentClient("metadata", cloudURL, c.metadataToken()),
			// The cloud's port is not in the map, because the cloud itself listens on the host's
			// address in the VPC.
			Endpoints: map[int]string{apiPort: strings.TrimPrefix(apiURL, "https://"), proxyPort: proxyAddress},
		},
	})
}

// Machines runs the hypervisor of real machines for the instances in the given zones until ctx
// ends. If zones is empty, it runs the machines of all zones.
func (c Dir) Machines(ctx context.Context, log *slog.Logger, zones []string, p Pulls) error {
	if err := c.openReal("machines"); err != nil {
		return err
	}
	n, found, err := connectedVPC(p.NoInternet)
	if err != nil {
		return err
	}
	var env []string
	if found.Off == "" {
		if env, err = p.Proxy.Env(networksOf(lab.Real)); err != nil {
			log.Warn(err.Error())
		}
	}
	volume, err := os.Open(machinesDir)
	if err != nil {
		return err
	}
	defer volume.Close()
	if locked, err := flock.Try(volume); err != nil {
		return err
	} else if !locked {
		return errors.New("another host stores its machines in this volume: give each host its own volume and zones")
	}
	k, err := lab.Connect(c.file("machines", "kubeconfig"), lab.HypervisorAgent)
	if err != nil {
		return err
	}
	keys := lab.PKI{Dir: c.file("machines", ""), Now: time.Now()}
	name, err := c.machineName(zones)
	if err != nil {
		return err
	}
	if err := lab.WriteFile(nameFile, []byte(name)); err != nil {
		return err
	}
	pulls, err := lab.PullFiles(machinesCloudURL(), hostAt(registryPort), nil)
	if err != nil {
		return err
	}
	stop, err := lab.PullAdvice{
		Kube: k, Log: log, Registries: []string{hostAt(registryPort)}, Internet: found, Mirrors: p.Mirrors, Load: loadCommand,
	}.Start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	self, kube := filepath.Join(binDir, "allinone"), filepath.Join(binDir, "kube")
	return real.Run(ctx, log, lab.InCluster(k, keys, apiPort, real.Config{
		Cloud: lab.ComponentClient("hypervisor", cloudURL, c.machineToken("hypervisor")), Zones: zones,
		Dir: machinesDir, Name: name, Network: n, Mirrors: p.Mirrors, RuntimeEnv: env,
		Registry: real.Registry{Name: hostAt(registryPort), CA: filepath.Join(cloudDir, "registry", "ca.crt"), Kubelet: pulls},
		Programs: lab.RealPrograms(filepath.Join(componentsDir, "machine"), self, func(string) string { return kube }),
		Disks:    real.Disks{Dir: filepath.Join(cloudDir, "disks")},
		Volumes: &real.Volumes{
			TokenFile: c.machineToken("csi-node"), Name: lab.VolumeDriver,
			URL: machinesCloudURL(),
		},
		ClusterDNS:   lab.ClusterDNS.String(),
		NetworkProxy: keys.NetworkProxy(hostAt(proxyPort)),
		Say:          func(format string, args ...any) { log.Info(fmt.Sprintf(format, args...)) },
	}))
}

// tokenPath returns a function that returns the path of an account's token file. The file is in the
// folder of the service that has the account's name. Labs with real nodes have two exceptions. The
// token of the metadata service is in the folder of the service "router". The tokens of the
// hypervisor and of the CSI node driver are in the folder of the service "machines".
func (c Dir) tokenPath(nodes lab.Nodes) func(account string) string {
	return func(account string) string {
		switch {
		case nodes == lab.Real && account == "metadata":
			return c.metadataToken()
		case nodes == lab.Real && (account == "hypervisor" || account == "csi-node"):
			return c.machineToken(account)
		}
		return c.token(account)
	}
}

func (c Dir) machineToken(account string) string { return c.file("machines", account+".token") }

func (c Dir) metadataToken() string { return c.file("router", "metadata.token") }

// EnterCommand returns the command line that runs the given command on a real node's machine. The
// caller must run this command line in the container of the host that runs the machine. See
// real.EnterCommand.
func (c Dir) EnterCommand(node string, command []string) ([]string, error) {
	name, err := os.ReadFile(nameFile)
	if err != nil {
		return nil, err
	}
	return real.EnterCommand(machinesDir, string(name), node, command)
}

// loadCommand returns text that tells the user how to load an image into the machines of all zones.
func loadCommand(image string) string {
	return fmt.Sprintf("for each zone, run: docker save %s | docker compose exec -T node-ZONE allinone compose images load -", image)
}

// Images returns the images on the machines of this host. If nodes is not empty, it limits the
// result to the machines of these nodes.
func Images(nodes []string) (real.Images, error) {
	name, err := os.ReadFile(nameFile)
	if errors.Is(err, os.ErrNotExist) {
		return real.Images{}, errors.New("this container has no machines: run the command in the container of a host, for example with `docker compose exec -T node-sim-1a`")
	}
	return real.Images{Dir: machinesDir, Name: string(name), Nodes: nodes}, err
}

// machineName returns the name of the hypervisor on this host. The hypervisor's cgroup and its
// folder for disks have this name. The name contains a hash of the zones and of the cluster's CA.
// The hosts of one lab have different zones, and different labs have different CAs. So all
// hypervisors on the same kernel have different names.
func (c Dir) machineName(zones []string) (string, error) {
	ca, err := os.ReadFile(c.file("machines", "ca.crt"))
	if err != nil {
		return "", err
	}
	return "cloudsim-" + lab.Hash(string(ca)+strings.Join(slices.Sorted(slices.Values(zones)), " ")), nil
}

// InstallAddons applies the objects that machines and volumes need in the cluster: the name
// server, the permission to pull images, snapshot definitions and storage classes.
func (c Dir) InstallAddons(ctx context.Context, noInternet bool) error {
	k, err := lab.Connect(c.file("toolbox", "kubeconfig"), "")
	if err != nil {
		return err
	}
	pulls, err := lab.PullFiles(machinesCloudURL(), hostAt(registryPort), nil)
	if err != nil {
		return err
	}
	n, _, err := connectedVPC(noInternet)
	if err != nil {
		return err
	}
	return lab.InstallRealAddons(ctx, k, lab.Addons{CRDs: filepath.Join(componentsDir, "csi", "crds"), Pulls: pulls[node.RBACFile], NameServer: n.NameServer()})
}
