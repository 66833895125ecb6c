package registry

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/cloudsim-dev/allinone/internal/cert"
)

// Files of the registry's own certificate authority. Clients trust the certificate in
// CAFile. Only the registry may read caKeyFile, which contains the private key.
const (
	CAFile    = "ca.crt"
	caKeyFile = "ca.key"
)

// TLS returns the TLS configuration of a registry with the given host names. At each call,
// the certificate authority in dir signs a new certificate. TLS creates the authority if
// dir has none. The parameter hosts must contain at least one name.
func TLS(dir string, hosts []string) (*tls.Config, error) {
	ca, err := cert.Load(filepath.Join(dir, CAFile), filepath.Join(dir, caKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		ca, err = makeCA(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("loading the registry's certificate authority: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	template.DNSNames, template.IPAddresses = cert.Names(hosts)
	own, err := cert.Sign(template, ca, time.Now())
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{own.TLS(ca.Cert)},
	}, nil
}

func makeCA(dir string) (*cert.Pair, error) {
	ca, err := cert.Sign(&x509.Certificate{
		Subject:  pkix.Name{CommonName: "cloudsim registry"},
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}, nil, time.Now())
	if err != nil {
		return nil, err
	}
	key, err := cert.KeyPEM(ca.Key)
	if err != nil {
		return nil, err
	}
	// Write the key first, so that a crash cannot leave a certificate without a key. The next start
	// would replace a certificate without a key. Clients that trust only the replaced certificate
	// would then reject the registry.
	f := &files{dir: dir}
	if err := f.write(filepath.Join(dir, caKeyFile), key); err != nil {
		return nil, err
	}
	return ca, f.write(filepath.Join(dir, CAFile), ca.CertPEM())
}
