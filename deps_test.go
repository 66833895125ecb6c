// Package allinone contains the tests of the whole module. These tests check the
// imports of all packages and the links of all documents.
package allinone

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cloudsim-dev/allinone/"

// mayImport lists the packages of this module that each package may import. The
// Kubernetes components do not import each other. They call the cloud only through
// the cloud's client.
var mayImport = map[string][]string{
	"cloudsim/metadata":         {"cloudsim", "internal/run"},
	"cloudsim/registry":         {"cloudsim", "cloudsim/engine", "internal/cert", "internal/backoff", "internal/run"},
	"credprovider":              {"cloudsim", "cloudsim/client", "internal/flock", "internal/backoff"},
	"credprovider/doctor":       {},
	"credprovider/node":         {"credprovider", "credprovider/doctor"},
	"cmd/allinone-credprovider": {"credprovider"},

	"cloudsim":                     {},
	"cloudsim/statefile":           {"cloudsim"},
	"cloudsim/store":               {"cloudsim", "cloudsim/statefile"},
	"cloudsim/store/storetest":     {},
	"cloudsim/engine":              {"cloudsim", "cloudsim/statefile", "cloudsim/store", "internal/fsync", "internal/providerid"},
	"cloudsim/httpapi":             {"cloudsim", "cloudsim/engine", "internal/backoff", "internal/run"},
	"cloudsim/client":              {"cloudsim"},
	"cloudsim/apply":               {"cloudsim", "cloudsim/client"},
	"cloudsim/dialect":             {"cloudsim", "cloudsim/client", "internal/run"},
	"cloudsim/dialect/aws":         {"cloudsim", "cloudsim/client", "cloudsim/dialect"},
	"cloudsim/dialect/hcloud":      {"cloudsim", "cloudsim/client", "cloudsim/dialect"},
	"cloudsim/dialect/dialecttest": {"cloudsim/cloudtest", "cloudsim/engine", "cloudsim/httpapi"},
	"cloudsim/dataplane":           {"cloudsim", "cloudsim/informer", "internal/hostnet", "internal/backoff", "internal/run"},
	"cloudsim/dataplane/disks":     {"cloudsim", "cloudsim/statefile", "internal/fsync", "internal/backoff"},
	"cloudsim/informer":            {"cloudsim", "internal/backoff"},
	"cloudsim/cloudtest":           {"cloudsim", "cloudsim/client", "cloudsim/engine", "cloudsim/httpapi", "cloudsim/metadata", "cloudsim/registry", "cloudsim/store", "internal/run"},
	"ccm":                          {"cloudsim", "cloudsim/client", "cloudsim/informer", "internal/logging", "internal/backoff", "internal/providerid", "internal/queue", "internal/run"},
	"csidriver":                    {"cloudsim", "cloudsim/client", "csidriver/machine", "internal/backoff", "internal/run"},
	"csidriver/machine":            {"internal/flock", "internal/loop", "internal/backoff"},
	"csidriver/translate":          {},
	// Package lab has the parts that all labs share. Package process runs a lab as
	// processes of this machine, and package compose runs it in containers. These two
	// packages do not import each other.
	"lab":                 {"cloudsim", "cloudsim/client", "credprovider", "credprovider/node", "lab/real", "netproxy/wire", "internal/cert", "internal/backoff", "internal/providerid"},
	"lab/process":         {"cloudsim", "cloudsim/client", "credprovider/node", "lab", "lab/hollow", "lab/real", "netproxy/egress", "internal/backoff", "internal/flock", "internal/freeport", "internal/providerid", "internal/shell"},
	"lab/compose":         {"cloudsim", "credprovider/node", "lab", "lab/hollow", "lab/real", "netproxy/egress", "internal/flock"},
	"lab/course":          {},
	"docs/labs":           {},
	"hack/typecheck":      {},
	"lab/hollow":          {"cloudsim", "cloudsim/client", "cloudsim/informer", "internal/backoff", "internal/providerid", "internal/queue", "internal/run"},
	"netproxy/wire":       {},
	"netproxy/socket":     {},
	"netproxy/certs":      {"internal/cert"},
	"netproxy/egress":     {},
	"netproxy/server":     {"internal/run", "netproxy/socket", "netproxy/wire"},
	"netproxy/agent":      {"netproxy/socket", "netproxy/wire"},
	"netproxy/kube":       {"netproxy/server", "netproxy/wire"},
	"lab/real":            {"cloudsim", "cloudsim/client", "cloudsim/informer", "cloudsim/metadata", "csidriver/machine", "internal/cert", "internal/hostnet", "internal/loop", "internal/backoff", "internal/providerid", "lab/real/archive", "lab/real/boot", "lab/real/nameserver"},
	"lab/real/archive":    {},
	"lab/real/nameserver": {},
	"lab/real/boot":       {},
	"cmd/machine":         {"lab/real/boot"},
	"test/bench":          {},
	"test/e2e":            {},
	"test/proxylab":       {"internal/eventually", "internal/freeport", "netproxy/certs"}, // for tests only
	"test/restfuzz":       {},
	"internal/cert":       {},
	"internal/fsync":      {},
	"internal/eventually": {}, // for tests only
	"internal/flock":      {},
	"internal/freeport":   {},
	"internal/hostnet":    {},
	"internal/loop":       {"internal/backoff"},
	"internal/backoff":    {},
	"internal/run":        {},
	"internal/logging":    {},
	"internal/providerid": {},
	"internal/queue":      {},
	"internal/shell":      {},

	// Package conform depends on no cloud and on no CCM, so that every provider can import it.
	"conform":                {"internal/backoff", "internal/freeport"},
	"conform/fake":           {"conform"},
	"conform/httpdriver":     {"conform"},
	"conform/cloudsimdriver": {"cloudsim", "cloudsim/client", "conform"},
	"conform/hclouddriver":   {"conform"},
	"conform/proxy":          {"conform"},
	"conform/csi":            {"conform", "conform/proxy", "internal/backoff"},

	"console":      {"cloudsim", "cloudsim/client", "cloudsim/informer", "internal/backoff", "internal/providerid", "internal/run"},
	"console/kube": {"console", "internal/backoff"},

	// The package of a command imports the package cli, but not the package of
	// another command. The exception is labcli. Its command compose runs the
	// command that serves the cloud, so labcli also imports servecli.
	"cmd/allinone": {
		"cmd/allinone/internal/cli", "cmd/allinone/internal/cloudcli", "cmd/allinone/internal/componentcli", "cmd/allinone/internal/conformcli", "cmd/allinone/internal/consolecli", "cmd/allinone/internal/dialectcli",
		"cmd/allinone/internal/labcli",
		"cmd/allinone/internal/proxycli", "cmd/allinone/internal/servecli",
	},
	"cmd/allinone/standalone":          {"cloudsim", "cmd/allinone/internal/cli", "cmd/allinone/internal/conformcli"},
	"cmd/cloudconform":                 {"cmd/allinone/standalone"},
	"cmd/allinone/internal/cli":        {"cloudsim", "cloudsim/client", "cloudsim/dialect", "cloudsim/dialect/aws", "cloudsim/dialect/hcloud", "netproxy/wire"},
	"cmd/allinone/internal/conformcli": {"cmd/allinone/internal/cli", "cloudsim", "conform", "conform/cloudsimdriver", "conform/csi", "conform/fake", "conform/hclouddriver", "conform/httpdriver", "conform/proxy", "internal/logging", "internal/providerid", "internal/run"},
	"cmd/allinone/internal/consolecli": {"cmd/allinone/internal/cli", "cloudsim", "cloudsim/client", "cloudsim/httpapi", "console", "console/kube", "internal/logging", "internal/run", "lab/process"},
	"cmd/allinone/internal/dialectcli": {"cloudsim", "cloudsim/dialect", "cmd/allinone/internal/cli", "internal/logging", "netproxy/certs", "internal/shell"},
	"cmd/allinone/internal/cloudcli":   {"cmd/allinone/internal/cli", "cloudsim", "cloudsim/apply", "cloudsim/client", "cloudsim/metadata"},
	"cmd/allinone/internal/componentcli": {
		"cmd/allinone/internal/cli", "ccm", "cloudsim", "cloudsim/client", "credprovider", "credprovider/doctor", "credprovider/node",
		"csidriver", "csidriver/translate", "internal/logging",
	},
	"cmd/allinone/internal/labcli": {"cmd/allinone/internal/cli", "cmd/allinone/internal/servecli", "cloudsim", "console", "csidriver", "docs/labs", "internal/logging", "lab", "lab/compose", "lab/course", "lab/process", "lab/real", "lab/real/archive", "internal/shell"},
	"cmd/allinone/internal/proxycli": {
		"cmd/allinone/internal/cli", "cloudsim", "cloudsim/client", "cloudsim/httpapi", "cloudsim/metadata", "internal/backoff", "internal/logging", "internal/run",
		"netproxy/agent", "netproxy/certs", "netproxy/egress", "netproxy/kube", "netproxy/server", "netproxy/wire", "internal/shell",
	},
	"cmd/allinone/internal/servecli": {
		"cmd/allinone/internal/cli", "cloudsim", "cloudsim/apply", "cloudsim/client", "cloudsim/dataplane", "cloudsim/dataplane/disks", "cloudsim/dialect", "cloudsim/engine",
		"cloudsim/httpapi", "cloudsim/metadata", "cloudsim/registry", "cloudsim/store", "console", "internal/cert", "internal/hostnet", "internal/logging", "internal/run", "netproxy/certs", "internal/shell",
	},
}

