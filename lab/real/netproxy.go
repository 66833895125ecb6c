package real

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	// Issue returns the certificate and the key of a machine's agent as PEM. The certificate
	// permits the agent to accept connections only for the names, addresses and ranges of this
	// instance.
	Issue func(cloudsim.Instance) (cert, key []byte, err error)
}

// agentHealthPort is the loopback port of an agent's health endpoint on a machine.
const agentHealthPort = 8093

// agentCertificate is the path of the agent's certificate on its machine.
const agentCertificate = etcKubernetes + "/proxy-agent.crt"

// networkProxy adds the agent to the boot settings of a machine. The agent reads its
// addresses, pod range and zone from the metadata service.
func (f folder) networkProxy(s *boot.Spec, i cloudsim.Instance, n *NetworkProxy) error {
	if n == nil {
		return nil
	}
	if err := f.identifyAgent(i, n); err != nil {
		return err
	}
	s.Programs = append(s.Programs, boot.Program{
		Name: "proxy-agent", Path: filepath.Join(ownDir, "allinone"), Log: filepath.Join(logDir, "proxy-agent.log"),
		Args: []string{
			"proxy", "agent", "--agent-id=" + i.Name, "--agent-identifiers-from-metadata", "--proxy-server-host=" + n.Server,
			"--ca-cert=" + etcKubernetes + "/proxy-ca.crt", "--agent-cert=" + agentCertificate, "--agent-key=" + etcKubernetes + "/proxy-agent.key",
			"--health-server-host=127.0.0.1", fmt.Sprintf("--health-server-port=%d", agentHealthPort), "--admin-server-port=0",
			"--sync-interval-cap=1s", "--graceful-shutdown-timeout=2s",
		},
	})
	return nil
}

// identifyAgent writes the files with which the machine's agent authenticates.
func (f folder) identifyAgent(i cloudsim.Instance, n *NetworkProxy) error {
	ca, err := os.ReadFile(n.CA)
	if err != nil {
		return fmt.Errorf("certificate authority of the network proxy: %w", err)
	}
	cert, key, err := n.Issue(i)
	if err != nil {
		return fmt.Errorf("certificate of the network proxy's agent: %w", err)
	}
	for name, raw := range map[string][]byte{"proxy-ca.crt": ca, filepath.Base(agentCertificate): cert, "proxy-agent.key": key} {
		if err := f.writeFile(filepath.Join(etcKubernetes, name), raw, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// renewAgent replaces the certificate of a running machine's agent if the certificate
// expires soon or cannot be read. The agent reads the new files on its next connection to
// the proxy server. The server checks a certificate only when an agent connects.
func (f folder) renewAgent(i cloudsim.Instance, n *NetworkProxy, now time.Time) error {
	if n == nil {
		return nil
	}
	if end, err := f.agentCertificateEnd(); err == nil && end.Sub(now) > cert.RenewBefore {
		return nil
	}
	return f.identifyAgent(i, n)
}

// agentCertificateEnd returns the expiry time of the certificate of the machine's agent.
func (f folder) agentCertificateEnd() (time.Time, error) {
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return time.Time{}, err
	}
	raw, err := root.ReadFile(strings.TrimPrefix(agentCertificate, "/"))
	if err := errors.Join(err, root.Close()); err != nil {
		return time.Time{}, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return time.Time{}, errors.New("no certificate in " + agentCertificate)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, err
	}
	return c.NotAfter, nil
}
