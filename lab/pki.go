package lab

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/internal/cert"
)

// Names of the certificate authorities. Each server trusts only the authorities
// that sign the certificates of this server's clients. For example, etcd
// refuses a client certificate that ClusterCA signed.
const (
	ClusterCA    = "ca"
	FrontProxyCA = "front-proxy-ca"
	EtcdCA       = "etcd-ca"
	ProxyCA      = "proxy-ca"
)

// leaf describes a certificate of a component or user.
type leaf struct {
	name  string // name of the files: NAME.crt and NAME.key
	ca    string
	user  string   // common name, which is the user name in Kubernetes
	group []string // organizations, which are the groups in Kubernetes
	use   []x509.ExtKeyUsage
	dns   []string
	ips   []net.IP
}

var (
	asClient = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	asServer = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	asBoth   = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	loopback = []net.IP{net.IPv4(127, 0, 0, 1).To4()}
)

// Users that the lab creates. The file rbac.yaml contains the permissions of these users.
const (
	userKubeletClient = "kube-apiserver-kubelet-client"

	UserCCM        = "cloudsim:cloud-controller-manager"
	UserKwok       = "cloudsim:kwok"
	UserHypervisor = "cloudsim:hypervisor"
	userSidecars   = "cloudsim:csi-sidecars"
	userConsole    = "cloudsim:console"
)

// listLeaves returns all certificates of a lab. kube-apiserver has separate certificates for its
// roles as a server and as a client. Each other component with both roles uses one certificate for
// both. A server certificate contains the component's name. In a lab in containers, this name is
// the component's host name (see package compose).
func (p PKI) listLeaves() []leaf {
	called := func(name string) []string { return []string{"localhost", name} }
	return []leaf{
		{name: "kube-apiserver", ca: ClusterCA, user: "kube-apiserver", use: asServer,
			dns: append(called("kube-apiserver"), "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"),
			ips: append(append(slices.Clone(loopback), firstServiceIP), p.Servers...)},
		{name: "kube-apiserver-kubelet-client", ca: ClusterCA, user: userKubeletClient, use: asClient},
		{name: "kube-apiserver-etcd-client", ca: EtcdCA, user: "kube-apiserver", use: asClient},
		{name: "front-proxy-client", ca: FrontProxyCA, user: "front-proxy-client", use: asClient},
		{name: "etcd", ca: EtcdCA, user: "etcd", use: asBoth, dns: called("etcd"), ips: loopback},
		{name: "kube-controller-manager", ca: ClusterCA, user: "system:kube-controller-manager", use: asBoth, dns: called("kube-controller-manager"), ips: loopback},
		{name: "kube-scheduler", ca: ClusterCA, user: "system:kube-scheduler", use: asBoth, dns: called("kube-scheduler"), ips: loopback},
		{name: "ccm", ca: ClusterCA, user: UserCCM, use: asBoth, dns: called("ccm"), ips: loopback},
		{name: "kwok", ca: ClusterCA, user: UserKwok, use: asClient},
		{name: "hypervisor", ca: ClusterCA, user: UserHypervisor, use: asClient},
		{name: "csi-sidecars", ca: ClusterCA, user: userSidecars, use: asClient},
		{name: "console", ca: ClusterCA, user: userConsole, use: asClient},
		{name: "kube-proxy", ca: ClusterCA, user: "system:kube-proxy", use: asClient},
		{name: "proxy-server", ca: ProxyCA, user: "proxy-server", use: asServer, dns: called("proxy-server"), ips: append(slices.Clone(loopback), p.Servers...)},
		{name: "proxy-agent", ca: ProxyCA, user: "proxy-agent", use: asClient},
		{name: "admin", ca: ClusterCA, user: "cloudsim:admin", group: []string{"system:masters"}, use: asClient},
	}
}

// PKI gives access to the folder with a lab's keys and certificates.
type PKI struct {
	Dir     string
	Now     time.Time
	Servers []net.IP // addresses, besides loopback, of the servers that machines call
}

// CertFile returns the path of the certificate with the given name.
func (p PKI) CertFile(name string) string { return filepath.Join(p.Dir, name+".crt") }

// KeyFile returns the path of the key with the given name.
func (p PKI) KeyFile(name string) string { return filepath.Join(p.Dir, name+".key") }

// Ensure makes the keys and certificates that are missing, damaged, about to expire, or signed by
// an authority that no longer exists. It also replaces a certificate if its subject, usage, names
// or addresses differ from the values that the lab needs. It keeps all other keys and certificates.
// It returns the names of the new keys and certificates.
func (p PKI) Ensure() (made []string, err error) {
	cas := map[string]*cert.Pair{}
	for _, name := range []string{ClusterCA, FrontProxyCA, EtcdCA, ProxyCA} {
		ca, fresh, err := p.ensureCA(name)
		if err != nil {
			return made, fmt.Errorf("certificate authority %s: %w", name, err)
		}
		if fresh {
			made = append(made, name)
		}
		cas[name] = ca
	}
	for _, l := range p.listLeaves() {
		fresh, err := p.ensureLeaf(l, cas[l.ca])
		if err != nil {
			return made, fmt.Errorf("certificate %s: %w", l.name, err)
		}
		if fresh {
			made = append(made, l.name)
		}
	}
	fresh, err := p.ensureServiceAccountKey()
	if err != nil {
		return made, fmt.Errorf("service account key: %w", err)
	}
	if fresh {
		made = append(made, "service-account")
	}
	return made, nil
}

// load reads a certificate and its key. It returns an error if the certificate or the key
// cannot be used, or if the certificate expires soon.
func (p PKI) load(name string) (*cert.Pair, error) {
	pair, err := cert.Load(p.CertFile(name), p.KeyFile(name))
	if err != nil {
		return nil, err
	}
	if left := pair.Cert.NotAfter.Sub(p.Now); left < cert.RenewBefore {
		return nil, fmt.Errorf("it expires in %s", left)
	}
	return pair, nil
}

