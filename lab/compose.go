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

// Composed is a lab with components that run in containers. docker-compose.yaml starts
// the containers. Components call each other by their service names. The value is the
// absolute path of a folder with one subfolder for each service. Each subfolder is a
// volume of its service only, so a service sees its own keys and no others.
type Composed string

// composedServices lists the services that read files from Composed, and the keys that
// each service gets. The service's subfolder is mounted in its container at the same
// path at which Init writes the files.
var composedServices = []struct {
	name  string
	files []string
	user  string // user of the service's kubeconfig, "" means no kubeconfig
}{
	{"cloudsim", nil, ""}, // the folder for the administrator's token
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
	{"hypervisor", []string{"ca.crt", "ca.key"}, "hypervisor"},             // the CA signs the serving certificates of hollow kubelets
	{"router", []string{"ca.crt", "kube-proxy.crt", "kube-proxy.key"}, ""}, // the router's health check calls the API server with this certificate
	{"machines", []string{ // for all hosts of machines: the CAs sign the certificates of real kubelets and proxy agents
		"ca.crt", "ca.key", "kube-proxy.crt", "kube-proxy.key", "proxy-ca.crt", "proxy-ca.key",
	}, "hypervisor"},
	{"csi", nil, ""},
	{"csi-sidecars", nil, "csi-sidecars"},
	{"toolbox", nil, "admin"},
}

// Addresses at which the services of a composed lab call each other.
const (
	composedAPI    = "https://kube-apiserver:6443"
	composedCloud  = "http://cloudsim:8180"
	composedProxy  = "proxy-server:8091"
	composedSocket = "/run/proxy/proxy.sock" // socket of the network proxy, in a volume that its two users share
)

func (c Composed) file(service, name string) string {
	return filepath.Join(string(c), service, name)
}

// keys returns the folder with all keys. Init copies keys from here to the folders of
// the services. Only the service init mounts this folder.
func (c Composed) keys() string { return c.file("init", "pki") }

// Init makes the lab's keys that are missing or about to expire, and writes the files
// that each service reads. The argument published is the URL of the API server for
// clients outside the containers. Init returns the names of the keys that it made.
// Init returns an error if the kind of nodes differs from the kind in the first call.
// The addresses of the cloud's instances depend on the kind of nodes.
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
			return made, fmt.Errorf("configuration of %s: %w", s.name, err)
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

// fill writes the files that one service reads.
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

// Seed creates the objects that the other services need in the cluster and in the cloud.
// The cluster and the cloud must be ready. It applies the roles, makes service accounts,
// and writes the accounts' tokens for the services. The first time, it also creates the
// instances.
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

// Hypervise runs the hypervisor of hollow nodes until ctx ends.
func (c Composed) Hypervise(ctx context.Context, log *slog.Logger) error {
	keys := pki{dir: c.file("hypervisor", "")}
	return hollow.Run(ctx, log, hollow.Config{
		Cloud:      componentClient("hypervisor", composedCloud, c.token("hypervisor")),
		Kubeconfig: c.file("hypervisor", "kubeconfig"), Kubelet: keys.kubelet,
	})
}

// Probe asks once whether the server at url is ready. The argument ca is the file of
// the server's certificate authority if url is an https URL. It is "" if url is an
// http URL. The argument client is the path of a client certificate and its key,
// without the endings .crt and .key. It is "" if the probe uses no client
// certificate.
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
