package process

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/real"
)

// CCM selects the cloud controller manager of a lab.
type CCM string

const (
	// OwnCCM is this project's cloud controller manager.
	OwnCCM CCM = "own"
	// NoCCM starts no cloud controller manager. The user can start one.
	NoCCM CCM = "none"
)

// Limits of a Config.
const (
	maxInstances = 5000 // the pod network allows more, but the memory of a laptop usually does not
	maxPort      = 65535
)

// Config holds the settings of a lab. The zero value is not valid. Default returns the
// defaults of the command line.
type Config struct {
	DataDir    Dir       // absolute path
	Self       string    // path of the allinone executable, for components that run as processes
	Kube       string    // path of Kubernetes' multi-call binary
	KubeBinDir string    // folder with Kubernetes' separate binaries, preferred to Kube, "" means none
	MachineDir string    // folder with the components of real machines, needed for real nodes only
	Archives   string    // folder of *.tar files with more images for real machines, "" means none
	NoInternet bool      // real machines reach no network outside the host
	Mirrors    []string  // registry mirrors for real machines, in the form HOST=URL
	Proxy      lab.Proxy // HTTP proxy for the pulls of real machines
	PortBase   *int      // first port, 0 picks free ports, nil keeps the last start's ports
	Nodes      lab.Nodes // kind of nodes
	CCM        CCM       // cloud controller manager; "" means OwnCCM
	// Dialects lists the dialects that the cloud serves. A dialect is the API of another cloud.
	// Each dialect has its own port.
	Dialects []string
	// DiskLinks returns additional paths for the device of a disk. Programs that use a dialect
	// expect the device at these paths. DiskLinks may be nil.
	DiskLinks func(cloudsim.DiskID) []string
	// RegistryHosts returns additional host names of the registry, for a project in a region.
	// Programs that use a dialect expect the registry at these names. RegistryHosts may be nil.
	RegistryHosts func(cloudsim.ProjectID, string) []string
	// MetadataTrees maps the name of a dialect to additional paths of the metadata service.
	MetadataTrees map[string]cloudsim.MetadataTreeSpec
	// ECRPlugin is the absolute path of AWS's image credential provider on the host. This plugin
	// needs real nodes and the dialect aws. If ECRPlugin is "", machines do not run the plugin.
	ECRPlugin string
	Instances int    // number of instances that the first start of a data dir creates
	Profile   string // speed of the cloud's hardware: realistic or instant
	Catalogue string // absolute path of a file with regions, zones and instance types, "" means the default catalogue
	// NetworkProxy makes kube-apiserver reach nodes through a network proxy (KEP-1281). If
	// NetworkProxy is false and EgressConfig is "", kube-apiserver dials nodes directly.
	NetworkProxy bool
	// EgressConfig is the absolute path of an EgressSelectorConfiguration for
	// kube-apiserver. If EgressConfig is not "", the lab runs no network proxy
	// of its own.
	EgressConfig string
	// Volumes enables volumes for pods on real machines. CSIDir must then contain the output of
	// `make csi`: the sidecars and the CustomResourceDefinitions of snapshots. If CSIDir does not
	// contain the sidecars, or if the nodes are not real, Volumes has no effect.
	Volumes bool
	CSIDir  string
	// ServeAs lists names of legacy drivers. The CSI driver also answers under these names
	// (KEP-625).
	ServeAs []string
	Timeout time.Duration // time limit for the start of all components
	Grace   time.Duration // time between SIGTERM and SIGKILL

	// Progress gets one line for each step of the start and stop of the lab, and one line for each
	// restart of a component. The lab makes only one call at a time. Progress may be nil.
	Progress func(line string)
	// OnReady gets one report when the components are ready and the nodes are Ready. If nodes are
	// still not Ready after Timeout, the lab calls OnReady without a further wait. If the lab makes
	// no nodes or runs no CCM, it does not wait for nodes. OnReady may be nil.
	OnReady func(Report)
}

// Default returns the Config of a lab with three hollow nodes. The caller must set DataDir, Self
// and Kube.
func Default() Config {
	return Config{
		Nodes: lab.Hollow, CCM: OwnCCM, Instances: 3, Profile: "realistic", NetworkProxy: true, Volumes: true,
		Timeout: 2 * time.Minute, Grace: 10 * time.Second,
	}
}

// Validate returns one error that lists all invalid fields.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !filepath.IsAbs(string(c.DataDir)) {
		bad("--data-dir must be an absolute path, got %q", c.DataDir)
	}
	if c.Self == "" {
		bad("the path of the program allinone is not known")
	}
	if c.Kube == "" {
		bad("the path of the program kube is not known")
	}
	if c.Nodes != lab.Hollow && c.Nodes != lab.Real && c.Nodes != lab.None {
		bad("--nodes must be %s, %s or %s, got %q", lab.Hollow, lab.Real, lab.None, c.Nodes)
	}
	for _, m := range c.Mirrors {
		if _, err := real.ParseMirror(m); err != nil {
			bad("--registry-mirror: %w", err)
		}
	}
	if len(c.Mirrors) > 0 && (c.Nodes != lab.Real || c.NoInternet) {
		bad("--registry-mirror needs --nodes real with internet access: other nodes pull no images")
	}
	if c.CCM != "" && c.CCM != OwnCCM && c.CCM != NoCCM {
		bad("--ccm must be %s or %s, got %q", OwnCCM, NoCCM, c.CCM)
	}
	for _, d := range c.Dialects {
		if !slices.Contains(portNames, dialectPort(d)) {
			bad("--dialect must be the name of a dialect (see 'allinone dialect --help'), got %q", d)
		}
	}
	if c.ECRPlugin != "" && (c.Nodes != lab.Real || !slices.Contains(c.Dialects, "aws")) {
		bad("--ecr-credential-provider needs --nodes real and --dialect aws: other nodes pull no images of ECR")
	}
	if c.ECRPlugin != "" && !filepath.IsAbs(c.ECRPlugin) {
		bad("--ecr-credential-provider must be an absolute path, got %q", c.ECRPlugin)
	}
	if c.Instances < 0 || c.Instances > maxInstances {
		bad("--instances must be between 0 and %d, got %d", maxInstances, c.Instances)
	}
	if c.Profile != "realistic" && c.Profile != "instant" {
		bad("--profile must be realistic or instant, got %q", c.Profile)
	}
	if c.Catalogue != "" && !filepath.IsAbs(c.Catalogue) {
		bad("--catalogue must be an absolute path, got %q", c.Catalogue)
	}
	if c.EgressConfig != "" && !filepath.IsAbs(c.EgressConfig) {
		bad("--egress-selector-config-file must be an absolute path, got %q", c.EgressConfig)
	}
	if c.PortBase != nil && *c.PortBase != 0 && (*c.PortBase < 1024 || *c.PortBase+len(portNames)-1 > maxPort) {
		bad("--port-base must be 0 or between 1024 and %d, got %d", maxPort+1-len(portNames), *c.PortBase)
	}
	if c.Timeout <= 0 {
		bad("--timeout must be positive, got %s", c.Timeout)
	}
	if c.Grace < 0 {
		bad("--grace must not be negative, got %s", c.Grace)
	}
	return errors.Join(errs...)
}
