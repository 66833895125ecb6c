package real

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/cert"
	"github.com/cloudsim-dev/allinone/lab/real/boot"
)

// NetworkProxy holds the settings of the network proxy (KEP-1281). kube-apiserver reaches
// machines through this proxy, even if kube-apiserver has no route to the machines. Each
// machine runs an agent of the proxy.
type NetworkProxy struct {
	Server string // host:port to which the agents on machines connect
	CA     string // path of the server's certificate authority
	// Issue makes the certificate and the key of a machine's agent. With this certificate, the
	// agent can announce only the names, addresses and ranges of this instance to the proxy server.
	Issue func(cloudsim.Instance) (*cert.Pair, error)
}

// agentHealthPort is the loopback port of an agent's health endpoint on a machine.
const agentHealthPort = 8093

// addAgent adds the network proxy's agent to the boot settings of a machine. The agent reads its
// addresses, pod range and zone from the metadata service.
func (m *machine) addAgent(s *boot.Spec, i cloudsim.Instance) error {
	n := m.h.cfg.NetworkProxy
	if n == nil {
		return nil
	}
	if err := m.identifyAgent(i, n); err != nil {
		return err
	}
	s.Programs = append(s.Programs, boot.Program{
		Name: "proxy-agent", Path: filepath.Join(ownDir, "allinone"), Log: filepath.Join(logDir, "proxy-agent.log"),
		Args: []string{
			"proxy", "agent", "--agent-id=" + i.Name, "--agent-identifiers-from-metadata", "--proxy-server-host=" + n.Server,
			"--ca-cert=" + etcKubernetes + "/proxy-ca.crt", "--agent-cert=" + etcKubernetes + "/proxy-agent.crt", "--agent-key=" + etcKubernetes + "/proxy-agent.key",
			"--health-server-host=127.0.0.1", fmt.Sprintf("--health-server-port=%d", agentHealthPort), "--admin-server-port=0",
			"--sync-interval-cap=1s", "--graceful-shutdown-timeout=2s",
		},
	})
	return nil
}

// identifyAgent writes the files with which the machine's agent proves its identity to the proxy
// server.
func (m *machine) identifyAgent(i cloudsim.Instance, n *NetworkProxy) error {
	ca, err := os.ReadFile(n.CA)
	if err != nil {
		return fmt.Errorf("certificate authority of the network proxy: %w", err)
	}
	pair, err := n.Issue(i)
	if err != nil {
		return fmt.Errorf("certificate of the network proxy's agent: %w", err)
	}
	key, err := cert.KeyPEM(pair.Key)
	if err != nil {
		return err
	}
	if err := m.folder.writeAll(etcKubernetes, map[string][]byte{"proxy-ca.crt": ca, "proxy-agent.crt": pair.CertPEM(), "proxy-agent.key": key}); err != nil {
		return err
	}
	m.agentExpiry = pair.Cert.NotAfter
	return nil
}

// renewAgent replaces the certificate of a running machine's agent if the certificate expires soon.
// It also replaces a certificate that an earlier hypervisor issued, because this hypervisor does
// not know when that certificate expires. The agent reads the new files on its next connection to
// the proxy server. The server checks a certificate only when an agent connects, so an open
// connection does not need the new certificate.
func (m *machine) renewAgent(i cloudsim.Instance, now time.Time) error {
	n := m.h.cfg.NetworkProxy
	if n == nil || m.agentExpiry.Sub(now) > cert.RenewBefore {
		return nil
	}
	return m.identifyAgent(i, n)
}
