// Package certs keeps TLS configurations that follow their files: a new
// certificate or authority is used from the next handshake on, without a
// restart. Make makes a first set of them.
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

// Files are PEM files; "" for what is not there.
type Files struct {
	Cert, Key string // who we are
	CA        string // whom we believe
}

// Options are what the files do not say.
type Options struct {
	MinVersion   uint16   // 0: TLS 1.2
	CipherSuites []uint16 // nil: Go's choice; TLS 1.3 has no choice
	NextProtos   []string // ALPN
	ServerName   string   // of the server that a client calls
}

// ServerConfig is the configuration of a server. With a CA, clients must show a
// certificate of it. When the files change to something that cannot be used,
// the last good ones stay in use and log is told.
func ServerConfig(log *slog.Logger, f Files, o Options) (*tls.Config, error) {
	r := &reloader{log: log, files: f, options: o}
	if _, err := r.current(); err != nil {
		return nil, err
	}
	first := o.base()
	if f.CA != "" {
		first.ClientAuth = tls.RequireAndVerifyClientCert
	}
	first.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.current() }
	return first, nil
}

// ClientConfig is the configuration of a client, read from the files at each call: a
// client asks for it when it connects.
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
		return conf, nil // the system's authorities
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
		return nil, fmt.Errorf("certificate authority %s holds no certificate", file)
	}
	return pool, nil
}

// reloader is a server's configuration and what its files looked like.
type reloader struct {
	log     *slog.Logger
	files   Files
	options Options

	mu    sync.Mutex
	stamp string
	conf  *tls.Config
}

// current looks at the files, which costs a few microseconds where a handshake
// costs hundreds.
func (r *reloader) current() (*tls.Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stamp := r.files.stamp()
	if r.conf != nil && stamp == r.stamp {
		return r.conf, nil
	}
	conf, err := r.load()
	switch {
	case err == nil:
		if r.conf != nil {
			r.log.Info("certificates have changed", "certificate", r.files.Cert, "authority", r.files.CA)
		}
		r.conf = conf
	case r.conf == nil:
		return nil, err
	default:
		r.log.Warn("changed certificates cannot be used; keeping those before", "err", err)
	}
	r.stamp = stamp
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

// stamp changes when one of the files does, also through a symbolic link.
func (f Files) stamp() string {
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
