// Package certs makes TLS configurations from files. If the files change, a server uses the new
// contents for the next handshake. Make creates a first set of certificates.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files are the names of PEM files. The name of a file is empty if the configuration does not
// use the file.
type Files struct {
	Cert, Key string // own certificate and key
	CA        string // certificates of the authorities that may sign the peer's certificate
}

// Options are optional settings of a TLS configuration.
type Options struct {
	MinVersion   uint16   // 0: TLS 1.2
	CipherSuites []uint16 // nil: Go's defaults; not used for TLS 1.3
	NextProtos   []string // protocols for ALPN
	ServerName   string   // name of the server that a client calls
}

// ServerConfig returns the configuration of a server. If f has a CA, clients must present a
// certificate that this CA has signed. If changed files are not valid, the server logs a warning
// and continues with the last valid certificates.
func ServerConfig(log *slog.Logger, f Files, o Options) (*tls.Config, error) {
	r := &reloader{log: log, files: f, options: o}
	if _, err := r.currentConfig(); err != nil {
		return nil, err
	}
	first := o.base()
	if f.CA != "" {
		first.ClientAuth = tls.RequireAndVerifyClientCert
	}
	first.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.currentConfig() }
	return first, nil
}

// ClientConfig reads the files and returns the configuration of a client. A client calls
// ClientConfig for each connection.
func ClientConfig(f Files, o Options) (*tls.Config, error) {
	conf := o.base()
	conf.ServerName = o.ServerName
	if f.Cert != "" || f.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", f.Cert, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	if f.CA == "" {
		return conf, nil // Go then uses the system's authorities
	}
	pool, err := readPool(f.CA)
	conf.RootCAs = pool
	return conf, err
}

func (o Options) base() *tls.Config {
	return &tls.Config{MinVersion: max(o.MinVersion, tls.VersionTLS12), CipherSuites: o.CipherSuites, NextProtos: o.NextProtos}
}

func readPool(file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("certificate authority file %s contains no certificate", file)
	}
	return pool, nil
}

type reloader struct {
	log     *slog.Logger
	files   Files
	options Options

	mu           sync.Mutex
	fileVersions string // of the files in conf
	warned       string // versions of the files for which the log contains a warning
	conf         *tls.Config
}

// currentConfig returns the present configuration, and reads the files again if
// they have changed. The check of the files takes a few microseconds, so it
// does not slow down a handshake, which takes hundreds of microseconds.
func (r *reloader) currentConfig() (*tls.Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stamp := r.files.fileVersions()
	if r.conf != nil && stamp == r.fileVersions {
		return r.conf, nil
	}
	conf, err := r.load()
	switch {
	case err == nil:
		if r.conf != nil {
			r.log.Info("loaded changed certificates", "certificate", r.files.Cert, "authority", r.files.CA)
		}
		r.conf, r.fileVersions = conf, stamp
	case r.conf == nil:
		return nil, err
	case stamp != r.warned: // the next handshake tries again, because a change of permissions does not change the stamp
		r.warned = stamp
		r.log.Warn("changed certificates are not valid; the server keeps the previous certificates", "err", err)
	}
	return r.conf, nil
}

func (r *reloader) load() (*tls.Config, error) {
	if r.files.Cert == "" || r.files.Key == "" {
		return nil, errors.New("a server needs a certificate and its key")
	}
	pair, err := tls.LoadX509KeyPair(r.files.Cert, r.files.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", r.files.Cert, err)
	}
	conf := r.options.base()
	conf.Certificates = []tls.Certificate{pair}
	if r.files.CA != "" {
		if conf.ClientCAs, err = readPool(r.files.CA); err != nil {
			return nil, err
		}
		conf.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return conf, nil
}

// fileVersions returns a text that changes when one of the files changes. If a name is a symbolic
// link, the text describes the target of the link.
func (f Files) fileVersions() string {
	stamp := ""
	for _, name := range []string{f.Cert, f.Key, f.CA} {
		if name == "" {
			continue
		}
		if info, err := os.Stat(name); err == nil {
			stamp += fmt.Sprintf("%s %d %s;", name, info.Size(), info.ModTime().Format(time.RFC3339Nano))
		}
	}
	return stamp
}
