package lab

import (
	"context"
	"crypto/tls"
	_ "embed"
	"fmt"
	"log/slog"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/lab/hollow"
)

// components is the table of what runs. Order matters twice: what a row comes
// after stands above it, and people read it from the top.
func (p *plan) components(log *slog.Logger) ([]component, error) {
	etcdTLS, err := p.pki.clientTLS(etcdCA, "kube-apiserver-etcd-client")
	if err != nil {
		return nil, err
	}
	clusterTLS, err := p.pki.clientTLS(clusterCA, "admin")
	if err != nil {
		return nil, err
	}
	apiServer := p.apiServer(clusterTLS)
	apiServer.then = p.furnish
	table := []component{
		p.cloud(), p.etcd(etcdTLS), apiServer,
		p.controllerManager(clusterTLS), p.scheduler(clusterTLS), p.ccm(clusterTLS),
	}
	if p.ownProxy() {
		table = append(table, p.proxyServer())
	}
	if p.ownProxy() && p.Nodes != Real {
		table = append(table, p.proxyAgent())
	}
	switch p.Nodes {
	case Hollow:
		table = append(table, p.kwok(), p.hypervisor(log))
	case Real:
		table[0].before = p.layNetwork
		if p.hasVolumes() {
			table = append(table, p.csiController(), p.csiSidecars())
		}
		table = append(table, p.realHypervisor(log))
	}
	return table, nil
}

// cloud is the simulated cloud. It needs nothing of the cluster, and so the
// first instances boot while the control plane starts.
func (p *plan) cloud() component {
	url := p.ports.url("http", "cloudsim")
	more, _, _ := p.podFlags()
	if p.Catalogue != "" {
		more = append(more, "--catalogue="+p.Catalogue)
	}
	return component{
		name: "cloudsim", address: url, program: program{p.Self, "allinone"},
		args: append([]string{
			"cloudsim", "--listen=" + p.ports.addr("cloudsim"), "--data-dir=" + p.dir.path("cloud"),
			"--admin-token-file=" + p.dir.AdminToken(), "--profile=" + p.Profile,
			"--instance-range=" + p.networks.Instances, "--load-balancer-range=" + p.networks.LoadBalancers,
			"--load-balancer-range6=" + p.networks.loadBalancers6(),
		}, append(append(more, p.registryFlags()...), p.clientFlags()...)...),
		ready: httpProbe(url+"/readyz", nil),
		then:  p.seed,
	}
}

// ccm is the cloud controller manager: upstream's controllers, our provider.
// It looks every second, and not every five, whether the instance of a node
// that is not ready is gone or stopped: it asks the cloud about those only.
func (p *plan) ccm(conf *tls.Config) component {
	url := p.ports.url("https", "ccm")
	_, _, pods := p.podFlags()
	return component{
		name: "ccm", address: url, program: program{p.Self, "allinone"},
		args: append(append(append([]string{"ccm"}, p.secure("ccm")...), pods...),
			"--cloud-url="+p.ports.url("http", "cloudsim"), "--cloud-token-file="+p.dir.tokenFile("ccm"),
			"--cluster-name=lab", "--load-balancer-ip-mode="+p.ipMode(), "--leader-elect=false", "--profiling=false", "--node-monitor-period=1s",
		),
		after: []string{"cloudsim", "kube-apiserver"},
		ready: httpProbe(url+"/healthz", conf),
	}
}

//go:embed kwok.yaml
var kwokConfig []byte

// kwok keeps the nodes alive that the hypervisor hands to it, and runs their
// pods. Its port answers health checks only: logs and exec would read files
// and run commands on this machine.
func (p *plan) kwok() component {
	url := p.ports.url("http", "kwok")
	return component{
		name: "kwok", address: url, program: p.programs.find("kwok"),
		args: []string{
			"--config=" + p.dir.configFile("kwok.yaml"), "--kubeconfig=" + p.dir.configFile("kwok.kubeconfig"),
			"--server-address=" + p.ports.addr("kwok"), fmt.Sprintf("--node-lease-duration-seconds=%d", leaseSeconds),
		},
		after:  []string{"kube-apiserver"},
		before: p.releaseLeases,
		ready:  httpProbe(url+"/healthz", nil),
	}
}

// hypervisor makes instances nodes. It is a part of this process.
func (p *plan) hypervisor(log *slog.Logger) component {
	conf := hollow.Config{Cloud: p.hypervisorClient(), Kubeconfig: p.dir.configFile("hypervisor.kubeconfig"), Kubelet: p.pki.kubelet}
	return component{
		name:  "hypervisor",
		run:   func(ctx context.Context) error { return hollow.Run(ctx, log.With("component", "hypervisor"), conf) },
		after: []string{"cloudsim", "kube-apiserver"},
	}
}

// hypervisorClient is the cloud as the hypervisor sees it.
func (p *plan) hypervisorClient() *client.Client { return p.componentClient("hypervisor") }

// componentClient is the cloud as a component with an account of its own sees it.
func (p *plan) componentClient(name string) *client.Client {
	return componentClient(name, p.ports.url("http", "cloudsim"), p.dir.tokenFile(name))
}

func componentClient(name, url, tokenFile string) *client.Client {
	c := administrator(url, tokenFile)
	c.Project, c.UserAgent = "", "allinone-"+name
	return c
}

// kubernetes is the API as the administrator. It dials when it is first used.
func (p *plan) kubernetes() (*kubernetes.Clientset, error) { return connect(p.dir.Kubeconfig(), "") }

// hypervisorAgent is what the cluster's audit calls the hypervisor.
const hypervisorAgent = "allinone-hypervisor"

// connect returns the API as a kubeconfig's user, under the name of an agent, or
// "" for the program's.
func connect(kubeconfig, agent string) (*kubernetes.Clientset, error) {
	conf, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	conf.QPS, conf.UserAgent = -1, agent // no limit: we are few, and wait for the answers
	return kubernetes.NewForConfig(conf)
}
