// Package cert creates keys and signs certificates. It writes no files. The
// caller chooses the file names, and decides whether to replace existing files.
package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"time"
)

// These are the lifetimes of certificates. An authority lasts longer than the
// certificates that it signs.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
)

// RenewBefore is the minimum remaining lifetime of a certificate. `allinone up` replaces a
// certificate with a shorter remaining lifetime.
const RenewBefore = 30 * 24 * time.Hour

// Pair is a certificate and its key.
type Pair struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// Sign creates a P-256 key, and a certificate for this key with the contents of
// template. The authority ca signs the certificate. If ca is nil, the certificate
// is self-signed. Sign sets the serial number and the lifetime in template: ten
// years for an authority and one year for any other certificate.
func Sign(template *x509.Certificate, ca *Pair, now time.Time) (*Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	life := leafLife
	if template.IsCA {
		life = authorityLife
	}
	template.NotBefore = now.Add(-time.Hour) // for clients with a clock that is slightly slow
	template.NotAfter = now.Add(life)
	signer := Pair{template, key}
	if ca != nil {
		signer = *ca
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Cert, &key.PublicKey, signer.Key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Pair{cert, key}, nil
}

// Load reads a certificate and a key from two PEM files and checks that the key
// belongs to the certificate. It returns an error for a key that is not ECDSA.
func Load(certFile, keyFile string) (*Pair, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New(keyFile + ": the private key is not an ECDSA key")
	}
	return &Pair{pair.Leaf, key}, nil
}

// CertPEM returns the certificate as PEM.
func (p *Pair) CertPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Cert.Raw})
}

// KeyPEM returns a key as PEM (RFC 5915).
func KeyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// TLS returns the certificate and the key for use in a TLS configuration. In
// the result, the certificates in chain come after the certificate of p.
func (p *Pair) TLS(chain ...*x509.Certificate) tls.Certificate {
	shown := tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key, Leaf: p.Cert}
	for _, c := range chain {
		shown.Certificate = append(shown.Certificate, c.Raw)
	}
	return shown
}

// Names splits hosts into DNS names and IP addresses.
func Names(hosts []string) (dns []string, ips []net.IP) {
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			ips = append(ips, ip)
		} else {
			dns = append(dns, h)
		}
	}
	return dns, ips
}
