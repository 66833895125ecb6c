package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab/hollow"
	"github.com/cloudsim-dev/allinone/netproxy/egress"
)

// Composed is a lab whose components run in containers of their own, each called
// by its name: docker-compose.yaml starts them. It is the absolute path of a
// folder that has a folder for each service, which is a volume of that service:
// a service sees its own keys and no other's.
type Composed string

// composedServices are the services that read files of Composed, and the files of
// the lab's keys that each has. The folder of that name is mounted in it, at the
// same path as where the files are made.
var composedServices = []struct {
	name  string
	files []string
	user  string // whose kubeconfig it has; "" for none
}{
	{"cloudsim", nil, ""}, // where it keeps the administrator's token
	{"etcd", []string{"etcd.crt", "etcd.key", "etcd-ca.crt"}, ""},
	{"kube-apiserver", []string{
		"kube-apiserver.crt", "kube-apiserver.key", "ca.crt", "etcd-ca.crt",
		"kube-apiserver-etcd-client.crt", "kube-apiserver-etcd-client.key",
		"kube-apiserver-kubelet-client.crt", "kube-apiserver-kubelet-client.key",
		"service-account.key", "service-account.pub",
		"front-proxy-ca.crt", "front-proxy-client.crt", "front-proxy-client.key",
	}, ""},
	{"kube-controller-manager", []string{"kube-controller-manager.crt", "kube-controller-manager.key", "ca.crt", "ca.key", "service-account.key"}, "kube-controller-manager"},
	{"kube-scheduler", []string{"kube-scheduler.crt", "kube-scheduler.key", "ca.crt"}, "kube-scheduler"},
	{"ccm", []string{"ccm.crt", "ccm.key", "ca.crt"}, "ccm"},
	{"proxy-server", []string{"proxy-server.crt", "proxy-server.key", "proxy-ca.crt"}, ""},
	{"proxy-agent", []string{"proxy-agent.crt", "proxy-agent.key", "proxy-ca.crt"}, ""},
	{"kwok", nil, "kwok"},
	{"hypervisor", []string{"ca.crt", "ca.key"}, "hypervisor"},             // it signs what hollow kubelets show
	{"router", []string{"ca.crt", "kube-proxy.crt", "kube-proxy.key"}, ""}, // with which it asks whether machines could
	{"machines", []string{ // of all hosts of machines: they sign the certificates of real kubelets and proxy agents
		"ca.crt", "ca.key", "kube-proxy.crt", "kube-proxy.key", "proxy-ca.crt", "proxy-ca.key",
	}, "hypervisor"},
	{"csi", nil, ""},
	{"csi-sidecars", nil, "csi-sidecars"},
	{"toolbox", nil, "admin"},
}

// Where the services of a composed lab call each other.
const (
	composedAPI    = "https://kube-apiserver:6443"
	composedCloud  = "http://cloudsim:8180"
	composedProxy  = "proxy-server:8091"
	composedSocket = "/run/proxy/proxy.sock" // of the network proxy, in a volume of the two that use it
)

func (c Composed) file(service, name string) string {
	return filepath.Join(string(c), service, name)
}

// keys is the folder that all others are filled from. Only the service that
// fills them has it.
func (c Composed) keys() string { return c.file("init", "pki") }

// Init makes the lab's keys, those that are missing or about to expire, and
// writes what each service reads. Who is outside of the containers finds the API
// server at published, a URL. Nodes are what they were the first time: the
// cloud's instances have addresses for those.
func (c Composed) Init(published string, nodes Nodes) (made []string, err error) {
	p := pki{dir: c.keys(), now: time.Now(), server: []net.IP{composedVPC().Host.AsSlice()}}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	if err := c.keepNodes(nodes); err != nil {
		return nil, err
	}
	if made, err = p.ensure(); err != nil {
		return made, err
	}
	for _, s := range composedServices {
		if err := c.fill(p, s.name, s.files, s.user); err != nil {
			return made, fmt.Errorf("what %s reads: %w", s.name, err)
		}
	}
	way, err := egress.Selector{Socket: composedSocket, HTTPConnect: true}.YAML()
	if err != nil {
		return made, err
	}
	return made, errors.Join(
		writeFile(c.file("kube-apiserver", "egress.yaml"), way),
		writeFile(c.file("kwok", "kwok.yaml"), kwokConfig),
		p.writeKubeconfig(c.file("toolbox", "host.kubeconfig"), published, "admin"),
	)
}

// fill writes what one service reads.
func (c Composed) fill(p pki, service string, files []string, user string) error {
	if err := os.MkdirAll(c.file(service, ""), 0o700); err != nil {
		return err
	}
	for _, name := range files {
		raw, err := os.ReadFile(filepath.Join(p.dir, name))
		if err == nil {
			err = writeFile(c.file(service, name), raw)
		}
		if err != nil {
			return err
		}
	}
	if user == "" {
		return nil
	}
	return p.writeKubeconfig(c.file(service, "kubeconfig"), composedAPI, user)
}

// Seed puts into the cluster and the cloud, which must be ready, what the other
// services need: roles, and service accounts whose tokens it writes for them;
// and, the first time, that many instances, which will be such nodes.
func (c Composed) Seed(ctx context.Context, instances int, nodes Nodes) error {
	k, err := connect(c.file("toolbox", "kubeconfig"), "")
	if err != nil {
		return err
	}
	if err := apply(ctx, k, rbacObjects); err != nil {
		return err
	}
	cloud := administrator(composedCloud, c.file("cloudsim", "admin.token"))
	if nodes == Real {
		if err := ensureToken(ctx, cloud, account{"router", cloudsim.RoleHypervisor}, c.token("router")); err != nil {
			return fmt.Errorf("service account of the router: %w", err)
		}
	}
	return seed(ctx, cloud, Dir(c.file("seed", "")), c.tokens(nodes), nodes, instances)
}

func (c Composed) token(service string) string { return c.file(service, "cloud.token") }

// Hypervise makes the cloud's instances hollow nodes, until ctx ends.
func (c Composed) Hypervise(ctx context.Context, log *slog.Logger) error {
	keys := pki{dir: c.file("hypervisor", "")}
	return hollow.Run(ctx, log, hollow.Config{
		Cloud:      componentClient("hypervisor", composedCloud, c.token("hypervisor")),
		Kubeconfig: c.file("hypervisor", "kubeconfig"), Kubelet: keys.kubelet,
	})
}

// Probe asks once whether what serves at url is ready. For https, ca is the file
// of its authority; client the files of a certificate, NAME.crt and NAME.key
// without their ends, or "".
func Probe(ctx context.Context, url, ca, client string) error {
	if ca == "" {
		return httpProbe(url, nil)(ctx)
	}
	pool, err := authorities(ca)
	if err != nil {
		return err
	}
	conf := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if client != "" {
		pair, err := tls.LoadX509KeyPair(client+".crt", client+".key")
		if err != nil {
			return err
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return httpProbe(url, conf)(ctx)
}
