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
	"github.com/cloudsim-dev/allinone/internal/pause"
)

// reloadPeriod is how often the configuration is read again. The files of a
// ConfigMap or Secret are replaced by kubelet within a minute anyway, by links
// that no notification follows well.
const reloadPeriod = 5 * time.Second

// Settings is the configuration as it is now. Everybody asks it each time, so
// that a change takes effect without a restart.
type Settings struct{ now atomic.Pointer[Config] }

// NewSettings begins with cfg.
func NewSettings(cfg Config) *Settings {
	s := &Settings{}
	s.now.Store(&cfg)
	return s
}

// Get is the configuration as it is now.
func (s *Settings) Get() Config { return *s.now.Load() }

// fixed returns the settings that take effect at a restart only: the informers
// select Services by class, and the transport trusts a certificate authority, from
// the start on.
func (c Config) fixed() Config {
	return Config{LoadBalancerClass: c.LoadBalancerClass, OnlyLoadBalancerClass: c.OnlyLoadBalancerClass, CAFile: c.CAFile}
}

// client returns a client that calls the cloud which the configuration names at
// that moment, counts its calls, and keeps its connections.
func (s *Settings) client() *client.Client {
	cfg := s.Get()
	return &client.Client{
		URL:       cfg.URL,
		HTTP:      &http.Client{Timeout: callTimeout, Transport: measure(retarget{transport(cfg.CAFile), s, basePath(cfg.URL)})},
		Token:     func() (string, error) { return client.TokenFile(s.Get().TokenFile)() },
		Project:   cloudsim.ProjectID(cfg.Project),
		UserAgent: "allinone-ccm",
	}
}

// retarget sends requests that were made for the first configuration where the
// current one says.
type retarget struct {
	next     http.RoundTripper
	settings *Settings
	base     string // the path of the first configuration's URL
}

func (t retarget) RoundTrip(r *http.Request) (*http.Response, error) {
	cfg := t.settings.Get()
	to, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, err // Validate refuses it
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
		return "" // Validate refuses it
	}
	return strings.TrimSuffix(parsed.Path, "/")
}

// reloader reads the configuration again and again. One that is wrong is told
// and changes nothing.
type reloader struct {
	log  *slog.Logger
	p    *Provider
	read func() (Config, error)
}

func (r reloader) run(ctx context.Context) {
	var told string
	for ctx.Err() == nil {
		pause.For(ctx, reloadPeriod)
		cfg, err := r.read()
		if err != nil {
			if err.Error() != told {
				r.log.Error("the configuration is wrong now; the one before stays", "err", err)
				reloadFailed.Set(1)
			}
			told = err.Error()
			continue
		}
		told = ""
		reloadFailed.Set(0)
		r.p.Reload(cfg)
	}
}

// Reload makes cfg the configuration. Another address, project or token is used
// from the next call on, and the cloud is mirrored anew.
func (p *Provider) Reload(cfg Config) {
	before := p.settings.Get()
	if fixed := cfg.fixed(); fixed != p.unheeded {
		if p.unheeded = fixed; fixed != before.fixed() {
			p.log.Warn("a changed loadBalancerClass, onlyLoadBalancerClass or caFile takes effect at the next start")
		}
	}
	cfg.LoadBalancerClass, cfg.OnlyLoadBalancerClass, cfg.CAFile = before.LoadBalancerClass, before.OnlyLoadBalancerClass, before.CAFile
	if cfg == before {
		return
	}
	p.settings.now.Store(&cfg)
	p.log.Info("the configuration was changed", "url", cfg.URL, "project", cfg.Project)
	if cfg.URL != before.URL || cfg.Project != before.Project || cfg.TokenFile != before.TokenFile {
		p.balancers.forgetRegion()
		p.mirror.again()
	}
}
