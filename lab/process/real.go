package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"

	"k8s.io/client-go/kubernetes"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/credprovider/node"
	"github.com/cloudsim-dev/allinone/internal/shell"
	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/real"
)

func (p *plan) vpc() real.Network {
	n := p.networks.VPCNetwork(p.dir.cable())
	n.Internet = real.Internet{IPv4: p.internet.IPv4, IPv6: p.internet.IPv6}
	return n
}

// findInternet finds out whether machines can reach the internet, and reports the result to the
// user.
func (p *plan) findInternet() (err error) {
	if p.Nodes != lab.Real {
		return nil
	}
	if p.internet, err = lab.FindInternet(p.NoInternet); err == nil {
		p.say("%s", p.internet)
	}
	return err
}

// pullSettings returns the mirrors and the environment for the container runtime of machines.
func (p *plan) pullSettings() (mirrors []real.Mirror, env []string, err error) {
	if p.internet.Off != "" {
		return nil, nil, nil
	}
	for _, s := range p.Mirrors {
		m, err := real.ParseMirror(s)
		if err != nil {
			return nil, nil, err
		}
		mirrors = append(mirrors, m)
	}
	env, unusable := p.Proxy.Env(p.networks)
	if unusable != nil {
		p.say("%s", unusable)
	}
	return mirrors, env, nil
}

// hash returns a short hash of the data dir. The names of the lab's resources on the host contain
// this hash, so that two labs do not use the same names.
func (d Dir) hash() string { return lab.Hash(string(d)) }

func (d Dir) machines() string    { return d.path("real") }
func (d Dir) machineName() string { return "cloudsim-" + d.hash() }
func (d Dir) cable() string       { return "csim-" + d.hash() }

// EnterCommand returns the command line that runs the given command on a real node's machine. See
// real.EnterCommand.
func (d Dir) EnterCommand(node string, command []string) ([]string, error) {
	return real.EnterCommand(d.machines(), d.machineName(), node, command)
}

// sweepMachines ends the machines of an earlier run. If it ended a machine, it appends
// "machines" to swept.
func (d Dir) sweepMachines(ctx context.Context, swept []string) ([]string, error) {
	left, err := real.Runs(d.machines(), d.machineName(), d.cable())
	if err != nil {
		if _, missing := os.Stat(d.machines()); errors.Is(missing, fs.ErrNotExist) {
			return swept, nil // for example, a lab with hollow nodes on a system without cgroups
		}
		return swept, err
	}
	if !left {
		return swept, nil
	}
	if err := real.Clean(ctx, d.machines(), d.machineName(), d.cable()); err != nil {
		return swept, fmt.Errorf("ending the machines of an earlier run: %w", err)
	}
	return append(swept, "machines"), nil
}

// layNetwork creates the network of the machines (the VPC). The lab calls layNetwork before the
// cloud starts, because the cloud's data plane listens on addresses in the VPC.
func (p *plan) layNetwork(context.Context) error {
	return real.Lay(p.dir.machines(), p.vpc())
}

// endpointFlags returns the flags for connections between the API server and pods:
//
//   - Without a VPC, the Service "kubernetes" has no endpoint, because Kubernetes permits no
//     loopback address as an endpoint of a Service.
//   - With a VPC, pods reach the API server at the host's address in the VPC. The API server
//     connects directly to the pods of webhooks and aggregated APIs. It cannot use the addresses of
//     their Services, because no kube-proxy runs on the host.
func (p *plan) endpointFlags() []string {
	if p.Nodes != lab.Real {
		return []string{"--advertise-address=" + host, "--endpoint-reconciler-type=none"}
	}
	return []string{"--advertise-address=" + p.vpc().Host.String(), "--enable-aggregator-routing"}
}

// serverIPs returns the addresses at which machines find the servers of the control plane.
func (p *plan) serverIPs() []net.IP {
	if p.Nodes != lab.Real {
		return nil
	}
	return []net.IP{p.vpc().Host.AsSlice()}
}

