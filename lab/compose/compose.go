package compose

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/hollow"
	"github.com/cloudsim-dev/allinone/netproxy/egress"
)

// Dir is the absolute path of the folder with the files of a lab that runs in containers.
// docker-compose.yaml starts these containers. The folder contains one subfolder for each service.
// Each subfolder is a volume. A service mounts only its own subfolder, so it can read only its own
// keys. The exceptions are the helper services init, seed, addons and toolbox, which also mount
// subfolders of other services. The services call each other by their names.
type Dir string

// serviceFiles lists the services that read files from Dir, and the keys that each service gets.
// The subfolder of a service has the same path in the service's container and in the container of
// the service init.
var serviceFiles = []struct {
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
	{"console", nil, "console"},
	{"toolbox", nil, "admin"},
}

// Addresses at which the services of a lab in containers call each other.
const (
	apiURL       = "https://kube-apiserver:6443"
	cloudURL     = "http://cloudsim:8180"
	proxyAddress = "proxy-server:8091"
	proxySocket  = "/run/proxy/proxy.sock" // socket of the network proxy, in a volume that proxy-server and kube-apiserver share
)

func (c Dir) file(service, name string) string {
	return filepath.Join(string(c), service, name)
}

// keysDir returns the folder with all keys. Init copies keys from here to the folders of
// the services. Only the service init mounts this folder.
func (c Dir) keysDir() string { return c.file("init", "pki") }

// Init makes the lab's keys that are missing or about to expire, and writes the files
// that each service reads. Clients outside the containers call the API server at
// publicURL. Init returns the names of the keys that it made. It returns an error if the
// kind of nodes differs from the kind in the first call, because the addresses of the
// cloud's instances depend on this kind.
func (c Dir) Init(publicURL string, nodes lab.Nodes) (made []string, err error) {
	p := lab.PKI{Dir: c.keysDir(), Now: time.Now(), Servers: []net.IP{vpc().Host.AsSlice()}}
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := c.keepNodes(nodes); err != nil {
		return nil, err
	}
	if made, err = p.Ensure(); err != nil {
		return made, err
	}
	for _, s := range serviceFiles {
		if err := c.fill(p, s.name, s.files, s.user); err != nil {
			return made, fmt.Errorf("configuration of %s: %w", s.name, err)
		}
	}
	way, err := egress.Selector{Socket: proxySocket, HTTPConnect: true}.YAML()
	if err != nil {
		return made, err
	}
	return made, errors.Join(
		lab.WriteFile(c.file("kube-apiserver", "egress.yaml"), way),
		lab.WriteFile(c.file("kwok", "kwok.yaml"), lab.KwokConfig),
		p.WriteKubeconfig(c.file("toolbox", "host.kubeconfig"), publicURL, "admin"),
	)
}

// fill writes the files that one service reads.
func (c Dir) fill(p lab.PKI, service string, files []string, user string) error {
	if err := os.MkdirAll(c.file(service, ""), 0o700); err != nil {
		return err
	}
	for _, name := range files {
		raw, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err == nil {
			err = lab.WriteFile(c.file(service, name), raw)
		}
		if err != nil {
			return err
		}
	}
	if user == "" {
		return nil
	}
	return p.WriteKubeconfig(c.file(service, "kubeconfig"), apiURL, user)
}

// Seed creates the objects that the services need in the cluster and in the
// cloud. The cluster and the cloud must be ready. Seed applies the roles, makes
// service accounts, and writes the accounts' tokens for the services. The first
// call also creates the instances.
func (c Dir) Seed(ctx context.Context, instances int, nodes lab.Nodes) error {
	k, err := lab.Connect(c.file("toolbox", "kubeconfig"), "")
	if err != nil {
		return err
	}
	if err := lab.InstallRoles(ctx, k); err != nil {
		return err
	}
	cloud := lab.Administrator(cloudURL, c.file("cloudsim", "admin.token"))
	if nodes == lab.Real {
		if err := lab.EnsureToken(ctx, cloud, lab.Account{Name: "router", Role: cloudsim.RoleHypervisor}, c.token("router")); err != nil {
			return fmt.Errorf("service account of the router: %w", err)
		}
	}
	done := c.file("seed", "lab.json") // exists after the first call has created the instances
	before, err := lab.ReadIfThere(done)
	if err != nil {
		return err
	}
	if err := lab.Seed(ctx, cloud, c.tokenPath(nodes), nodes, instances, before == nil); err != nil || before != nil {
		return err
	}
	return lab.WriteDurably(done, []byte("{\"seeded\": true}\n"))
}

func (c Dir) token(service string) string { return c.file(service, "cloud.token") }

// Hypervise runs the hypervisor of hollow nodes until ctx ends.
func (c Dir) Hypervise(ctx context.Context, log *slog.Logger) error {
	keys := lab.PKI{Dir: c.file("hypervisor", "")}
	return hollow.Run(ctx, log, hollow.Config{
		Cloud:      lab.ComponentClient("hypervisor", cloudURL, c.token("hypervisor")),
		Kubeconfig: c.file("hypervisor", "kubeconfig"), Kubelet: keys.KubeletTLS,
	})
}
