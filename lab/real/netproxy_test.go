package real

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/cert"
	"github.com/cloudsim-dev/allinone/lab/real/boot"
)

func testProxy(t *testing.T) *NetworkProxy {
	t.Helper()
	authority, err := cert.Sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(ca, authority.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return &NetworkProxy{Server: "10.100.255.2:8188", CA: ca, Issue: func(i cloudsim.Instance) (*cert.Pair, error) {
		return cert.Sign(&x509.Certificate{Subject: pkix.Name{CommonName: i.Name}}, authority, time.Now())
	}}
}

func machineWith(t *testing.T, n *NetworkProxy) *machine {
	t.Helper()
	return &machine{h: &hypervisor{cfg: Config{NetworkProxy: n}}, folder: folder(t.TempDir())}
}

// The id of the network proxy's agent on a machine is the name of the instance. Only root can read
// the agent's certificate, the agent's key, and the CA certificate.
func TestNetworkProxy(t *testing.T) {
	var s boot.Spec
	if err := machineWith(t, nil).addAgent(&s, cloudsim.Instance{}); err != nil || len(s.Programs) > 0 {
		t.Errorf("without a network proxy the machine starts %v, %v", s.Programs, err)
	}
	n := testProxy(t)
	noCA := *n
	noCA.CA += ".missing"
	if err := machineWith(t, &noCA).addAgent(&s, cloudsim.Instance{}); err == nil {
		t.Error("the machine starts an agent without a certificate authority")
	}
	m := machineWith(t, n)
	i := cloudsim.Instance{}
	i.Name = "node-7"
	if err := m.addAgent(&s, i); err != nil || len(s.Programs) != 1 {
		t.Fatalf("programs of the machine: got %v, %v", s.Programs, err)
	}
	for _, want := range []string{"--agent-id=node-7", "--agent-identifiers-from-metadata", "--proxy-server-host=10.100.255.2:8188"} {
		if !slices.Contains(s.Programs[0].Args, want) {
			t.Errorf("the agent starts without %s: %v", want, s.Programs[0].Args)
		}
	}
	for _, name := range []string{"proxy-ca.crt", "proxy-agent.crt", "proxy-agent.key"} {
		if info, err := os.Stat(m.folder.path(etcKubernetes, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", name, info, err)
		}
	}
	pair, err := cert.Load(m.folder.path(etcKubernetes, "proxy-agent.crt"), m.folder.path(etcKubernetes, "proxy-agent.key"))
	if err != nil || pair.Cert.Subject.CommonName != "node-7" {
		t.Errorf("certificate of the agent: got %+v, %v", pair, err)
	}
	want, err := os.ReadFile(n.CA)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(m.folder.path(etcKubernetes, "proxy-ca.crt")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("authority of the agent: got %q, %v", got, err)
	}
}

// renewAgent replaces the certificate of a running machine's agent 30 days before the certificate
// expires. If an earlier hypervisor issued the certificate, renewAgent replaces it at once.
func TestAgentCertificateIsRenewed(t *testing.T) {
	now := time.Now()
	n := testProxy(t)
	issued, issue := 0, n.Issue
	n.Issue = func(i cloudsim.Instance) (*cert.Pair, error) {
		issued++
		return issue(i)
	}
	m := machineWith(t, n)
	for _, step := range []struct {
		now  time.Time
		want int
	}{
		{now, 1}, // an earlier hypervisor issued the certificate
		{now, 1},
		{now.AddDate(0, 0, 365-31), 1},
		{now.AddDate(0, 0, 365-29), 2},
	} {
		if err := m.renewAgent(cloudsim.Instance{}, step.now); err != nil || issued != step.want {
			t.Errorf("at %s: got %d issued certificates, want %d; %v", step.now.Format(time.DateOnly), issued, step.want, err)
		}
	}
	if err := machineWith(t, nil).renewAgent(cloudsim.Instance{}, now); err != nil || issued != 2 {
		t.Errorf("without a network proxy: got %d issued certificates, %v", issued, err)
	}
}
