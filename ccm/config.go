package ccm

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// Config is the cloud configuration, the YAML file that --cloud-config names:
// where the cloud is, and as whom to call it.
type Config struct {
	URL       string `json:"url"`               // e.g. http://127.0.0.1:8180
	TokenFile string `json:"tokenFile"`         // holds a bearer token of role editor; read again for every call. Relative to the configuration's own folder
	CAFile    string `json:"caFile,omitempty"`  // certificate authority of an https URL (PEM); the system's authorities if empty. Read when the CCM starts. Relative to the configuration's own folder
	Project   string `json:"project,omitempty"` // only for an admin's token, which is of no project
	Region    string `json:"region,omitempty"`  // where load balancers are made; the cloud's only one if empty

	// NodeDeletionGrace is how long an instance must be gone until its Node is
	// deleted; none by default.
	NodeDeletionGrace metav1.Duration `json:"nodeDeletionGrace,omitempty"`
	// LoadBalancerClass is the spec.loadBalancerClass that is served beside
	// Services that name none; DefaultLoadBalancerClass if empty.
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`
	// OnlyLoadBalancerClass leaves Services that name no class to somebody else.
	OnlyLoadBalancerClass bool `json:"onlyLoadBalancerClass,omitempty"`
	// LoadBalancerIPMode is what Services publish that do not choose by
	// annotation: Proxy, the default, or VIP (KEP-1860).
	LoadBalancerIPMode v1.LoadBalancerIPMode `json:"loadBalancerIPMode,omitempty"`
	// DeleteOrphans deletes load balancers of this cluster whose Service is
	// gone; without it they are only reported.
	DeleteOrphans bool `json:"deleteOrphans,omitempty"`
	// OrphanGrace is how long one must have been an orphan before it is
	// deleted; 10 minutes if empty.
	OrphanGrace metav1.Duration `json:"orphanGrace,omitempty"`
}

func (c Config) ipMode() v1.LoadBalancerIPMode {
	return cmp.Or(c.LoadBalancerIPMode, v1.LoadBalancerIPModeProxy)
}

func (c Config) orphanGrace() time.Duration { return cmp.Or(c.OrphanGrace.Duration, 10*time.Minute) }

// ReadConfig reads a cloud configuration. An unknown field is an error: it is
// a misspelt one.
func ReadConfig(path string) (c Config, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("cloud configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		return c, fmt.Errorf("cloud configuration %s: %w", path, err)
	}
	for _, file := range []*string{&c.TokenFile, &c.CAFile} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(filepath.Dir(path), *file)
		}
	}
	return c, nil
}

// Over is c with what it leaves empty taken from below.
func (c Config) Over(below Config) Config {
	return Config{
		URL:       cmp.Or(c.URL, below.URL),
		TokenFile: cmp.Or(c.TokenFile, below.TokenFile),
		CAFile:    cmp.Or(c.CAFile, below.CAFile),
		Project:   cmp.Or(c.Project, below.Project),
		Region:    cmp.Or(c.Region, below.Region),

		NodeDeletionGrace:     cmp.Or(c.NodeDeletionGrace, below.NodeDeletionGrace),
		LoadBalancerClass:     cmp.Or(c.LoadBalancerClass, below.LoadBalancerClass),
		OnlyLoadBalancerClass: c.OnlyLoadBalancerClass || below.OnlyLoadBalancerClass,
		LoadBalancerIPMode:    cmp.Or(c.LoadBalancerIPMode, below.LoadBalancerIPMode),
		DeleteOrphans:         c.DeleteOrphans || below.DeleteOrphans,
		OrphanGrace:           cmp.Or(c.OrphanGrace, below.OrphanGrace),
	}
}

// Validate says all that is wrong, not only the first.
func (c Config) Validate() error {
	var bad []error
	add := func(format string, args ...any) {
		bad = append(bad, cloudsim.Errorf(cloudsim.Invalid, "cloud configuration: "+format, args...))
	}
	switch u, err := url.Parse(c.URL); {
	case c.URL == "":
		add("url is required: --cloud-url, %s or url in the file of --cloud-config", EnvURL)
	case err != nil:
		add("url: %w", err)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		add("url must have no user, query or fragment: secrets go to the file that tokenFile names")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		add("url must be like http://127.0.0.1:8180, got %q", c.URL)
	}
	if c.TokenFile == "" {
		add("tokenFile is required: --cloud-token-file, %s or tokenFile in the file of --cloud-config", EnvTokenFile)
	} else if _, err := client.TokenFile(c.TokenFile)(); err != nil {
		add("tokenFile: %w", err)
	}
	if err := client.Trust(new(http.Transport), c.CAFile); err != nil {
		add("caFile: %w", err)
	}
	if c.NodeDeletionGrace.Duration < 0 {
		add("nodeDeletionGrace must not be negative, got %s", c.NodeDeletionGrace.Duration)
	}
	if _, ok := modes[c.ipMode()]; !ok {
		add("loadBalancerIPMode must be Proxy or VIP, got %q", c.LoadBalancerIPMode)
	}
	if c.OrphanGrace.Duration < 0 {
		add("orphanGrace must not be negative, got %s", c.OrphanGrace.Duration)
	}
	if problems := validation.IsQualifiedName(c.LoadBalancerClass); c.LoadBalancerClass != "" && len(problems) > 0 {
		add("loadBalancerClass %q: %s", c.LoadBalancerClass, strings.Join(problems, "; "))
	}
	return errors.Join(bad...)
}

// callTimeout bounds every call to the cloud, and connectTimeout the part of
// it that only the network is to blame for.
const (
	callTimeout    = 10 * time.Second
	connectTimeout = 3 * time.Second
)
