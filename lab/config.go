package lab

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Nodes says what an instance of the cloud is.
type Nodes string

const (
	// Hollow instances are a record in the cloud and a Node that kwok keeps alive.
	Hollow Nodes = "hollow"
	// Real instances are machines: namespaces with a kubelet. They need root.
	Real Nodes = "real"
	// None leaves instances a record; the user brings nodes.
	None Nodes = "none"
)

// Limits of a Config.
const (
	maxInstances = 5000 // what the pod network has room for, and a laptop does not
	maxPort      = 65535
)

// Config is what a lab is made of. The zero value is not valid; Default gives
// the values that the command line begins with.
type Config struct {
	DataDir    Dir    // absolute
	Self       string // the allinone executable, for the parts that run as processes
	Kube       string // upstream's multi-call binary
	KubeBinDir string // upstream's own binaries, taken before Kube's; "" for none
	MachineDir string // what real machines are made of; needed for them only
	Archives   string // folder of *.tar with more images for them; "" for none
	PortBase   *int   // first port; 0 picks free ones; nil keeps those of the last time
	Nodes      Nodes  // what an instance is
	Instances  int    // how many the first start of a data dir creates
	Profile    string // how long the cloud's hardware takes: realistic or instant
	Catalogue  string // file of the regions, zones and types that the cloud offers, absolute; "" for its own
	// NetworkProxy carries what kube-apiserver sends to nodes through a network
	// proxy (KEP-1281); without it kube-apiserver dials nodes itself.
	NetworkProxy bool
	// EgressConfig is an EgressSelectorConfiguration that kube-apiserver takes
	// instead, for a network proxy that is not the lab's: an absolute path; ""
	// for none.
	EgressConfig string
	// Volumes lets pods on real machines have volumes, if CSIDir holds what make
	// csi builds: the sidecars and the CustomResourceDefinitions of snapshots.
	Volumes bool
	CSIDir  string
	// ServeAs are legacy drivers in whose names the driver answers too (KEP-625).
	ServeAs []string
	Timeout time.Duration // for everything to become ready
	Grace   time.Duration // between asking a process to stop and killing it

	// Progress is told, in one line each and one at a time, what happens
	// until the lab is ready and whenever something is started again. It may
	// be nil.
	Progress func(line string)
	// OnReady is told once that the lab is ready, and what runs. It may be nil.
	OnReady func(Report)
}

// Default is a lab of three hollow nodes.
func Default() Config {
	return Config{
		Nodes: Hollow, Instances: 3, Profile: "realistic", NetworkProxy: true, Volumes: true,
		Timeout: 2 * time.Minute, Grace: 10 * time.Second,
	}
}

// Validate reports everything that is wrong with the Config at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !filepath.IsAbs(string(c.DataDir)) {
		bad("data dir must be an absolute path, got %q", c.DataDir)
	}
	if c.Self == "" {
		bad("the allinone executable is not known")
	}
	if c.Kube == "" {
		bad("the kube executable is not known")
	}
	if c.Nodes != Hollow && c.Nodes != Real && c.Nodes != None {
		bad("nodes must be %s, %s or %s, got %q", Hollow, Real, None, c.Nodes)
	}
	if c.Instances < 0 || c.Instances > maxInstances {
		bad("instances must be between 0 and %d, got %d", maxInstances, c.Instances)
	}
	if c.Profile != "realistic" && c.Profile != "instant" {
		bad("profile must be realistic or instant, got %q", c.Profile)
	}
	if c.Catalogue != "" && !filepath.IsAbs(c.Catalogue) {
		bad("catalogue must be an absolute path, got %q", c.Catalogue)
	}
	if c.EgressConfig != "" && !filepath.IsAbs(c.EgressConfig) {
		bad("egress selector config file must be an absolute path, got %q", c.EgressConfig)
	}
	if c.PortBase != nil && *c.PortBase != 0 && (*c.PortBase < 1024 || *c.PortBase+len(portNames)-1 > maxPort) {
		bad("port base must be 0 or between 1024 and %d, got %d", maxPort+1-len(portNames), *c.PortBase)
	}
	if c.Timeout <= 0 {
		bad("timeout must be more than nothing, got %s", c.Timeout)
	}
	if c.Grace < 0 {
		bad("grace must not be negative, got %s", c.Grace)
	}
	return errors.Join(errs...)
}
