package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cloudsim-dev/allinone/credprovider/node"
	"github.com/cloudsim-dev/allinone/lab/real"
)

// TestImage is an image that every real machine has: Kubernetes' test server.
const TestImage = real.TestImage

// Real machines are in a VPC of the lab. The lab uses one private /16 range for the
// VPC and another for the pods. It chooses two ranges to which this host has no
// route.
const (
	firstVPC = 100 // 10.100.0.0/16 for the VPC and 10.101.0.0/16 for its pods
	lastVPC  = 198
)

func realNetworksFrom(octet int) networks {
	return networks{
		Instances: fmt.Sprintf("10.%d.0.0/17", octet), LoadBalancers: fmt.Sprintf("10.%d.128.0/18", octet),
		VPC: fmt.Sprintf("10.%d.0.0/16", octet), Pods: fmt.Sprintf("10.%d.0.0/16", octet+1),
	}
}

// claimRealNetworks claims the networks of the last start, because the instances of the
// cloud already have addresses in these networks. Without a last start it claims the
// first networks that are free.
func claimRealNetworks(ctx context.Context, last networks) (n networks, release func(), err error) {
	switch {
	case last.VPC != "":
		release, err = last.claimAgain(ctx)
		return last, release, err
	case last.Instances != "":
		return last, nil, errors.New("the instances in this data dir are not real machines, so their addresses are not in a VPC; start real nodes in another --data-dir, or delete this lab with `allinone reset`")
	}
	for octet := firstVPC; octet <= lastVPC; octet += 2 {
		n := realNetworksFrom(octet)
		free, err := real.Free(netip.MustParsePrefix(n.VPC), netip.MustParsePrefix(n.Pods))
		if err != nil {
			return n, nil, err
		}
		if !free {
			continue
		}
		release, err := n.claim()
		if !errors.Is(err, errClaimed) {
			return n, release, err
		}
	}
	return last, nil, fmt.Errorf("this host has routes into every network between 10.%d.0.0 and 10.%d.0.0", firstVPC, lastVPC+1)
}

// real returns the settings of the VPC. The argument link is the name of the VPC's link
// on the host. The router and the host have addresses in the /24 of the VPC that has
// the third byte 255. The cloud assigns no addresses in this /24.
func (n networks) real(link string) real.Network {
	vpc := netip.MustParsePrefix(n.VPC)
	base := vpc.Addr().As4()
	at := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{base[0], base[1], 255, last}) }
	return real.Network{
		VPC: vpc, Router: at(1), Host: at(2), Link: link,
		LoadBalancers: netip.MustParsePrefix(n.LoadBalancers), Pods: netip.MustParsePrefix(n.Pods),
	}
}

// vpc returns the network of this lab's machines.
func (p *plan) vpc() real.Network { return p.networks.real(p.dir.cable()) }

// hash returns a short hash of the data dir. Names on the host contain it, so labs do not conflict.
func (d Dir) hash() string { return hash(string(d)) }

func hash(of string) string {
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:4])
}

func (d Dir) machines() string    { return d.path("real") }
func (d Dir) machineName() string { return "cloudsim-" + d.hash() }
func (d Dir) cable() string       { return "csim-" + d.hash() }

// MachinePID returns the pid of the first process of a real node's machine.
func (d Dir) MachinePID(node string) (int, error) {
	return real.First(d.machines(), d.machineName(), node)
}

// sweepMachines ends the machines that an earlier run left and appends "machines" to swept if there were any.
func (d Dir) sweepMachines(ctx context.Context, swept []string) ([]string, error) {
	left, err := real.Runs(d.machines(), d.machineName(), d.cable())
	if err != nil || !left {
		return swept, err
	}
	if err := real.Clean(ctx, d.machines(), d.machineName(), d.cable()); err != nil {
		return swept, fmt.Errorf("ending the machines of an earlier run: %w", err)
	}
	return append(swept, "machines"), nil
}

// layNetwork creates the VPC. The lab calls it before the cloud starts, because the
// cloud's data plane listens on addresses in the VPC.
func (p *plan) layNetwork(context.Context) error {
	return real.Lay(p.dir.machines(), p.vpc())
}

// endpointFlags returns flags for the address of the API server that pods use. Without a
// VPC the Service "kubernetes" has no endpoint, because a Service may not have a loopback
// address as its endpoint. With a VPC the API server also resolves Services for webhooks
// and aggregated APIs to pod addresses itself. The reason is that no kube-proxy
// translates Service addresses on the host, because the host is not a node.
func (p *plan) endpointFlags() []string {
	if p.Nodes != Real {
		return []string{"--advertise-address=" + host, "--endpoint-reconciler-type=none"}
	}
	return []string{"--advertise-address=" + p.vpc().Host.String(), "--enable-aggregator-routing"}
}

// serverIPs returns the addresses at which machines find the servers of the control plane.
func (p *plan) serverIPs() []net.IP {
	if p.Nodes != Real {
		return nil
	}
	return []net.IP{p.vpc().Host.AsSlice()}
}

// podFlags returns flags for the assignment of pod ranges and for the routes to these
// ranges. For hollow nodes kube-controller-manager assigns the ranges, and there are no
// routes. For real nodes the cloud's network assigns a range to each new instance. The
// cloud controller manager then writes the range into the Node and a route into the
// cloud's route table.
func (p *plan) podFlags() (cloud, controllerManager, ccm []string) {
	if p.Nodes != Real {
		return nil, []string{"--allocate-node-cidrs", "--cluster-cidr=" + podRange}, nil
	}
	pods := "--cluster-cidr=" + p.networks.Pods
	return []string{"--pod-range=" + p.networks.Pods}, []string{"--allocate-node-cidrs=false", pods},
		[]string{"--allocate-node-cidrs", "--cidr-allocator-type=CloudAllocator", "--configure-cloud-routes", pods, "--route-reconciliation-period=10s"}
}