// podFlags returns the flags for two tasks: the assignment of pod ranges to nodes, and the creation
// of routes to these ranges. The kind of nodes and the CCM determine which components do these
// tasks:
//
//   - Hollow nodes, or nodes that the user adds: kube-controller-manager assigns the ranges. The
//     lab creates no routes.
//   - Real nodes with the lab's CCM: the cloud's network assigns a range to each new instance. The
//     CCM writes the range into the Node, and writes a route into the cloud's route table.
//   - Real nodes with a CCM of the user: kube-controller-manager assigns the ranges, because other
//     CCMs do not write ranges into Nodes. The user's CCM creates the routes in the cloud.
//
// By default, the cloud refuses each network or route of a user that overlaps a route of the host.
// The host has a route to the pods of the VPC, so the cloud would refuse the routes of a user's
// CCM. For this case, the lab sets --network-ranges to all private ranges. With this flag, the
// cloud ignores the routes of the host and permits the ranges in the flag.
func (p *plan) podFlags() (cloud, controllerManager, ccm []string) {
	if p.Nodes != lab.Real {
		return nil, []string{"--allocate-node-cidrs", "--cluster-cidr=" + lab.PodRange}, nil
	}
	pods := "--cluster-cidr=" + p.networks.Pods
	if p.CCM == NoCCM {
		var ranges []string
		for _, r := range cloudsim.DefaultNetworkRanges() {
			ranges = append(ranges, r.String())
		}
		return []string{"--network-ranges=" + strings.Join(ranges, ",")}, []string{"--allocate-node-cidrs", pods}, nil
	}
	return []string{"--pod-range=" + p.networks.Pods}, []string{"--allocate-node-cidrs=false", pods},
		[]string{"--allocate-node-cidrs", "--cidr-allocator-type=CloudAllocator", "--configure-cloud-routes", pods, "--route-reconciliation-period=10s"}
}

// clientFlags returns the flag with which the cloud's load balancers keep the client's address as
// the source address of connections to targets.
func (p *plan) clientFlags() []string {
	if p.Nodes != lab.Real {
		return nil
	}
	return []string{"--show-clients"}
}

// ipMode returns the IP mode of load balancers (KEP-1860). The mode determines the path of a
// connection from a pod to a load balancer. For real nodes, the mode is VIP: kube-proxy sends the
// connection directly to a pod of the Service. Otherwise, the mode is Proxy: the connection goes
// through the load balancer.
func (p *plan) ipMode() string {
	if p.Nodes == lab.Real {
		return "VIP"
	}
	return "Proxy"
}

// realHypervisor returns the component that runs instances as machines. The component is
// a part of this process.
func (p *plan) realHypervisor(log *slog.Logger) component {
	return component{
		name: "hypervisor",
		run: func(ctx context.Context) error {
			k, err := lab.Connect(p.dir.configFile("hypervisor.kubeconfig"), lab.HypervisorAgent)
			if err != nil {
				return err
			}
			c, err := p.realConfig(ctx, k)
			if err != nil {
				return err
			}
			stop, err := lab.PullAdvice{
				Kube: k, Log: log, Registries: append([]string{c.Registry.Name}, c.Registry.Aliases...), Internet: p.internet, Mirrors: c.Mirrors, Load: p.loadCommand,
			}.Start(ctx)
			if err != nil {
				return err
			}
			defer stop()
			return real.Run(ctx, log.With("component", "hypervisor"), c)
		},
		startAfter: []string{"cloudsim", "kube-apiserver"},
	}
}

// loadCommand returns the command that loads an image into the machines of this lab.
func (p *plan) loadCommand(image string) string {
	return fmt.Sprintf("sudo allinone images load %s --data-dir %s", image, shell.Word(p.dir.path()))
}

func (p *plan) realConfig(ctx context.Context, k kubernetes.Interface) (real.Config, error) {
	n := p.vpc()
	aliases, err := p.registryAliases(ctx)
	if err != nil {
		return real.Config{}, fmt.Errorf("finding the host names of the registry: %w", err)
	}
	files, err := p.registryFiles(aliases)
	if err != nil {
		return real.Config{}, err
	}
	mirrors, env, err := p.pullSettings()
	api, cloud := p.ports["kube-apiserver"], p.ports["cloudsim"]
	endpoints := map[int]string{api: p.ports.addr("kube-apiserver"), cloud: p.ports.addr("cloudsim")}
	for _, d := range p.Dialects {
		endpoints[p.ports[dialectPort(d)]] = p.ports.addr(dialectPort(d))
	}
	return lab.InCluster(k, p.pki, api, real.Config{
		Cloud: p.hypervisorClient(), Dir: p.dir.machines(), Name: p.dir.machineName(), Network: n,
		Registry: real.Registry{Name: p.registryName(), Aliases: aliases, CA: p.dir.path("cloud", "registry", "ca.crt"), Kubelet: files},
		Mirrors:  mirrors, RuntimeEnv: env,
		Programs: p.realPrograms(), ClusterDNS: lab.ClusterDNS.String(),
		Router: &real.Services{
			Metadata:  p.componentClient("metadata"),
			Endpoints: endpoints,
		},
		Say: p.say, Disks: real.Disks{Dir: p.dir.path("cloud", "disks"), Links: p.DiskLinks},
		Volumes: p.realVolumes(), NetworkProxy: p.realNetworkProxy(),
	}), err
}

func (c Config) realPrograms() real.Programs {
	all := programSet{c.Kube, c.KubeBinDir}
	found := lab.RealPrograms(c.MachineDir, c.Self, func(name string) string { return all.find(name).path })
	found.Archives = c.Archives
	if c.ECRPlugin != "" {
		found.Plugins = map[string]string{node.ECRPlugin: c.ECRPlugin}
	}
	return found
}
