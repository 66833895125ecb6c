package process

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/real"
	"github.com/cloudsim-dev/allinone/netproxy/egress"
)

// maxSocketPath is the maximum length of a socket's path, without the terminating zero byte. See
// unix(7).
const maxSocketPath = 107

// socket returns the path of a Unix socket in the data dir. If this path is too long for a socket,
// it returns a path in socketDir instead.
func (d Dir) socket(name string) string {
	path := d.path(name)
	if len(path) <= maxSocketPath {
		return path
	}
	return filepath.Join(d.socketDir(), name)
}

// socketDir returns the path of a folder for sockets. The path is short, because it is in
// os.TempDir().
func (d Dir) socketDir() string {
	hash := sha256.Sum256([]byte(d))
	return filepath.Join(os.TempDir(), fmt.Sprintf("cloudsim-%x", hash[:8]))
}

// ensureSocketDir creates socketDir if the path of a socket in the data dir would be too long.
// Otherwise it does nothing. The folder's name is predictable, and any user can create a folder
// with this name. ensureSocketDir therefore refuses a symbolic link, a folder of another user, and
// a folder to which other users have access.
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
		return fmt.Errorf("folder for sockets %s belongs to another user, or other users may access it: remove it, or choose a shorter --data-dir", dir)
	}
	return nil
}

// proxySocket returns the path of the socket on which the network proxy serves kube-apiserver.
func (d Dir) proxySocket() string { return d.socket("proxy.sock") }

// ownProxy reports whether the lab runs a network proxy.
func (p *plan) ownProxy() bool { return p.NetworkProxy && p.EgressConfig == "" }

// egressFlags returns the flags that make kube-apiserver reach nodes through a network proxy.
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

// writeEgress writes kube-apiserver's egress configuration, which contains the path of the network
// proxy's socket.
func (p *plan) writeEgress() error {
	raw, err := egress.Selector{Socket: p.dir.proxySocket(), HTTPConnect: true}.YAML()
	if err != nil {
		return err
	}
	return lab.WriteFile(p.dir.configFile("egress.yaml"), raw)
}

// proxyStrategies makes the proxy server prefer the agent on the node of the destination. The
// strategy destHost finds the agent of a kubelet's node, and destCIDR finds the agent of a pod's
// node. If this agent has no connection to the server, the strategy named default permits any
// agent. With hollow nodes there is only one agent. The control plane is in no zone, so no strategy
// prefers a zone.
const proxyStrategies = "destHost,destCIDR,default"

// proxyServer returns the component that forwards the connections of kube-apiserver to nodes
// (KEP-1281). kube-apiserver does not wait for the proxy server, because kube-apiserver connects to
// the proxy server only when it needs a connection to a node.
func (p *plan) proxyServer() component {
	health := p.ports.url("http", "proxy-health")
	agents, after := host, []string(nil)
	if p.Nodes == lab.Real {
		agents, after = p.vpc().Host.String(), []string{"cloudsim"} // cloudsim's component creates the VPC
	}
	return component{
		name: "proxy-server", address: "unix://" + p.dir.socket("proxy-admin.sock"), program: program{p.Self, "allinone"},
		args: []string{
			"proxy", "server", "--server-id=lab", "--mode=http-connect", "--uds-name=" + p.dir.proxySocket(), "--server-port=0",
			"--agent-bind-address=" + agents, fmt.Sprintf("--agent-port=%d", p.ports["proxy-agents"]), "--proxy-strategies=" + proxyStrategies,
			"--cluster-cert=" + p.pki.CertFile("proxy-server"), "--cluster-key=" + p.pki.KeyFile("proxy-server"), "--cluster-ca-cert=" + p.pki.CertFile(lab.ProxyCA),
			"--health-bind-address=" + host, fmt.Sprintf("--health-port=%d", p.ports["proxy-health"]),
			"--admin-socket=" + p.dir.socket("proxy-admin.sock"),
			"--graceful-shutdown-timeout=2s", // watches and followed logs do not end by themselves
		},
		startAfter: after,
		ready:      lab.HTTPProbe(health+"/healthz", nil),
	}
}

// proxyAgent returns the agent for hollow nodes and for nodes that the user adds. Only
// real nodes have their own agents, so this agent runs on the host of the lab.
func (p *plan) proxyAgent() component {
	health := p.ports.url("http", "proxy-agent")
	return component{
		name: "proxy-agent", address: health, program: program{p.Self, "allinone"},
		args: []string{
			"proxy", "agent", "--agent-id=lab", "--proxy-server-host=" + host, fmt.Sprintf("--proxy-server-port=%d", p.ports["proxy-agents"]),
			"--ca-cert=" + p.pki.CertFile(lab.ProxyCA), "--agent-cert=" + p.pki.CertFile("proxy-agent"), "--agent-key=" + p.pki.KeyFile("proxy-agent"),
			"--health-server-host=" + host, fmt.Sprintf("--health-server-port=%d", p.ports["proxy-agent"]), "--admin-server-port=0",
			"--dial-local", // hollow nodes have addresses in 127.64.0.0/16
			"--sync-interval-cap=1s", "--graceful-shutdown-timeout=2s",
		},
		startAfter: []string{"proxy-server"},
		ready:      lab.HTTPProbe(health+"/readyz", nil),
	}
}

// renewProxy renews expiring certificates of the network proxy, once a day until ctx
// ends. The hypervisor renews the certificates of the machines' agents.
func (p *plan) renewProxy(ctx context.Context, log *slog.Logger) {
	daily := time.NewTicker(24 * time.Hour)
	defer daily.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-daily.C:
			if err := p.pki.RenewProxy(now); err != nil {
				log.Error("certificates of the network proxy not renewed", "err", err)
			}
		}
	}
}

// realNetworkProxy returns the settings of the agent on a machine. It returns nil if
// kube-apiserver dials nodes directly or through a network proxy of the user.
func (p *plan) realNetworkProxy() *real.NetworkProxy {
	if !p.ownProxy() {
		return nil
	}
	return p.pki.NetworkProxy(net.JoinHostPort(p.vpc().Host.String(), strconv.Itoa(p.ports["proxy-agents"])))
}