// clientFlags returns flags that keep the client's address on connections through load
// balancers, as Kubernetes' rules for external traffic expect.
func (p *plan) clientFlags() []string {
	if p.Nodes != Real {
		return nil
	}
	return []string{"--show-clients"}
}

// ipMode returns "VIP" if kube-proxy may send the traffic of pods to a load balancer's
// address directly to the Service. This is correct for real nodes, because their load
// balancers keep the client's address.
func (p *plan) ipMode() string {
	if p.Nodes == Real {
		return "VIP"
	}
	return "Proxy"
}

// realHypervisor returns the component that runs instances as machines. It is a part of this process.
func (p *plan) realHypervisor(log *slog.Logger) component {
	return component{
		name: "hypervisor",
		run: func(ctx context.Context) error {
			k, err := connect(p.dir.configFile("hypervisor.kubeconfig"), hypervisorAgent)
			if err != nil {
				return err
			}
			c, err := p.realConfig(k)
			if err != nil {
				return err
			}
			return real.Run(ctx, log.With("component", "hypervisor"), c)
		},
		after: []string{"cloudsim", "kube-apiserver"},
	}
}

func (p *plan) realConfig(k kubernetes.Interface) (real.Config, error) {
	n := p.vpc()
	files, err := p.registryFiles()
	api, cloud := p.ports["kube-apiserver"], p.ports["cloudsim"]
	return inCluster(k, p.pki, api, real.Config{
		Cloud: p.hypervisorClient(), Dir: p.dir.machines(), Name: p.dir.machineName(), Network: n,
		Registry: real.Registry{Name: p.registryName(), CA: p.dir.path("cloud", "registry", "ca.crt"), Kubelet: files},
		Programs: realPrograms(p.Config), ClusterDNS: clusterDNS.String(),
		Router: &real.Services{
			Metadata:  p.componentClient("metadata"),
			Endpoints: map[int]string{api: p.ports.addr("kube-apiserver"), cloud: p.ports.addr("cloudsim")},
		},
		Say: p.say, Volumes: p.realVolumes(), NetworkProxy: p.realNetworkProxy(),
	}), err
}

// inCluster adds the functions that make machines nodes of a cluster. The machines call
// the API server at the host's address in the VPC and at the given port.
func inCluster(k kubernetes.Interface, keys pki, port int, c real.Config) real.Config {
	server := "https://" + net.JoinHostPort(c.Network.Host.String(), strconv.Itoa(port))
	c.Identify = func(dir, host string, address netip.Addr) error {
		return keys.identifyMachine(dir, server, host, address)
	}
	c.NodeOf = func(ctx context.Context, name string) (string, error) {
		node, err := k.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		return node.Spec.ProviderID, nil
	}
	c.NotReady = func(ctx context.Context, name, providerID string) error {
		return notReadyNode(ctx, k, name, providerID)
	}
	return c
}

// notReadyNode sets a machine's Node to NotReady, because the kubelet has no time to do this itself.
func notReadyNode(ctx context.Context, k kubernetes.Interface, name, providerID string) error {
	node, err := k.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && node.Spec.ProviderID != providerID {
		return nil
	}
	if err != nil {
		return err
	}
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID},
		"status": map[string]any{"conditions": []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "node is shutting down",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}}},
	})
	if err != nil {
		return err
	}
	_, err = k.CoreV1().Nodes().PatchStatus(ctx, name, patch)
	return err
}

func realPrograms(c Config) real.Programs {
	all := programs{c.Kube, c.KubeBinDir}
	return real.Programs{
		Machine: c.MachineDir, Images: filepath.Join(c.MachineDir, "images"), Archives: c.Archives,
		Plugin: filepath.Join(filepath.Dir(c.Self), node.Plugin), Allinone: c.Self,
		Kubelet: all.find("kubelet").path, Proxy: all.find("kube-proxy").path, Kubectl: all.find("kubectl").path,
	}
}

// identifyMachine writes the certificates, the CA and the kubeconfigs of a machine. It
// runs on each boot, because the machine's address may have changed.
func (p pki) identifyMachine(dir, server, name string, address netip.Addr) error {
	ca, err := p.load(clusterCA)
	if err != nil {
		return err
	}
	machine := pki{dir: dir, now: p.now}
	raw, err := os.ReadFile(p.crt(clusterCA))
	if err != nil {
		return err
	}
	if err := writeFile(machine.crt(clusterCA), raw); err != nil {
		return err
	}
	for _, l := range []leaf{
		{name: "kubelet", user: "system:node:" + name, group: []string{"system:nodes"}, use: asServer, dns: []string{name}, ips: []net.IP{address.AsSlice()}},
		{name: "kubelet-client", user: "system:node:" + name, group: []string{"system:nodes"}, use: asClient},
	} {
		if _, err := machine.ensureLeaf(l, ca); err != nil {
			return fmt.Errorf("certificate %s: %w", l.name, err)
		}
	}
	return errors.Join(
		machine.writeKubeconfig(filepath.Join(dir, "kubelet.kubeconfig"), server, "kubelet-client"),
		p.writeKubeconfig(filepath.Join(dir, "kube-proxy.kubeconfig"), server, "kube-proxy"))
}
