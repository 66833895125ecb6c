package process

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"

	"k8s.io/client-go/kubernetes"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/hollow"
)

// componentTable returns the table of components. In this table, each component
// comes after the components that must start before it. The command 'allinone
// status' lists the components in this order.
func (p *plan) componentTable(log *slog.Logger) ([]component, error) {
	etcdTLS, err := p.pki.ClientTLS(lab.EtcdCA, "kube-apiserver-etcd-client")
	if err != nil {
		return nil, err
	}
	clusterTLS, err := p.pki.ClientTLS(lab.ClusterCA, "admin")
	if err != nil {
		return nil, err
	}
	apiServer := p.apiServer(clusterTLS)
	apiServer.then = p.installAddons
	table := []component{
		p.cloud(), p.etcd(etcdTLS), apiServer,
		p.controllerManager(clusterTLS), p.scheduler(clusterTLS), p.console(),
	}
	if p.CCM != NoCCM {
		table = append(table, p.ccm(clusterTLS))
	}
	if p.ownProxy() {
		table = append(table, p.proxyServer())
	}
	if p.ownProxy() && p.Nodes != lab.Real {
		table = append(table, p.proxyAgent())
	}
	switch p.Nodes {
	case lab.Hollow:
		table = append(table, p.kwok(), p.hypervisor(log))
	case lab.Real:
		table[0].before = p.layNetwork
		if p.hasVolumes() {
			table = append(table, p.csiController(), p.csiSidecars())
		}
		table = append(table, p.realHypervisor(log))
	}
	return table, nil
}

// cloud returns the component that runs the simulated cloud. The component does not depend
// on the cluster, so the first instances boot while the control plane starts.
func (p *plan) cloud() component {
	url := p.ports.url("http", "cloudsim")
	more, _, _ := p.podFlags()
	for _, d := range p.Dialects {
		more = append(more, "--dialect="+d+"="+p.ports.addr(dialectPort(d)))
	}
	if p.Catalogue != "" {
		more = append(more, "--catalogue="+p.Catalogue)
	}
	return component{
		name: "cloudsim", address: url, program: program{p.Self, "allinone"},
		args: append([]string{
			"cloudsim", "--listen=" + p.ports.addr("cloudsim"), "--data-dir=" + p.dir.path("cloud"),
			"--admin-token-file=" + p.dir.AdminToken(), "--profile=" + p.Profile,
			"--instance-range=" + p.networks.Instances, "--load-balancer-range=" + p.networks.LoadBalancers,
			"--load-balancer-range6=" + p.networks.LoadBalancers6(),
		}, append(append(more, p.registryFlags()...), p.clientFlags()...)...),
		ready: lab.HTTPProbe(url+"/readyz", nil),
		then:  p.seedCloud,
	}
}

// ccm returns the component that runs the cloud controller manager (CCM):
// Kubernetes' controllers with this project's provider. For each node that is
// not Ready, the CCM asks the cloud every second whether the instance still
// exists and runs. Upstream's default for this interval is five seconds. The
// CCM does not ask about Ready nodes, so the short interval causes few
// requests.
func (p *plan) ccm(conf *tls.Config) component {
	url := p.ports.url("https", "ccm")
	_, _, pods := p.podFlags()
	return component{
		name: "ccm", address: url, program: program{p.Self, "allinone"},
		args: append(append(append([]string{"ccm"}, p.secureFlags("ccm")...), pods...),
			"--cloud-url="+p.ports.url("http", "cloudsim"), "--cloud-token-file="+p.dir.tokenFile("ccm"),
			"--cluster-name=lab", "--load-balancer-ip-mode="+p.ipMode(), "--leader-elect=false", "--profiling=false", "--node-monitor-period=1s",
		),
		startAfter: []string{"cloudsim", "kube-apiserver"},
		ready:      lab.HTTPProbe(url+"/healthz", conf),
	}
}

// console returns the component that runs the web console, which shows the cloud and the cluster
// side by side. The web console calls the cluster only while a browser shows the console.
func (p *plan) console() component {
	url := p.ports.url("http", "console")
	return component{
		name: "console", address: url, program: program{p.Self, "allinone"},
		args: []string{
			"console", "--listen=" + p.ports.addr("console"), "--data-dir=" + string(p.dir), "--token-file=" + p.dir.tokenFile("console"),
			"--kubeconfig=" + p.dir.configFile("console.kubeconfig"),
		},
		startAfter: []string{"cloudsim"},
		ready:      lab.HTTPProbe(url+"/readyz", nil),
	}
}

// kwok returns the component kwok. This component renews the Leases of the nodes that have kwok's
// label, and simulates the pods of these nodes. The hypervisor sets this label. The port of kwok
// answers only health checks. The lab disables kwok's endpoints for logs and exec, because they
// read files and run commands on the host.
func (p *plan) kwok() component {
	url := p.ports.url("http", "kwok")
	return component{
		name: "kwok", address: url, program: p.programs.find("kwok"),
		args: []string{
			"--config=" + p.dir.configFile("kwok.yaml"), "--kubeconfig=" + p.dir.configFile("kwok.kubeconfig"),
			"--server-address=" + p.ports.addr("kwok"), fmt.Sprintf("--node-lease-duration-seconds=%d", leaseSeconds),
		},
		startAfter: []string{"kube-apiserver"},
		before:     p.releaseLeases,
		ready:      lab.HTTPProbe(url+"/healthz", nil),
	}
}

// hypervisor returns the component that makes hollow nodes from instances. The component
// is a part of this process.
func (p *plan) hypervisor(log *slog.Logger) component {
	conf := hollow.Config{Cloud: p.hypervisorClient(), Kubeconfig: p.dir.configFile("hypervisor.kubeconfig"), Kubelet: p.pki.KubeletTLS}
	return component{
		name:       "hypervisor",
		run:        func(ctx context.Context) error { return hollow.Run(ctx, log.With("component", "hypervisor"), conf) },
		startAfter: []string{"cloudsim", "kube-apiserver"},
	}
}

func (p *plan) hypervisorClient() *client.Client { return p.componentClient("hypervisor") }

func (p *plan) componentClient(name string) *client.Client {
	return lab.ComponentClient(name, p.ports.url("http", "cloudsim"), p.dir.tokenFile(name))
}

// adminClient returns a client that has the credentials of the cluster's administrator. The client
// connects on its first request.
func (p *plan) adminClient() (*kubernetes.Clientset, error) {
	return lab.Connect(p.dir.Kubeconfig(), "")
}