// onlyIn lists the packages that may import a dependency. The name of a
// dependency also stands for the packages in its subfolders.
var onlyIn = map[string][]string{
	"go.etcd.io/bbolt":                    {"cloudsim/store"},
	"github.com/go-json-experiment/json":  {"cloudsim/store"}, // Go 1.27 has it in the standard library
	"github.com/gorilla/mux":              {"cloudsim/httpapi"},
	"github.com/danielgtaylor/huma":       {"cloudsim/httpapi"},
	"cuelabs.dev/go/oci/ociregistry":      {"cloudsim/registry"},
	"github.com/yuin/goldmark":            {"lab/course"},
	"github.com/miekg/dns":                {"lab/real/nameserver"},
	"github.com/hetznercloud/hcloud-go":   {"cmd/allinone/internal/conformcli", "conform/hclouddriver"},
	"github.com/go-jose/go-jose":          {"cloudsim/engine"},
	"k8s.io/cloud-provider":               {"ccm", "conform/fake"},
	"k8s.io/controller-manager":           {"ccm", "conform/fake"},
	"k8s.io/klog":                         {"ccm", "internal/logging"},
	"github.com/spf13/cobra":              {"cmd/allinone", "cmd/allinone/standalone", "cmd/allinone/internal/cli", "cmd/allinone/internal/cloudcli", "cmd/allinone/internal/componentcli", "cmd/allinone/internal/conformcli", "cmd/allinone/internal/consolecli", "cmd/allinone/internal/dialectcli", "cmd/allinone/internal/labcli", "cmd/allinone/internal/proxycli", "cmd/allinone/internal/servecli", "ccm"}, // the ccm extends upstream's command
	"k8s.io/client-go":                    {"ccm", "cmd/allinone/internal/conformcli", "conform", "conform/fake", "console/kube", "internal/queue", "lab", "lab/hollow", "lab/process", "netproxy/kube"},
	"net/http/httptest":                   {"cloudsim/cloudtest", "cloudsim/dialect/dialecttest"},
	"testing":                             {"cloudsim/cloudtest", "cloudsim/dialect/dialecttest", "cloudsim/store/storetest", "test/proxylab"},
	"os/exec":                             {"cmd/allinone/internal/consolecli", "conform", "conform/httpdriver", "test/proxylab", "lab/course", "lab/process", "lab/real", "cmd/allinone/internal/componentcli", "cmd/allinone/internal/labcli", "csidriver/machine"},
	"github.com/vishvananda":              {"cloudsim/dataplane", "internal/hostnet", "lab/real"},
	"google.golang.org/grpc":              {"conform/csi", "csidriver", "netproxy/wire", "netproxy/socket", "netproxy/server", "netproxy/agent"},
	"sigs.k8s.io/apiserver-network-proxy": {"netproxy/wire", "netproxy/server", "netproxy/agent"},

	"github.com/container-storage-interface": {"conform/csi", "csidriver"},
	"github.com/moby/sys/mountinfo":          {"csidriver/machine", "lab/real"},
	"github.com/opencontainers/cgroups":      {"lab/real"},
	"k8s.io/csi-translation-lib":             {"csidriver/translate"},
	"k8s.io/kubelet":                         {"csidriver", "credprovider/doctor", "credprovider/node"},
	"github.com/distribution/reference":      {"credprovider/doctor", "lab/real/archive"}, // the kubelet's own parser of image names
	"github.com/google/go-containerregistry": {"lab/real/archive"},

	"unsafe": {},
}

