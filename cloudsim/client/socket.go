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

// ValidURL reports whether a Client can have u as its URL: http, https, or a Unix
// socket, unix:///run/cloudsim.sock. It may have a path before the API's own, and
// no password: a token is what says who calls.
func ValidURL(u string) bool {
	if path, ok := strings.CutPrefix(u, socketScheme); ok {
		return strings.HasPrefix(path, "/")
	}
	at, err := url.Parse(u)
	return err == nil && (at.Scheme == "http" || at.Scheme == "https") && at.Host != "" &&
		at.User == nil && at.RawQuery == "" && at.Fragment == "" && !at.ForceQuery
}

// Reach has t dial the cloud at u, if that is a Unix socket; t is for no other
// cloud then. From a program on the cloud's own machine, the way there and back
// takes a third less time than over TCP, and only the socket's owner has it.
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

// base is what a request's URL begins with. Who is reached by a socket has no
// host: without Reach the call ends where a name is looked up, which none has that
// ends in invalid (RFC 6761 section 6.4), and no token gets anywhere.
func (c *Client) base() string {
	if strings.HasPrefix(c.URL, socketScheme) {
		return "http://cloud.invalid"
	}
	return strings.TrimSuffix(c.URL, "/")
}

// Trust makes t trust the certificate authorities in caFile (PEM), and no others,
// when it calls a cloud at an https URL. With caFile "" it changes nothing: t trusts
// the authorities of the system. The error is Invalid and names the file.
func Trust(t *http.Transport, caFile string) error {
	if caFile == "" {
		return nil
	}
	raw, err := os.ReadFile(caFile)
	if err != nil {
		return cloudsim.Errorf(cloudsim.Invalid, "read the cloud's certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return cloudsim.Errorf(cloudsim.Invalid, "read the cloud's certificate authority: %s contains no PEM certificate", caFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return nil
}
