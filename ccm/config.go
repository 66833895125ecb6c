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

// Config is the cloud configuration: the URL of the cloud, the credentials and
// the behavior of the controllers. The flag --cloud-config contains the path
// of the YAML file with this configuration.
type Config struct {
	URL       string `json:"url"`               // e.g. http://127.0.0.1:8180
	TokenFile string `json:"tokenFile"`         // file with the bearer token; the CCM reads it for every call. A relative name in a configuration file is relative to the folder of that file
	CAFile    string `json:"caFile,omitempty"`  // PEM file with the certificate authority of an https URL. The default is the system's authorities. The CCM reads the file only at the start. A relative name in a configuration file is relative to the folder of that file
	Project   string `json:"project,omitempty"` // project of the cluster's resources, for a token with a role in several projects
	Region    string `json:"region,omitempty"`  // region of new load balancers. The default is the cloud's only region

	// NodeDeletionGrace is the time for which an instance must be absent before
	// the CCM deletes its Node. The default is 0.
	NodeDeletionGrace metav1.Duration `json:"nodeDeletionGrace,omitempty"`
	// LoadBalancerClass is the spec.loadBalancerClass of the Services that the
	// CCM serves. The default is DefaultLoadBalancerClass. If
	// OnlyLoadBalancerClass is false, the CCM also serves Services without a
	// class.
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`
	// OnlyLoadBalancerClass makes the CCM ignore Services without a class. This
	// setting is necessary if another controller serves these Services.
	OnlyLoadBalancerClass bool `json:"onlyLoadBalancerClass,omitempty"`
	// LoadBalancerIPMode is the IP mode (KEP-1860) of Services without an
	// annotation for the mode. It is Proxy or VIP. The default is Proxy.
	LoadBalancerIPMode v1.LoadBalancerIPMode `json:"loadBalancerIPMode,omitempty"`
	// DeleteOrphans makes the CCM delete orphans: load balancers of this
	// cluster that no Service requests. By default the CCM only reports
	// orphans.
	DeleteOrphans bool `json:"deleteOrphans,omitempty"`
	// OrphanGrace is the time for which a load balancer must be an orphan before the CCM deletes
	// it. The value 0 means the default, 10 minutes.
	OrphanGrace metav1.Duration `json:"orphanGrace,omitempty"`
}

func (c Config) ipMode() v1.LoadBalancerIPMode {
	return cmp.Or(c.LoadBalancerIPMode, v1.LoadBalancerIPModeProxy)
}

func (c Config) orphanGrace() time.Duration { return cmp.Or(c.OrphanGrace.Duration, 10*time.Minute) }

// ReadConfig reads the cloud configuration at path. It returns an error for an
// unknown field, because the name of such a field is usually misspelled. A
// relative file name in the configuration is relative to the folder of the
// configuration.
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

// Over returns a copy of c. In this copy, each empty field of c has the value
// from fallback.
func (c Config) Over(fallback Config) Config {
	return Config{
		URL:       cmp.Or(c.URL, fallback.URL),
		TokenFile: cmp.Or(c.TokenFile, fallback.TokenFile),
		CAFile:    cmp.Or(c.CAFile, fallback.CAFile),
		Project:   cmp.Or(c.Project, fallback.Project),
		Region:    cmp.Or(c.Region, fallback.Region),

		NodeDeletionGrace:     cmp.Or(c.NodeDeletionGrace, fallback.NodeDeletionGrace),
		LoadBalancerClass:     cmp.Or(c.LoadBalancerClass, fallback.LoadBalancerClass),
		OnlyLoadBalancerClass: c.OnlyLoadBalancerClass || fallback.OnlyLoadBalancerClass,
		LoadBalancerIPMode:    cmp.Or(c.LoadBalancerIPMode, fallback.LoadBalancerIPMode),
		DeleteOrphans:         c.DeleteOrphans || fallback.DeleteOrphans,
		OrphanGrace:           cmp.Or(c.OrphanGrace, fallback.OrphanGrace),
	}
}

// Validate returns all errors in the configuration, not only the first. It also returns an error if
// it cannot read the token file or the CA file.
func (c Config) Validate() error {
	var bad []error
	add := func(format string, args ...any) {
		bad = append(bad, cloudsim.Errorf(cloudsim.Invalid, "cloud configuration: "+format, args...))
	}
	switch u, err := url.Parse(c.URL); {
	case c.URL == "":
		add("url is required: set --cloud-url, %s, or url in the file of --cloud-config", EnvURL)
	case err != nil:
		// The error of url.Parse may contain a password, so the message must not contain this
		// error.
		add("url is not a valid URL: set it to a URL like http://127.0.0.1:8180, without a user and a password")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		add("url must have no user, query or fragment: put the token into the file that tokenFile names")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		add("url must be like http://127.0.0.1:8180, got the scheme %q and the host %q", u.Scheme, u.Host)
	}
	if c.TokenFile == "" {
		add("tokenFile is required: set --cloud-token-file, %s, or tokenFile in the file of --cloud-config", EnvTokenFile)
	} else if _, err := client.TokenFile(c.TokenFile)(); err != nil {
		add("tokenFile: %w", err)
	}
	if err := client.Trust(new(http.Transport), c.CAFile); err != nil {
		add("caFile: %w", err)
	}
	if c.NodeDeletionGrace.Duration < 0 {
		add("nodeDeletionGrace must not be negative, got %s", c.NodeDeletionGrace.Duration)
	}
	if _, ok := listenerModes[c.ipMode()]; !ok {
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

// callTimeout is the longest time for one call to the cloud. connectTimeout is
// the longest time for establishing a connection to the cloud.
const (
	callTimeout    = 10 * time.Second
	connectTimeout = 3 * time.Second
)