// standardOnly lists the packages that import only the standard library and this module. Together
// with mayImport, this list ensures that the cloud's client adds no server and no Kubernetes code
// to a program.
var standardOnly = []string{"credprovider", "cloudsim", "cloudsim/client", "internal/flock", "internal/run", "internal/providerid"}

func TestArchitecture(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Doc", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Doc string
			Imports         []string
		}
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(p.ImportPath, module)
		if !ok {
			continue // the root holds only tests
		}
		allowed, ok := mayImport[name]
		if !ok {
			t.Errorf("%s is missing in mayImport: add the package and its permitted imports", name)
		}
		if p.Doc == "" {
			t.Errorf("%s has no package comment: write what the package is and what it refuses to do", name)
		}
		for _, imp := range p.Imports {
			checkImport(t, name, imp, allowed)
		}
	}
}

// TestCloudconform proves that the program cloudconform contains no server and no component of this
// project.
func TestCloudconform(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./cmd/cloudconform").Output()
	if err != nil {
		t.Fatal(err)
	}
	var imported []string
	for _, path := range strings.Fields(string(out)) {
		if own, ok := strings.CutPrefix(path, module); ok {
			imported = append(imported, own)
		}
	}
	if !slices.Contains(imported, "conform") {
		t.Errorf("got %v, want the package conform", imported)
	}
	for _, forbidden := range []string{"cloudsim/engine", "cloudsim/store", "cloudsim/httpapi", "ccm", "csidriver", "lab"} {
		if slices.Contains(imported, forbidden) {
			t.Errorf("cloudconform imports %s: other providers use the program, so it must not contain this package", forbidden)
		}
	}
}

