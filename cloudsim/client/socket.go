package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const socketScheme = "unix://"

// ValidURL reports whether u is a valid URL of a Client. The scheme must be http, https or unix. A
// URL such as unix:///run/cloudsim.sock names a Unix socket. An http or https URL may have a path.
// The client appends the paths of the API to this path. The URL must not have a user name, a
// password, a query or a fragment.
func ValidURL(u string) bool {
	if path, ok := strings.CutPrefix(u, socketScheme); ok {
		return strings.HasPrefix(path, "/")
	}
	at, err := url.Parse(u)
	return err == nil && (at.Scheme == "http" || at.Scheme == "https") && at.Host != "" &&
		at.User == nil && at.RawQuery == "" && at.Fragment == "" && !at.ForceQuery
}

// Reach makes the transport t connect to the Unix socket in the URL u. After this call, t can reach
// only the cloud at this socket. If u does not name a Unix socket, Reach changes nothing.
func Reach(t *http.Transport, u string) {
	path, ok := strings.CutPrefix(u, socketScheme)
	if !ok {
		return
	}
	t.Proxy = nil
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
}

// UsesSocket reports whether the URL of the client names a Unix socket.
func (c *Client) UsesSocket() bool { return strings.HasPrefix(c.URL, socketScheme) }

// base returns the beginning of a request's URL. A cloud on a Unix socket has no host name, so the
// URL contains a reserved host name that ends in .invalid. This name never resolves (RFC 6761
// section 6.4). A call therefore fails if the program has not called Reach.
func (c *Client) base() string {
	if c.UsesSocket() {
		return "http://cloud.invalid"
	}
	return strings.TrimRight(c.URL, "/")
}

// Trust makes the transport t accept only certificates that a certificate authority in the PEM file
// caFile has issued. This restriction applies only to clouds at an https URL. If caFile is "",
// Trust changes nothing, and t trusts the certificate authorities of the system. If Trust cannot
// read the file, or the file contains no certificate, Trust returns an Invalid error that names the
// file.
func Trust(t *http.Transport, caFile string) error {
	if caFile == "" {
		return nil
	}
	raw, err := os.ReadFile(caFile)
	if err != nil {
		return cloudsim.Errorf(cloudsim.Invalid, "reading the cloud's certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return cloudsim.Errorf(cloudsim.Invalid, "reading the cloud's certificate authority: %s contains no PEM certificate", caFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return nil
}
