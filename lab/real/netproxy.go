package real

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab/real/boot"
)

// NetworkProxy is what lets kube-apiserver reach machines that it has no way
// to: an agent of its network proxy (KEP-1281) as one more program of each.
type NetworkProxy struct {
	Server string // host:port that agents call, from a machine
	CA     string // file: the authority of the server
	// Issue returns the certificate of a machine's agent and its key, as PEM. The
	// certificate grants the identifiers of that instance and no others.
	Issue func(cloudsim.Instance) (cert, key []byte, err error)
}

// agentHealthPort is where a machine's agent says on loopback how it is.
const agentHealthPort = 8093

// networkProxy adds to how a machine boots its agent. The metadata service
// tells the agent its addresses, its pods' range and its zone.
func (f folder) networkProxy(s *boot.Spec, i cloudsim.Instance, n *NetworkProxy) error {
	if n == nil {
		return nil
	}
	ca, err := os.ReadFile(n.CA)
	if err != nil {
		return fmt.Errorf("authority of the network proxy: %w", err)
	}
	cert, key, err := n.Issue(i)
	if err != nil {
		return fmt.Errorf("certificate of the network proxy's agent: %w", err)
	}
	for name, raw := range map[string][]byte{"proxy-ca.crt": ca, "proxy-agent.crt": cert, "proxy-agent.key": key} {
		if err := f.writeFile(filepath.Join(etcKubernetes, name), raw, 0o600); err != nil {
			return err
		}
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
