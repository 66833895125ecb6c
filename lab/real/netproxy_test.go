package real

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/cert"
	"github.com/cloudsim-dev/allinone/lab/real/boot"
)

// The agent of a machine has the node's name as its id. Only root can read the agent's
// certificate, key and authority.
func TestNetworkProxy(t *testing.T) {
	f := folder(t.TempDir())
	if err := os.MkdirAll(f.path(etcKubernetes), 0o755); err != nil {
		t.Fatal(err)
	}
	var s boot.Spec
	if err := f.networkProxy(&s, cloudsim.Instance{}, nil); err != nil || len(s.Programs) > 0 {
		t.Errorf("without a network proxy the machine starts %v, %v", s.Programs, err)
	}
	from := t.TempDir()
	n := &NetworkProxy{Server: "10.100.255.2:8188", CA: filepath.Join(from, "ca"), Issue: func(i cloudsim.Instance) (cert, key []byte, err error) {
		return []byte("cert of " + i.Name), []byte("key of " + i.Name), nil
	}}
	if err := f.networkProxy(&s, cloudsim.Instance{}, n); err == nil {
		t.Error("the machine starts an agent without a certificate authority")
	}
	if err := os.WriteFile(n.CA, []byte("ca"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := cloudsim.Instance{}
	i.Name = "node-7"
	if err := f.networkProxy(&s, i, n); err != nil || len(s.Programs) != 1 {
		t.Fatalf("programs of the machine: got %v, %v", s.Programs, err)
	}
	for _, want := range []string{"--agent-id=node-7", "--agent-identifiers-from-metadata", "--proxy-server-host=10.100.255.2:8188"} {
		if !slices.Contains(s.Programs[0].Args, want) {
			t.Errorf("the agent starts without %s: %v", want, s.Programs[0].Args)
		}
	}
	for name, want := range map[string]string{"proxy-ca.crt": "ca", "proxy-agent.crt": "cert of node-7", "proxy-agent.key": "key of node-7"} {
		info, err := os.Stat(f.path(etcKubernetes, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", name, info, err)
			continue
		}
		if raw, err := os.ReadFile(f.path(etcKubernetes, name)); string(raw) != want {
			t.Errorf("%s is %q, %v", name, raw, err)
		}
	}
}

// renewAgent replaces the certificate of a running machine's agent 30 days before the
// certificate expires.
func TestAgentCertificateIsRenewed(t *testing.T) {
	now := time.Now()
	authority, err := cert.Sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(ca, authority.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	issued := 0
	n := &NetworkProxy{CA: ca, Issue: func(cloudsim.Instance) (certPEM, keyPEM []byte, err error) {
		issued++
		pair, err := cert.Sign(&x509.Certificate{}, authority, now)
		if err != nil {
			return nil, nil, err
		}
		keyPEM, err = cert.KeyPEM(pair.Key)
		return pair.CertPEM(), keyPEM, err
	}}
	f := folder(t.TempDir())
	for _, step := range []struct {
		now  time.Time
		want int
	}{
		{now, 1}, // there is no certificate
		{now, 1},
		{now.AddDate(0, 0, 365-31), 1},
		{now.AddDate(0, 0, 365-29), 2},
	} {
		if err := f.renewAgent(cloudsim.Instance{}, n, step.now); err != nil || issued != step.want {
			t.Errorf("at %s: got %d issued certificates, want %d; %v", step.now.Format(time.DateOnly), issued, step.want, err)
		}
	}
	if err := f.renewAgent(cloudsim.Instance{}, nil, now); err != nil || issued != 2 {
		t.Errorf("without a network proxy: got %d issued certificates, %v", issued, err)
	}
}
