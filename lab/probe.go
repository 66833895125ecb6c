package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// A Probe asks a component once whether the component is ready. It returns nil if the component is
// ready.
type Probe func(context.Context) error

const (
	probeEvery   = 20 * time.Millisecond
	probeTimeout = 5 * time.Second
)

// HTTPProbe returns a probe that succeeds when a GET of url answers 200 within probeTimeout. The
// argument conf may be nil if url is an http URL.
func HTTPProbe(url string, conf *tls.Config) Probe {
	client := &http.Client{
		Timeout:   probeTimeout,
		Transport: &http.Transport{TLSClientConfig: conf, MaxIdleConns: 1},
	}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s: %s", url, resp.Status, body)
		}
		return nil
	}
}

// Await calls the probe until it succeeds. It returns false if ctx ends before the probe succeeds.
// If p is nil, Await returns true at once.
func (p Probe) Await(ctx context.Context) bool {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for p != nil && p(ctx) != nil {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// ProbeURL asks once whether the server at url is ready. For an https URL, ca is the file of
// the server's certificate authority. For an http URL, ca is "". The argument client is the
// path of a client certificate and its key, without the endings .crt and .key. If client is
// "", the probe uses no client certificate.
func ProbeURL(ctx context.Context, url, ca, client string) error {
	if ca == "" {
		return HTTPProbe(url, nil)(ctx)
	}
	pool, err := loadPool(ca)
	if err != nil {
		return err
	}
	conf := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if client != "" {
		pair, err := tls.LoadX509KeyPair(client+".crt", client+".key")
		if err != nil {
			return err
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return HTTPProbe(url, conf)(ctx)
}

func loadPool(file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%s contains no certificate", file)
	}
	return pool, nil
}
