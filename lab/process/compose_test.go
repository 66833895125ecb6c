package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/lab"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// flagsOf returns a map from the names of flags to their values. It keeps only the last part of
// file paths, because the folders differ. With docker compose, each service has its own folder.
// Without docker compose, all files are in one data dir.
func flagsOf(args []string) map[string]string {
	flags := map[string]string{}
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		if strings.HasPrefix(value, "/") {
			value = filepath.Base(value)
		}
		if strings.HasPrefix(name, "--") {
			flags[name] = value
		}
	}
	return flags
}

// aboutPlaces lists the flags for addresses and paths. These flags differ between docker
// compose and a lab on loopback.
var aboutPlaces = []string{
	"--listen", "--data-dir", "--issuer", "--instance-range", "--load-balancer-range", "--load-balancer-range6", "--published-ports", "--published-bind",
	"--listen-client-urls", "--advertise-client-urls", "--listen-peer-urls", "--initial-advertise-peer-urls", "--initial-cluster", "--listen-metrics-urls",
	"--bind-address", "--secure-port", "--advertise-address", "--etcd-servers", "--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig",
	"--cloud-url", "--cloud-token-file", "--token-file", "--agent-bind-address", "--agent-port", "--health-bind-address", "--health-port", "--admin-bind-address", "--admin-port",
	"--proxy-server-host", "--proxy-server-port", "--health-server-host", "--health-server-port", "--server-address",
	"--v", "--profile", "--endpoint", "--csi-address", "--http-endpoint",
	"--nodes",                 // sets address ranges
	"--registry-listen",       // set by --nodes
	"--show-clients",          // needs a capability that the cloud of hollow nodes does not get
	"--load-balancer-ip-mode", // depends on --show-clients
}

// Docker compose and `allinone up` start each component with the same flags, except for the flags
// in aboutPlaces. In docker-compose.yaml, the control plane and the cloud always have the flags for
// real nodes. So the test compares this file with a lab that has real nodes.
func TestComposeStartsTheComponentsOfALab(t *testing.T) {
	networks := lab.RealNetworks(lab.FirstVPC)
	networks.Pods = lab.PodRange
	p := plan{
		Config: Default(), dir: Dir("/lab"), ports: portsFrom(DefaultPortBase), pki: lab.PKI{Dir: "/lab/pki"},
		networks: networks, say: func(string, ...any) {},
	}
	p.Nodes = lab.Real
	raw, err := os.ReadFile("../../docker-compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct{ Command []string }
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	for _, c := range []component{
		p.cloud(), p.etcd(nil), p.apiServer(nil), p.controllerManager(nil), p.scheduler(nil), p.ccm(nil), p.proxyServer(), p.proxyAgent(), p.kwok(),
		p.csiController(), p.csiSidecars(), p.console(),
	} {
		want, got := flagsOf(c.args), flagsOf(file.Services[c.name].Command)
		for _, f := range aboutPlaces {
			delete(want, f)
			delete(got, f)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("docker-compose.yaml and the lab start %s differently (-lab +compose):\n%s", c.name, d)
		}
	}
}
