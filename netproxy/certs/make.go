package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cloudsim-dev/allinone/internal/cert"
)

// For each of these names, Make writes two files: NAME.crt and NAME.key. Agents
// and clients have different authorities, so that an agent cannot pretend to be
// a client. Otherwise a compromised node could use the key of its agent to reach
// every node through the proxy.
const (
	AgentsCA   = "agents-ca"
	Server     = "server" // the server presents this certificate to agents; signed by AgentsCA
	Agent      = "agent"  // agents present this certificate to the server; signed by AgentsCA
	FrontendCA = "frontend-ca"
	Frontend   = "frontend"       // the server presents this certificate to clients over TCP; signed by FrontendCA
	Client     = "kube-apiserver" // clients present this certificate to the server over TCP; signed by FrontendCA
)

// Make writes the keys and certificates of a network proxy to dir, with mode 0600. The server
// certificates are valid for localhost and for the names and addresses in hosts. Make returns an
// error if one of the files already exists. It does not delete the files that it wrote before an
// error.
func Make(dir string, hosts []string, now time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for ca, leaves := range map[string]map[string]x509.ExtKeyUsage{
		AgentsCA:   {Server: x509.ExtKeyUsageServerAuth, Agent: x509.ExtKeyUsageClientAuth},
		FrontendCA: {Frontend: x509.ExtKeyUsageServerAuth, Client: x509.ExtKeyUsageClientAuth},
	} {
		authority, err := issue(dir, ca, &x509.Certificate{
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}, nil, now)
		if err != nil {
			return err
		}
		for name, use := range leaves {
			leaf := &x509.Certificate{KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use}}
			if use == x509.ExtKeyUsageServerAuth {
				name := append([]string{"localhost", "127.0.0.1", "::1"}, hosts...)
				leaf.DNSNames, leaf.IPAddresses = cert.Names(name)
			}
			if _, err := issue(dir, name, leaf, authority, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// issue makes a certificate and signs it with the authority ca. If ca is nil, the function makes a
// self-signed certificate. It writes the key and the certificate to dir.
func issue(dir, name string, template *x509.Certificate, ca *cert.Pair, now time.Time) (*cert.Pair, error) {
	template.Subject = pkix.Name{CommonName: "network-proxy-" + name}
	pair, err := cert.Sign(template, ca, now)
	if err != nil {
		return nil, err
	}
	key, err := cert.KeyPEM(pair.Key)
	if err != nil {
		return nil, err
	}
	return pair, errors.Join(writeNew(filepath.Join(dir, name+".key"), key), writeNew(filepath.Join(dir, name+".crt"), pair.CertPEM()))
}

func writeNew(path string, raw []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("file %s already exists: choose another folder or delete the file", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	return errors.Join(err, f.Close())
}
