package cert_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/internal/cert"
)

func sign(t *testing.T, template *x509.Certificate, ca *cert.Pair, now time.Time) *cert.Pair {
	t.Helper()
	p, err := cert.Sign(template, ca, now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func authority(t *testing.T, now time.Time) *cert.Pair {
	t.Helper()
	return sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, now)
}

// A client accepts a certificate only if the client trusts the authority of the certificate, the
// certificate contains the name of the server, and the lifetime has not ended.
func TestSign(t *testing.T) {
	now := time.Now()
	ca, other := authority(t, now), authority(t, now)
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "web"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	leaf.DNSNames, leaf.IPAddresses = cert.Names([]string{"web.example", "192.0.2.1", "::1"})
	web := sign(t, leaf, ca, now)
	if len(web.Cert.DNSNames) != 1 || len(web.Cert.IPAddresses) != 2 {
		t.Errorf("names of the certificate: got %v %v", web.Cert.DNSNames, web.Cert.IPAddresses)
	}
	for _, tc := range []struct {
		name  string
		by    *cert.Pair
		host  string
		after time.Duration
		ok    bool
	}{
		{"now", ca, "web.example", 0, true},
		{"address of the certificate", ca, "192.0.2.1", 0, true},
		{"client clock 59 minutes behind", ca, "web.example", -59 * time.Minute, true},
		{"after 364 days", ca, "web.example", 364 * 24 * time.Hour, true},
		{"after 366 days", ca, "web.example", 366 * 24 * time.Hour, false},
		{"another host name", ca, "mail.example", 0, false},
		{"another authority", other, "web.example", 0, false},
	} {
		roots := x509.NewCertPool()
		roots.AddCert(tc.by.Cert)
		if _, err := web.Cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: tc.host, CurrentTime: now.Add(tc.after)}); (err == nil) != tc.ok {
			t.Errorf("%s: Verify returned %v, want success %t", tc.name, err, tc.ok)
		}
	}
	if left := ca.Cert.NotAfter.Sub(now); left < 9*365*24*time.Hour {
		t.Errorf("remaining lifetime of the authority: got %s", left)
	}
	if second := sign(t, leaf, ca, now); second.Cert.SerialNumber.Cmp(web.Cert.SerialNumber) == 0 {
		t.Error("two certificates have the same serial number")
	}
}

// Load reads a certificate and its key. It refuses the key of another certificate
// and a key of another kind.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	ca, other := authority(t, time.Now()), authority(t, time.Now())
	crt, key := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	write := func(path string, raw []byte, err error) {
		t.Helper()
		if err == nil {
			err = os.WriteFile(path, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	keyPEM := func(k *ecdsa.PrivateKey) []byte {
		raw, err := cert.KeyPEM(k)
		write(key, raw, err)
		return raw
	}
	write(crt, ca.CertPEM(), nil)
	keyPEM(ca.Key)
	if got, err := cert.Load(crt, key); err != nil || !got.Key.Equal(ca.Key) || !got.Cert.Equal(ca.Cert) {
		t.Errorf("Load: got %v, error %v; want the certificate and the key of the authority", got, err)
	}
	keyPEM(other.Key)
	if _, err := cert.Load(crt, key); err == nil {
		t.Error("the key of another certificate was accepted")
	}

	foreign, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, ca.Cert, ca.Cert, &foreign.PublicKey, ca.Key)
	write(crt, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err)
	write(key, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(foreign)}), nil)
	if _, err := cert.Load(crt, key); err == nil || !strings.Contains(err.Error(), "ECDSA") {
		t.Errorf("Load of an RSA key: got error %v, want an error that contains ECDSA", err)
	}
}
