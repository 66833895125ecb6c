package process

import (
	"crypto/tls"
	"github.com/cloudsim-dev/allinone/lab"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// With real nodes, the agents of the lab's network proxy run on the machines. With hollow nodes or
// nodes that the user adds, one agent runs on the lab's host. No agents run if kube-apiserver does
// not use the lab's network proxy.
func TestWhereAgentsRun(t *testing.T) {
	keys := lab.PKI{Dir: t.TempDir(), Now: time.Now()}
	if _, err := keys.Ensure(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		nodes                    lab.Nodes
		proxy                    bool
		egress                   string
		server, here, onMachines bool
	}{
		{nodes: lab.Hollow, proxy: true, server: true, here: true},
		{nodes: lab.None, proxy: true, server: true, here: true},
		{nodes: lab.Real, proxy: true, server: true, onMachines: true},
		{nodes: lab.Hollow},
		{nodes: lab.Real},
		{nodes: lab.Hollow, proxy: true, egress: "/egress.yaml"},
		{nodes: lab.Real, proxy: true, egress: "/egress.yaml"},
	} {
		p := plan{Config: Default(), dir: Dir("/lab"), ports: portsFrom(DefaultPortBase), pki: keys, networks: lab.RealNetworks(lab.FirstVPC)}
		p.Nodes, p.NetworkProxy, p.EgressConfig = tc.nodes, tc.proxy, tc.egress
		all, err := p.componentTable(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		runs := func(name string) bool {
			return slices.ContainsFunc(all, func(c component) bool { return c.name == name })
		}
		onMachines := p.Nodes == lab.Real && p.realNetworkProxy() != nil
		if runs("proxy-server") != tc.server || runs("proxy-agent") != tc.here || onMachines != tc.onMachines {
			t.Errorf("%+v: got server %v, agent beside the server %v, agents on machines %v", tc, runs("proxy-server"), runs("proxy-agent"), onMachines)
		}
	}
}

// Agents call the proxy server at an address that the server's certificate contains. Only this host
// and the lab's machines can reach this address. It is on loopback for hollow nodes, and in the VPC
// for real nodes.
func TestWhereAgentsCall(t *testing.T) {
	p := plan{Config: Default(), ports: portsFrom(DefaultPortBase), networks: lab.RealNetworks(lab.FirstVPC)}
	for _, nodes := range []lab.Nodes{lab.Hollow, lab.Real} {
		want := map[lab.Nodes]string{lab.Hollow: "127.0.0.1", lab.Real: "10.100.255.2"}[nodes]
		p.Nodes = nodes
		p.pki = lab.PKI{Dir: t.TempDir(), Now: time.Now(), Servers: p.serverIPs()}
		if _, err := p.pki.Ensure(); err != nil {
			t.Fatal(err)
		}
		if got := flagsOf(p.proxyServer().args)["--agent-bind-address"]; got != want {
			t.Errorf("server for %s nodes: got address %s, want %s", nodes, got, want)
		}
		pair, err := tls.LoadX509KeyPair(p.pki.CertFile("proxy-server"), p.pki.KeyFile("proxy-server"))
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Leaf.VerifyHostname(want); err != nil {
			t.Errorf("certificate of the server for %s nodes: %v", nodes, err)
		}
	}
	if got := p.realNetworkProxy().Server; got != "10.100.255.2:8188" {
		t.Errorf("agents on machines: got server %s, want 10.100.255.2:8188", got)
	}
}
