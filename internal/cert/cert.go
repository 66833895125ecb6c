// Package cert makes keys and signs certificates for them. It writes no file: who
// calls it knows whose the file is, and what may be there already.
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

// How long certificates last: an authority outlives what it is made for.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
)

// Pair is a certificate and its key.
type Pair struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// Sign makes a key, P-256, and a certificate for it as template says: by ca, or
// its own if ca is nil. Serial number and lifetime are added to template: an
// authority lasts ten years from now, anything else one.
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
	template.NotBefore = now.Add(-time.Hour) // for clocks that differ a little
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

// Load reads a pair from two PEM files, and checks that they match.
func Load(certFile, keyFile string) (*Pair, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New(keyFile + ": its key is not ECDSA")
	}
	return &Pair{pair.Leaf, key}, nil
}

// CertPEM is the certificate as a file has it.
func (p *Pair) CertPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Cert.Raw})
}

// KeyPEM is a key as a file has it (RFC 5915).
func KeyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// TLS is the pair as a server or a client shows it, followed by those that
// signed it.
func (p *Pair) TLS(chain ...*x509.Certificate) tls.Certificate {
	shown := tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key, Leaf: p.Cert}
	for _, c := range chain {
		shown.Certificate = append(shown.Certificate, c.Raw)
	}
	return shown
}

// Names sorts what a server is called by into names and addresses.
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
