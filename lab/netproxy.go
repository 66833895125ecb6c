package lab

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/cert"
	"github.com/cloudsim-dev/allinone/lab/real"
	"github.com/cloudsim-dev/allinone/netproxy/egress"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// maxSocketPath is what unix(7) has room for, with a byte for its end.
const maxSocketPath = 107

// socket returns the path of a Unix socket. It is in the data dir, or, if that path is
// too long for a socket, in socketDir.
func (d Dir) socket(name string) string {
	path := d.path(name)
	if len(path) <= maxSocketPath {
		return path
	}
	return filepath.Join(d.socketDir(), name)
}

// socketDir is a folder for sockets with a short path, among the temporary files.
func (d Dir) socketDir() string {
	hash := sha256.Sum256([]byte(d))
	return filepath.Join(os.TempDir(), fmt.Sprintf("cloudsim-%x", hash[:8]))
}

// ensureSocketDir makes socketDir if the lab needs it. Its name is predictable, and any
// user can write beside it, so a folder that another user made is refused.
func (d Dir) ensureSocketDir() error {
	dir := d.socketDir()
	if !strings.HasPrefix(d.proxySocket(), dir) && !strings.HasPrefix(d.csiSockets(), dir) {
		return nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("folder for sockets: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("folder for sockets %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("folder for sockets %s belongs to another user or is open to others: remove it, or choose a shorter --data-dir", dir)
	}
	return nil
}

// proxySocket is where kube-apiserver finds the network proxy.
func (d Dir) proxySocket() string { return d.socket("proxy.sock") }

// ownProxy reports whether the lab runs a network proxy.
func (p *plan) ownProxy() bool { return p.NetworkProxy && p.EgressConfig == "" }

// egressFlags send what kube-apiserver has for nodes through a network proxy.
func (p *plan) egressFlags() []string {
	file := p.EgressConfig
	if p.ownProxy() {
		file = p.dir.configFile("egress.yaml")
	}
	if file == "" {
		return nil
	}
	return []string{"--egress-selector-config-file=" + file}
}

// writeEgress tells kube-apiserver where the network proxy is.
func (p *plan) writeEgress() error {
	raw, err := egress.Selector{Socket: p.dir.proxySocket(), HTTPConnect: true}.YAML()
	if err != nil {
		return err
	}
	return writeFile(p.dir.configFile("egress.yaml"), raw)
}

// proxyStrategies choose the agent of the kubelet's node, then that of the
// pod's. Where that is not there any agent will do; beside hollow nodes there is
// but one. The control plane is in no zone, so none is preferred.
const proxyStrategies = "destHost,destCIDR,default"

// proxyServer carries what kube-apiserver sends to nodes (KEP-1281). Nothing
// waits for it: kube-apiserver dials it when it has something to send.
func (p *plan) proxyServer() component {
	health := p.ports.url("http", "proxy-health")
	agents, after := host, []string(nil)
	if p.Nodes == Real {
		agents, after = p.vpc().Host.String(), []string{"cloudsim"} // which lays that network
	}
	return component{
		name: "proxy-server", address: "unix://" + p.dir.socket("proxy-admin.sock"), program: program{p.Self, "allinone"},
		args: []string{
			"proxy", "server", "--server-id=lab", "--mode=http-connect", "--uds-name=" + p.dir.proxySocket(), "--server-port=0",
			"--agent-bind-address=" + agents, fmt.Sprintf("--agent-port=%d", p.ports["proxy-agents"]), "--proxy-strategies=" + proxyStrategies,
			"--cluster-cert=" + p.pki.crt("proxy-server"), "--cluster-key=" + p.pki.key("proxy-server"), "--cluster-ca-cert=" + p.pki.crt(proxyCA),
			"--health-bind-address=" + host, fmt.Sprintf("--health-port=%d", p.ports["proxy-health"]),
			"--admin-socket=" + p.dir.socket("proxy-admin.sock"),
			"--graceful-shutdown-timeout=2s", // who watches or follows does not stop by itself
		},
		after: after,
		ready: httpProbe(health+"/healthz", nil),
	}
}

// proxyAgent stands where nodes are that the lab runs nothing on, hollow ones
// and those of the user: on this machine. Each real one has an agent of its own.
func (p *plan) proxyAgent() component {
	health := p.ports.url("http", "proxy-agent")
	return component{
		name: "proxy-agent", address: health, program: program{p.Self, "allinone"},
		args: []string{
			"proxy", "agent", "--agent-id=lab", "--proxy-server-host=" + host, fmt.Sprintf("--proxy-server-port=%d", p.ports["proxy-agents"]),
			"--ca-cert=" + p.pki.crt(proxyCA), "--agent-cert=" + p.pki.crt("proxy-agent"), "--agent-key=" + p.pki.key("proxy-agent"),
			"--health-server-host=" + host, fmt.Sprintf("--health-server-port=%d", p.ports["proxy-agent"]), "--admin-server-port=0",
			"--dial-local", // hollow nodes have addresses in 127.64.0.0/16
			"--sync-interval-cap=1s", "--graceful-shutdown-timeout=2s",
		},
		after: []string{"proxy-server"},
		ready: httpProbe(health+"/readyz", nil),
	}
}

// realNetworkProxy is what the agent on a machine needs; nil if kube-apiserver
// goes to nodes by itself, or through a network proxy of the user's.
func (p *plan) realNetworkProxy() *real.NetworkProxy {
	if !p.ownProxy() {
		return nil
	}
	return p.pki.networkProxy(net.JoinHostPort(p.vpc().Host.String(), strconv.Itoa(p.ports["proxy-agents"])))
}

// networkProxy returns what the agents of machines need to call a server, host:port.
func (p pki) networkProxy(server string) *real.NetworkProxy {
	return &real.NetworkProxy{Server: server, CA: p.crt(proxyCA), Issue: p.issueAgent}
}

// issueAgent signs the certificate of a machine's agent. It grants the names,
// addresses and pod ranges of the instance, which its agent learns from the
// metadata service. So an agent cannot receive the connections of other nodes.
func (p pki) issueAgent(i cloudsim.Instance) (certPEM, keyPEM []byte, err error) {
	ca, err := p.load(proxyCA)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "proxy-agent:" + i.Name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: asClient,
	}
	agentOf(i).Grant(template)
	pair, err := cert.Sign(template, ca, time.Now())
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = cert.KeyPEM(pair.Key)
	return pair.CertPEM(), keyPEM, err
}

// agentOf returns the identifiers of the agent on an instance.
func agentOf(i cloudsim.Instance) wire.Identifiers {
	id := wire.Identifiers{Host: []string{i.Name}}
	for _, a := range i.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		switch {
		case err != nil:
			id.Host = append(id.Host, a.Address) // a host name
		case ip.Is4():
			id.IPv4 = append(id.IPv4, ip)
		default:
			id.IPv6 = append(id.IPv6, ip)
		}
	}
	for _, r := range i.PodRanges {
		if p, err := netip.ParsePrefix(r); err == nil {
			id.CIDR = append(id.CIDR, p.Masked())
		}
	}
	return id
}
