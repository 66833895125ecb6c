package lab

import (
	_ "embed"
	"fmt"
	"log/slog"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
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
	apiServer.then = p.applyRBAC
	return []component{
		p.cloud(),
		p.etcd(etcdTLS),
		apiServer,
		p.controllerManager(clusterTLS),
		p.scheduler(clusterTLS),
		p.kwok(),
	}, nil
}

// cloud is the simulated cloud. It needs nothing of the cluster, and so the
// first instances boot while the control plane starts.
func (p *plan) cloud() component {
	url := p.ports.url("http", "cloudsim")
	return component{
		name: "cloudsim", address: url, program: program{p.Self, "allinone"},
		args: []string{
			"cloudsim", "--listen=" + p.ports.addr("cloudsim"), "--data-dir=" + p.dir.path("cloud"),
			"--admin-token-file=" + p.dir.AdminToken(), "--profile=" + p.Profile,
		},
		ready: httpProbe(url+"/readyz", nil),
		then:  p.seed,
	}
}

//go:embed kwok.yaml
var kwokConfig []byte

// kwok is the kubelets of the hollow nodes, in one process.
func (p *plan) kwok() component {
	return component{
		name: "kwok", address: p.ports.url("http", "kwok"), program: p.programs.find("kwok"),
		args: []string{
			"--config=" + p.dir.configFile("kwok.yaml"), "--kubeconfig=" + p.dir.configFile("kwok.kubeconfig"),
			"--server-address=" + p.ports.addr("kwok"),
		},
		after:  []string{"kube-apiserver"},
		before: p.releaseLeases,
		ready:  httpProbe(p.ports.url("http", "kwok")+"/healthz", nil),
	}
}

// kubernetes is the API as the administrator. It dials when it is first used.
func (p *plan) kubernetes() (*kubernetes.Clientset, error) {
	conf, err := clientcmd.BuildConfigFromFlags("", p.dir.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	conf.QPS = -1 // we are few, and wait for the answers
	return kubernetes.NewForConfig(conf)
}
