package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Names of what Make makes: NAME.crt and NAME.key each. There are two
// authorities, so that an agent, which runs on any node, cannot pose as a
// client, which may reach every node.
const (
	AgentsCA   = "agents-ca"
	Server     = "server"         // shown to agents; of AgentsCA
	Agent      = "agent"          // shown by agents; of AgentsCA
	FrontendCA = "frontend-ca"    //
	Frontend   = "frontend"       // shown to clients over TCP; of FrontendCA
	Client     = "kube-apiserver" // shown by clients over TCP; of FrontendCA
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 365 * 24 * time.Hour
)

// pair is a certificate and its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Make writes the keys and certificates of a network proxy into dir, mode 0600.
// Servers are known as hosts, names or addresses, and as localhost. It refuses
// a folder that holds one of the files already.
func Make(dir string, hosts []string, now time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for ca, leaves := range map[string]map[string]x509.ExtKeyUsage{
		AgentsCA:   {Server: x509.ExtKeyUsageServerAuth, Agent: x509.ExtKeyUsageClientAuth},
		FrontendCA: {Frontend: x509.ExtKeyUsageServerAuth, Client: x509.ExtKeyUsageClientAuth},
	} {
		authority, err := issue(dir, ca, &x509.Certificate{
			NotAfter: now.Add(caLife), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}, nil, now)
		if err != nil {
			return err
		}
		for name, use := range leaves {
			leaf := &x509.Certificate{NotAfter: now.Add(leafLife), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use}}
			if use == x509.ExtKeyUsageServerAuth {
				name := append([]string{"localhost", "127.0.0.1", "::1"}, hosts...)
				leaf.DNSNames, leaf.IPAddresses = split(name)
			}
			if _, err := issue(dir, name, leaf, authority, now); err != nil {
				return err
			}
		}
	}
	return nil
}

func split(hosts []string) (names []string, ips []net.IP) {
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, h)
		}
	}
	return names, ips
}

// issue signs a certificate with ca, or with itself if ca is nil.
func issue(dir, name string, template *x509.Certificate, ca *pair, now time.Time) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: "network-proxy-" + name}
	template.NotBefore = now.Add(-time.Hour) // for clocks that differ a little
	signer := pair{template, key}
	if ca != nil {
		signer = *ca
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, &key.PublicKey, signer.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &pair{cert, key}, errors.Join(
		writeNew(filepath.Join(dir, name+".key"), "EC PRIVATE KEY", raw),
		writeNew(filepath.Join(dir, name+".crt"), "CERTIFICATE", der))
}

func writeNew(path, kind string, der []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: name another folder, or delete this one", path)
	}
	if err != nil {
		return err
	}
	return errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Close())
}