// otherVersions lists the modules that may have different versions in kube, netproxy/interop and
// allinone. Except for konnectivity-client, no package of Kubernetes in the builds of both allinone
// and kube uses one of these modules. So Go does not compile a package of Kubernetes twice (see
// TestSharedVersions).
var otherVersions = []string{
	"github.com/container-storage-interface/spec", "github.com/cyphar/filepath-securejoin", "github.com/godbus/dbus/v5",
	"github.com/opencontainers/cgroups", "go.etcd.io/bbolt",
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client", // netproxy/interop is a test with other versions
}

// TestSharedVersions proves that kube and netproxy/interop require the same versions of modules as
// allinone, except for the modules in otherVersions. With two versions of a module, Go
// must compile two copies of each package of Kubernetes that uses the module.
func TestSharedVersions(t *testing.T) {
	versions := func(file string) map[string]string {
		out, err := exec.Command("go", "mod", "edit", "-json", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		var mod struct {
			Require []struct{ Path, Version string }
		}
		if err := json.Unmarshal(out, &mod); err != nil {
			t.Fatal(err)
		}
		versions := map[string]string{}
		for _, m := range mod.Require {
			versions[m.Path] = m.Version
		}
		return versions
	}
	want := versions("go.mod")
	for _, file := range []string{"kube/go.mod", "netproxy/interop/go.mod", "netproxy/interop/go37.mod"} {
		shared := 0
		for path, version := range versions(file) {
			if want[path] == "" || slices.Contains(otherVersions, path) {
				continue
			}
			shared++
			if version != want[path] {
				t.Errorf("%s has %s %s, but go.mod has %s: the first build compiles each package that uses the module twice. Run go get %s@VERSION with the higher version in both folders", file, path, version, want[path], path)
			}
		}
		if shared == 0 {
			t.Errorf("%s shares no module with go.mod", file)
		}
	}
}

func checkImport(t *testing.T, name, imp string, allowed []string) {
	t.Helper()
	for dep, homes := range onlyIn {
		if (imp == dep || strings.HasPrefix(imp, dep+"/")) && !slices.Contains(homes, name) {
			t.Errorf("%s imports %s, but only %v may import this dependency: call one of these packages, or add the package to onlyIn with a reason", name, imp, homes)
		}
	}
	own, isOwn := strings.CutPrefix(imp, module)
	if isOwn && !slices.Contains(allowed, own) {
		t.Errorf("%s imports %s, but mayImport does not allow it: move the code to the package that owns the data, or add the import with a reason", name, own)
	}
	if slices.Contains(standardOnly, name) && !isOwn && strings.Contains(strings.Split(imp, "/")[0], ".") {
		t.Errorf("%s imports %s: it may use the standard library only", name, imp)
	}
}