// RenewProxy makes new certificates for the lab's proxy server and for the lab's agent if their
// current certificates expire soon. The server and the agent read the new files without a restart.
func (p PKI) RenewProxy(now time.Time) error {
	p.Now = now
	ca, err := p.load(ProxyCA)
	if err != nil {
		return fmt.Errorf("certificate authority %s: %w; restart the lab", ProxyCA, err)
	}
	for _, l := range p.listLeaves() {
		if l.ca != ProxyCA {
			continue
		}
		if _, err := p.ensureLeaf(l, ca); err != nil {
			return fmt.Errorf("certificate %s: %w", l.name, err)
		}
	}
	return nil
}

func (p PKI) ensureCA(name string) (*cert.Pair, bool, error) {
	if pair, err := p.load(name); err == nil && pair.Cert.IsCA {
		return pair, false, nil
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "cloudsim-" + name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
	}
	pair, err := p.issue(name, template, nil)
	return pair, true, err
}

func (p PKI) ensureLeaf(l leaf, ca *cert.Pair) (bool, error) {
	if pair, err := p.load(l.name); err == nil && l.matches(pair.Cert) && pair.Cert.CheckSignatureFrom(ca.Cert) == nil {
		return false, nil
	}
	_, err := p.issue(l.name, l.template(), ca)
	return true, err
}

func (l leaf) template() *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: l.user, Organization: l.group},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: l.use,
		DNSNames:    l.dns,
		IPAddresses: l.ips,
	}
}

// sign makes a key and a certificate, and returns both as PEM. It writes no files.
func (l leaf) sign(ca *cert.Pair) (certPEM, keyPEM []byte, err error) {
	pair, err := cert.Sign(l.template(), ca, time.Now())
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = cert.KeyPEM(pair.Key)
	return pair.CertPEM(), keyPEM, err
}

// matches reports whether the certificate c has the subject, usage, names and
// addresses in l. A certificate of an earlier release can have other values.
func (l leaf) matches(c *x509.Certificate) bool {
	return c.Subject.CommonName == l.user &&
		slices.Equal(c.Subject.Organization, l.group) &&
		slices.Equal(c.ExtKeyUsage, l.use) &&
		slices.Equal(c.DNSNames, l.dns) &&
		slices.EqualFunc(c.IPAddresses, l.ips, net.IP.Equal)
}

// issue makes a key, signs template with ca, and writes the key and the
// certificate to files. If ca is nil, the certificate is self-signed.
func (p PKI) issue(name string, template *x509.Certificate, ca *cert.Pair) (*cert.Pair, error) {
	pair, err := cert.Sign(template, ca, p.Now)
	if err != nil {
		return nil, err
	}
	key, err := cert.KeyPEM(pair.Key)
	if err != nil {
		return nil, err
	}
	return pair, errors.Join(WriteDurably(p.KeyFile(name), key), WriteDurably(p.CertFile(name), pair.CertPEM()))
}

// kubeletServer describes the certificate with which the kubelet of a node serves its API.
func kubeletServer(node string, ip net.IP) leaf {
	l := kubeletClient(node)
	l.use, l.dns, l.ips = asServer, []string{node}, []net.IP{ip}
	return l
}

// kubeletClient describes the certificate with which the kubelet of a node calls the API server.
func kubeletClient(node string) leaf {
	return leaf{user: "system:node:" + node, group: []string{"system:nodes"}, use: asClient}
}

// KubeletTLS returns the TLS configuration of a hollow node's kubelet: its serving
// certificate and the authority for its clients. The key exists in memory only, because
// hollow kubelets end with this process.
func (p PKI) KubeletTLS(node, ip string) (*tls.Config, error) {
	ca, err := p.load(ClusterCA)
	if err != nil {
		return nil, err
	}
	pair, err := cert.Sign(kubeletServer(node, net.ParseIP(ip)).template(), ca, time.Now())
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	clients.AddCert(ca.Cert)
	return &tls.Config{
		Certificates: []tls.Certificate{pair.TLS()},
		ClientCAs:    clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
	}, nil
}

// ensureServiceAccountKey makes the key with which the API server signs service account tokens,
// unless a valid key exists. It also writes the public key. The key never expires, because a new
// key would invalidate all tokens in the cluster.
func (p PKI) ensureServiceAccountKey() (bool, error) {
	const name = "service-account"
	pub := filepath.Join(p.Dir, name+".pub")
	oldKey, err := ReadIfThere(p.KeyFile(name))
	if err != nil {
		return false, err
	}
	oldPub, err := ReadIfThere(pub)
	if err != nil {
		return false, err
	}
	key, fresh := parseECKey(oldKey), false
	if key == nil {
		fresh = true
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return false, err
		}
		raw, err := cert.KeyPEM(key)
		if err != nil {
			return false, err
		}
		if err := WriteDurably(p.KeyFile(name), raw); err != nil {
			return false, err
		}
	}
	raw, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return false, err
	}
	newPub := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: raw})
	if bytes.Equal(oldPub, newPub) {
		return fresh, nil
	}
	return fresh, WriteDurably(pub, newPub)
}

func parseECKey(raw []byte) *ecdsa.PrivateKey {
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil
	}
	return key
}

// ClientTLS returns the TLS configuration of a client. The argument ca is the name of the
// certificate authority that the client trusts. The argument client is the name of the client's own
// certificate.
func (p PKI) ClientTLS(ca, client string) (*tls.Config, error) {
	pool, err := loadPool(p.CertFile(ca))
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(p.CertFile(client), p.KeyFile(client))
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
