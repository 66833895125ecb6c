package credprovider

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// credential is a user name, a password and the expiry of the password. The
// expiry refers to the clock of the machine on which the plugin runs.
type credential struct {
	Username  string    `json:"username"`
	Password  string    `json:"password"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// A credential that expires within minLife is not usable for a pull. The usable time of a
// credential is its remaining life minus minLife. The kubelet may reuse a credential for half of
// this time, but for at most maxReuse. So the kubelet runs the plugin again long before the expiry.
const (
	minLife  = time.Minute
	maxReuse = 30 * time.Minute
)

func (c credential) remainingLife() time.Duration { return time.Until(c.ExpiresAt) }

// reuse returns the time for which the kubelet may reuse c. This time may be 0.
func (c credential) reuse() time.Duration {
	return max(0, min(maxReuse, (c.remainingLife()-minLife)/2)).Truncate(time.Second)
}

// These are the limits of calls to the cloud and to the metadata service.
const (
	dialTimeout = time.Second
	callTimeout = 5 * time.Second
	tries       = 3
	pauseTries  = 300 * time.Millisecond
)

// fetch gets a credential from the cloud. It sends podToken, the token of the
// pod's service account. If podToken is empty, fetch sends the token of the
// node. If the cloud refuses podToken, fetch does not try the node's token.
func (c Config) fetch(ctx context.Context, host, repo, podToken string) (cred credential, err error) {
	hc, err := c.cloudHTTP()
	if err != nil {
		return cred, err
	}
	defer hc.CloseIdleConnections()
	req := cloudsim.CreateRegistryCredential{PullOnly: true}
	if podToken != "" {
		req.Repositories = []string{repo}
	} else if podToken, err = c.nodeToken(ctx); err != nil {
		return cred, err
	}
	cl := &client.Client{URL: c.CloudURL, HTTP: hc, Token: client.StaticToken(podToken), UserAgent: "credprovider"}
	got, err := retry(ctx, func() (cloudsim.RegistryCredential, error) { return cl.CreateRegistryCredential(ctx, req) })
	switch kind := cloudsim.KindOf(err); {
	case err == nil:
	case kind == cloudsim.Unauthenticated, kind == cloudsim.Denied, kind == cloudsim.Invalid, kind == cloudsim.NotFound:
		return cred, fault(CodeDenied, "the cloud refuses %s: %s", callerName(req), oneLine(err))
	default:
		return cred, fault(CodeCloud, "the cloud at %s returned no credential: %s", c.CloudURL, oneLine(err))
	}
	if got.Registry != host {
		return cred, fault(CodeHost, "the registry of the cloud is %q, not %q: correct the field registries in the plugin's configuration", got.Registry, host)
	}
	// The clock of the cloud may differ from this machine's clock. The expiry
	// is therefore this machine's time plus the remaining life of the password.
	cred = credential{got.Username, got.Password, time.Now().Add(time.Duration(got.TTLSeconds) * time.Second)}
	if cred.remainingLife() < minLife {
		return cred, fault(CodeExpired, "the cloud returned a credential that expires in %s: want at least %s", cred.remainingLife().Truncate(time.Second), minLife)
	}
	return cred, nil
}

func callerName(req cloudsim.CreateRegistryCredential) string {
	if req.Repositories != nil {
		return "the pod's service account for " + strings.Join(req.Repositories, ", ")
	}
	return "this node"
}

// retry repeats a call after a temporary error: no answer from the cloud, too
// many requests, or an internal error of the cloud.
func retry[T any](ctx context.Context, call func() (T, error)) (v T, err error) {
	for n := 1; ; n++ {
		v, err = call()
		kind := cloudsim.KindOf(err)
		if err == nil || n == tries || kind != cloudsim.Unavailable && kind != cloudsim.Exhausted && kind != cloudsim.Internal {
			return v, err
		}
		backoff.Sleep(ctx, pauseTries*time.Duration(n))
		if ctx.Err() != nil {
			return v, err
		}
	}
}

// cloudHTTP returns the HTTP client for calls to the cloud. The client uses no
// proxy and follows no redirects, so it sends tokens only to the configured
// cloud.
func (c Config) cloudHTTP() (*http.Client, error) {
	t := &http.Transport{
		Proxy: nil, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: 2 * time.Second, ResponseHeaderTimeout: callTimeout, MaxResponseHeaderBytes: 32 << 10,
	}
	if err := client.Trust(t, c.CloudCAFile); err != nil {
		return nil, fault(CodeConfig, "cloudCAFile: %s", oneLine(err))
	}
	return &http.Client{
		Timeout: callTimeout, Transport: t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func (c Config) nodeToken(ctx context.Context) (string, error) {
	m := client.NewMetadata(c.MetadataURL)
	defer m.Close()
	raw, err := retry(ctx, func() ([]byte, error) { return m.Get(ctx, "/v1/instance/service-account/token") })
	if err != nil {
		return "", fault(CodeMetadata, "%s", oneLine(err))
	}
	var t struct {
		AccessToken string `json:"accessToken"`
	}
	if err := json.Unmarshal(raw, &t); err != nil || t.AccessToken == "" {
		return "", fault(CodeMetadata, "the metadata service %s returned no token", c.MetadataURL)
	}
	return t.AccessToken, nil
}

// oneLine returns the text of an error as one line of limited length, for the
// kubelet's log.
func oneLine(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + "…"
	}
	return s
}
