package ccm

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// reloadPeriod is the time between two reads of the configuration. The CCM does
// not use file notifications. When the kubelet updates a ConfigMap or a Secret,
// it changes a symbolic link, so a notification for the file would not report
// the update. A shorter period would not help users, because the kubelet itself
// needs up to a minute for an update.
const reloadPeriod = 5 * time.Second

// Settings contains the current configuration. Other code reads the configuration
// from Settings at each use, so a change takes effect without a restart.
type Settings struct{ now atomic.Pointer[Config] }

// NewSettings returns Settings with the configuration cfg.
func NewSettings(cfg Config) *Settings {
	s := &Settings{}
	s.now.Store(&cfg)
	return s
}

// Get returns the current configuration.
func (s *Settings) Get() Config { return *s.now.Load() }

// startSettings returns the settings that take effect only after a restart. The
// CCM uses these settings only when it starts. At this time, it tells the
// informers which class it serves, and it loads the certificate authority.
func (c Config) startSettings() Config {
	return Config{LoadBalancerClass: c.LoadBalancerClass, OnlyLoadBalancerClass: c.OnlyLoadBalancerClass, CAFile: c.CAFile}
}

// client returns a client for the cloud. For each call, the client uses the URL,
// the project and the token file of the current configuration. The client
// measures its calls and reuses its connections.
func (s *Settings) client() *client.Client {
	cfg := s.Get()
	return &client.Client{
		URL:       cfg.URL,
		HTTP:      &http.Client{Timeout: callTimeout, Transport: measuredTransport(retarget{newTransport(cfg.CAFile), s, basePath(cfg.URL)})},
		Token:     func() (string, error) { return client.TokenFile(s.Get().TokenFile)() },
		Project:   cloudsim.ProjectID(cfg.Project),
		UserAgent: "allinone-ccm",
	}
}

// retarget is an HTTP transport. In each request, it replaces the URL and the
// project of the first configuration by the values of the current
// configuration.
type retarget struct {
	next     http.RoundTripper
	settings *Settings
	base     string // path of the first configuration's URL
}

func (t retarget) RoundTrip(r *http.Request) (*http.Response, error) {
	cfg := t.settings.Get()
	to, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, err // cannot happen: Validate refuses such a URL
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = to.Scheme, to.Host, ""
	r.URL.Path = strings.TrimSuffix(to.Path, "/") + strings.TrimPrefix(r.URL.Path, t.base)
	if cfg.Project == "" {
		r.Header.Del("Cloud-Project")
	} else {
		r.Header.Set("Cloud-Project", cfg.Project)
	}
	return t.next.RoundTrip(r)
}

func basePath(u string) string {
	parsed, err := url.Parse(u)
	if err != nil {
		return "" // cannot happen: Validate refuses such a URL
	}
	return strings.TrimSuffix(parsed.Path, "/")
}

// reloader reads the configuration periodically. If the configuration is invalid, reloader keeps
// the current configuration and logs the error. While the error stays the same, reloader logs it
// only once.
type reloader struct {
	log  *slog.Logger
	p    *Provider
	read func() (Config, error)
}

func (r reloader) run(ctx context.Context) {
	var lastError string
	for ctx.Err() == nil {
		backoff.Sleep(ctx, reloadPeriod)
		cfg, err := r.read()
		if err != nil {
			if err.Error() != lastError {
				r.log.Error("the configuration file is invalid; the previous configuration stays in use", "err", err)
				reloadFailed.Set(1)
			}
			lastError = err.Error()
			continue
		}
		lastError = ""
		reloadFailed.Set(0)
		r.p.Reload(cfg)
	}
}

// Reload makes cfg the current configuration. It does not change the settings
// that take effect only after a restart. If cfg contains a new URL, project or
// token file, the next call to the cloud uses the new value, and the mirror
// lists all objects again. Only one goroutine at a time may call Reload.
func (p *Provider) Reload(cfg Config) {
	before := p.settings.Get()
	if fixed := cfg.startSettings(); fixed != p.restartSettings {
		if p.restartSettings = fixed; fixed != before.startSettings() {
			p.log.Warn("loadBalancerClass, onlyLoadBalancerClass or caFile has changed: restart the cloud controller manager to use the new value")
		}
	}
	cfg.LoadBalancerClass, cfg.OnlyLoadBalancerClass, cfg.CAFile = before.LoadBalancerClass, before.OnlyLoadBalancerClass, before.CAFile
	if cfg == before {
		return
	}
	if cfg.URL != before.URL || cfg.Project != before.Project || cfg.TokenFile != before.TokenFile {
		p.mirror.relist(func() { p.settings.now.Store(&cfg) })
	} else {
		p.settings.now.Store(&cfg)
	}
	p.log.Info("the changed configuration is in use", "url", cfg.URL, "project", cfg.Project)
}
