package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/netproxy/certs"
)

// A server does not start if any of its files is missing, for example because a
// Secret is not mounted. If the files disappear later, the server keeps the
// last certificate.
func TestMissingFiles(t *testing.T) {
	dir := t.TempDir()
	if err := certs.Make(dir, []string{"127.0.0.1"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	whole := certs.Files{Cert: filepath.Join(dir, certs.Server+".crt"), Key: filepath.Join(dir, certs.Server+".key")}
	none := filepath.Join(dir, "none")
	log := slog.New(slog.DiscardHandler)
	for name, f := range map[string]certs.Files{
		"all": {Cert: none, Key: none, CA: none}, "certificate and key": {Cert: none, Key: none}, "key": {Cert: whole.Cert, Key: none},
		"certificate": {Cert: none, Key: whole.Key}, "authority": {Cert: whole.Cert, Key: whole.Key, CA: none},
	} {
		if conf, err := certs.ServerConfig(log, f, certs.Options{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("missing files (%s): got %v, %v; want fs.ErrNotExist", name, conf, err)
		}
	}
	conf, err := certs.ServerConfig(log, whole, certs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{whole.Cert, whole.Key} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := conf.GetConfigForClient(&tls.ClientHelloInfo{}); err != nil || after == nil || len(after.Certificates) != 1 {
		t.Errorf("after the deletion of the files: got %v, %v; want the last certificate", after, err)
	}
}

// TestUnreadableChange proves that a server reads changed certificates again after a failed attempt
// to read them. The size and the modification time of the files do not change between the two
// attempts.
func TestUnreadableChange(t *testing.T) {
	dir := t.TempDir()
	if err := certs.Make(dir, []string{"127.0.0.1"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := certs.Make(other, []string{"127.0.0.1"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	f := certs.Files{Cert: filepath.Join(dir, certs.Server+".crt"), Key: filepath.Join(dir, certs.Server+".key")}
	conf, err := certs.ServerConfig(slog.New(slog.DiscardHandler), f, certs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		c, err := conf.GetConfigForClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(c.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.SerialNumber.String()
	}
	before, then := serial(), time.Now().Add(time.Hour)
	put := func(name string, raw []byte) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, raw, 0o600), os.Chtimes(path, then, then)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{certs.Server + ".crt", certs.Server + ".key"} {
		raw, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		put(name, make([]byte, len(raw)))
		if now := serial(); now != before {
			t.Fatalf("damaged %s: got the serial number %s, want %s", name, now, before)
		}
		put(name, raw)
	}
	if serial() == before {
		t.Error("the server keeps the previous certificate")
	}
}
