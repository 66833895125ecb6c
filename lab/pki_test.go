package lab

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func newPKI(t *testing.T) PKI {
	t.Helper()
	p := PKI{Dir: t.TempDir(), Now: time.Now()}
	made, err := p.Ensure()
	if err != nil {
		t.Fatal(err)
	}
	if want := 4 + len((PKI{}).listLeaves()) + 1; len(made) != want {
		t.Fatalf("Ensure: got %d keys and certificates: %v; want %d", len(made), made, want)
	}
	return p
}

func (p PKI) mustEnsure(t *testing.T) []string {
	t.Helper()
	made, err := p.Ensure()
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestPKIIsPrivateAndStays(t *testing.T) {
	p := newPKI(t)
	files, err := os.ReadDir(p.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", f.Name(), info.Mode(), err)
		}
	}
	if made := p.mustEnsure(t); len(made) != 0 {
		t.Errorf("the second run created %v", made)
	}
}

func TestPKIRenews(t *testing.T) {
	every := func(ca string) []string {
		var all []string
		for _, l := range (PKI{}).listLeaves() {
			if ca == "" || l.ca == ca {
				all = append(all, l.name)
			}
		}
		return all
	}
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, p *PKI)
		want   []string
	}{
		{"31 days before they expire", func(t *testing.T, p *PKI) { p.Now = p.Now.AddDate(0, 0, 365-31) }, nil},
		{"29 days before they expire", func(t *testing.T, p *PKI) { p.Now = p.Now.AddDate(0, 0, 365-29) }, every("")},
		{"a key of another certificate", func(t *testing.T, p *PKI) { copyFile(t, p.KeyFile("kwok"), p.KeyFile("ccm")) }, []string{"ccm"}},
		{"truncated certificate", func(t *testing.T, p *PKI) { truncate(t, p.CertFile("admin")) }, []string{"admin"}},
		{"a certificate of another authority", func(t *testing.T, p *PKI) {
			copyFile(t, p.KeyFile("kwok"), p.KeyFile("ccm"))
			copyFile(t, p.CertFile("kwok"), p.CertFile("ccm"))
		}, []string{"ccm"}},
		{"missing authority certificate", func(t *testing.T, p *PKI) { remove(t, p.KeyFile(EtcdCA)) }, append([]string{EtcdCA}, every(EtcdCA)...)},
		{"no public key", func(t *testing.T, p *PKI) { remove(t, filepath.Join(p.Dir, "service-account.pub")) }, nil},
		{"no signing key", func(t *testing.T, p *PKI) { remove(t, p.KeyFile("service-account")) }, []string{"service-account"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPKI(t)
			tc.damage(t, &p)
			if diff := cmp.Diff(tc.want, p.mustEnsure(t)); diff != "" {
				t.Error(diff)
			}
			if made := p.mustEnsure(t); len(made) != 0 {
				t.Errorf("the first run did not repair all files, because the second run created %v", made)
			}
			if _, err := os.Stat(filepath.Join(p.Dir, "service-account.pub")); err != nil {
				t.Error(err)
			}
		})
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()/2)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// TestPKIHandshakes proves with real TLS connections which clients each server accepts.
func TestPKIHandshakes(t *testing.T) {
	p := newPKI(t)
	for _, tc := range []struct {
		server, serverCA string
		client, clientCA string
		ok               bool
	}{
		{"etcd", EtcdCA, "kube-apiserver-etcd-client", EtcdCA, true},
		{"etcd", EtcdCA, "etcd", EtcdCA, true}, // the peer port of etcd
		{"etcd", EtcdCA, "admin", EtcdCA, false},
		{"kube-apiserver", ClusterCA, "admin", ClusterCA, true},
		{"kube-apiserver", ClusterCA, "ccm", ClusterCA, true},
		{"kube-apiserver", ClusterCA, "front-proxy-client", ClusterCA, false},
		{"kube-apiserver", ClusterCA, "kube-apiserver-etcd-client", ClusterCA, false},
		{"kube-apiserver", ClusterCA, "admin", EtcdCA, false}, // a client that trusts another authority
		{"admin", ClusterCA, "ccm", ClusterCA, false},         // a client certificate is not valid for a server
	} {
		t.Run(tc.client+" to "+tc.server, func(t *testing.T) {
			if got := p.handshake(t, tc.server, tc.serverCA, tc.client, tc.clientCA); (got == nil) != tc.ok {
				t.Errorf("got %v, want success %v", got, tc.ok)
			}
		})
	}
}

// handshake connects a client to a server. The argument clientCA is the authority that the client
// trusts, and serverCA is the authority that the server trusts. With TLS 1.3 the client gets the
// server's refusal on its first read, not in the handshake. So the client also reads.
func (p PKI) handshake(t *testing.T, server, serverCA, client, clientCA string) error {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(p.CertFile(server), p.KeyFile(server))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(p.CertFile(serverCA))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(raw)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.WriteString(c, "hello")
			c.Close()
		}
		served <- err
	}()
	defer func() { l.Close(); <-served }()
	conf, err := p.ClientTLS(clientCA, client)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", l.Addr().String(), conf)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = io.ReadFull(c, make([]byte, 5))
	return err
}

func TestUsersHaveRBACRules(t *testing.T) {
	for _, user := range []string{UserCCM, UserKwok, UserHypervisor, userSidecars, userConsole} {
		if !slices.ContainsFunc((PKI{}).listLeaves(), func(l leaf) bool { return l.user == user }) {
			t.Errorf("%s has no certificate", user)
		}
		if !strings.Contains(string(rbacObjects)+string(volumeObjects), "name: "+user+"}") {
			t.Errorf("rbac.yaml and volumes.yaml have no role for %s", user)
		}
	}
}

// RenewProxy renews the certificates of the proxy server and of the agent if they expire in less
// than 30 days. It does not renew the certificates of other components.
func TestProxyCertificatesAreRenewed(t *testing.T) {
	now := time.Now()
	keys := PKI{Dir: t.TempDir(), Now: now}
	if _, err := keys.Ensure(); err != nil {
		t.Fatal(err)
	}
	read := func() (all [3]string) {
		for n, name := range []string{"proxy-server", "proxy-agent", "kube-apiserver"} {
			raw, err := os.ReadFile(keys.CertFile(name))
			if err != nil {
				t.Fatal(err)
			}
			all[n] = string(raw)
		}
		return all
	}
	first := read()
	if err := keys.RenewProxy(now.AddDate(0, 0, 365-31)); err != nil || read() != first {
		t.Errorf("the lab renewed certificates 31 days before their expiry: %v", err)
	}
	if err := keys.RenewProxy(now.AddDate(0, 0, 365-29)); err != nil {
		t.Fatal(err)
	}
	if got := read(); got[0] == first[0] || got[1] == first[1] || got[2] != first[2] {
		t.Errorf("29 days before the expiry: server renewed %v, agent renewed %v, kube-apiserver renewed %v", got[0] != first[0], got[1] != first[1], got[2] != first[2])
	}
}
