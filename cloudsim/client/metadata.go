package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// DefaultMetadataURL is the URL at which an instance reaches the metadata service.
const DefaultMetadataURL = "http://169.254.169.254"

// These are the limits of one request to a metadata service.
const (
	metadataDial    = time.Second
	metadataTimeout = 5 * time.Second
	maxMetadata     = 64 << 10
)

// Metadata is a client of the metadata service. The client runs on an instance and reads
// the metadata of this instance. The client connects directly to the address in the field
// URL. It uses no proxy and follows no redirect. Only one goroutine at a time may use a
// Metadata. The caller must call Close at the end.
type Metadata struct {
	URL string // without a path

	http    *http.Client
	session string
}

// NewMetadata returns a client of the metadata service at url. If url is "", the client
// uses DefaultMetadataURL.
func NewMetadata(url string) *Metadata {
	if url == "" {
		url = DefaultMetadataURL
	}
	return &Metadata{URL: strings.TrimSuffix(url, "/"), http: &http.Client{
		Timeout: metadataTimeout,
		Transport: &http.Transport{
			Proxy: nil, DialContext: (&net.Dialer{Timeout: metadataDial}).DialContext,
			ResponseHeaderTimeout: metadataTimeout, MaxResponseHeaderBytes: 32 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (m *Metadata) Close() { m.http.CloseIdleConnections() }

// Get returns the answer of the service to a path such as /v1/instance. The first call of Get
// starts a session of 60 s, which later calls use. If the session has ended, Get starts a new
// session. Get returns NotFound for an unknown path. It returns Unavailable for an error that a
// retry may solve, e.g. if the service does not answer.
func (m *Metadata) Get(ctx context.Context, path string) ([]byte, error) {
	if m.session != "" {
		raw, status, err := m.ask(ctx, http.MethodGet, path, "Metadata-Token", m.session)
		if status != http.StatusUnauthorized {
			return raw, err
		}
	}
	session, _, err := m.ask(ctx, http.MethodPut, "/v1/token", "Metadata-Token-TTL-Seconds", "60")
	if err != nil {
		return nil, err
	}
	m.session = string(session)
	raw, _, err := m.ask(ctx, http.MethodGet, path, "Metadata-Token", m.session)
	return raw, err
}

// ask sends a request. It returns the body and the status of the answer. Without an answer, the
// status is 0.
func (m *Metadata) ask(ctx context.Context, method, path, header, value string) (raw []byte, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, m.URL+path, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set(header, value)
	resp, err := m.http.Do(req)
	if err != nil {
		return nil, 0, cloudsim.Errorf(cloudsim.Unavailable, "metadata service at %s: %w", req.URL.Host, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	if raw, err = io.ReadAll(io.LimitReader(resp.Body, maxMetadata)); err != nil {
		return nil, 0, cloudsim.Errorf(cloudsim.Unavailable, "metadata service at %s: %w", req.URL.Host, err)
	}
	switch {
	case resp.StatusCode == http.StatusOK:
		return raw, resp.StatusCode, nil
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError:
		return nil, resp.StatusCode, cloudsim.Errorf(cloudsim.Unavailable, "metadata service at %s answers %s", req.URL.Host, resp.Status)
	}
	kind := cloudsim.Invalid // a retry does not help
	switch resp.StatusCode {
	case http.StatusNotFound:
		kind = cloudsim.NotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		kind = cloudsim.Denied
	}
	return nil, resp.StatusCode, cloudsim.Errorf(kind, "metadata service at %s answers %s: %.200s", req.URL.Host, resp.Status, strings.TrimSpace(string(raw)))
}
