package lab

import (
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"
)

// The agents of the lab's network proxy run beside hollow nodes or on real nodes. No
// agents run if kube-apiserver does not use the lab's network proxy.
func TestWhereAgentsRun(t *testing.T) {
	keys := pki{dir: t.TempDir(), now: time.Now()}
	if _, err := keys.ensure(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		nodes                    Nodes
		proxy                    bool
		egress                   string
		server, here, onMachines bool
	}{
		{nodes: Hollow, proxy: true, server: true, here: true},
		{nodes: None, proxy: true, server: true, here: true},
		{nodes: Real, proxy: true, server: true, onMachines: true},
		{nodes: Hollow},
		{nodes: Real},
		{nodes: Hollow, proxy: true, egress: "/egress.yaml"},
		{nodes: Real, proxy: true, egress: "/egress.yaml"},
	} {
		p := plan{Config: Default(), dir: Dir("/lab"), ports: portsFrom(DefaultPortBase), pki: keys, networks: composedNetworks(Real)}
		p.Nodes, p.NetworkProxy, p.EgressConfig = tc.nodes, tc.proxy, tc.egress
		all, err := p.components(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		runs := func(name string) bool {
			return slices.ContainsFunc(all, func(c component) bool { return c.name == name })
		}
		onMachines := p.Nodes == Real && p.realNetworkProxy() != nil
		if runs("proxy-server") != tc.server || runs("proxy-agent") != tc.here || onMachines != tc.onMachines {
			t.Errorf("%+v: runs a server: %v, runs an agent beside the server: %v, runs agents on machines: %v", tc, runs("proxy-server"), runs("proxy-agent"), onMachines)
		}
	}
}

// Agents call the proxy server at an address that its certificate contains. Other hosts
// cannot reach this address: it is on loopback for hollow nodes and in the VPC for real
// nodes.
func TestWhereAgentsCall(t *testing.T) {
	p := plan{Config: Default(), ports: portsFrom(DefaultPortBase), networks: realNetworksFrom(firstVPC)}
	for _, nodes := range []Nodes{Hollow, Real} {
		want := map[Nodes]string{Hollow: "127.0.0.1", Real: "10.100.255.2"}[nodes]
		p.Nodes = nodes
		p.pki = pki{server: p.serverIPs()}
		if got := flagsOf(p.proxyServer().args)["--agent-bind-address"]; got != want {
			t.Errorf("the server of %s nodes listens at %s, want %s", nodes, got, want)
		}
		at := slices.IndexFunc(p.pki.leaves(), func(l leaf) bool { return l.name == "proxy-server" })
		if ips := p.pki.leaves()[at].ips; ips[len(ips)-1].String() != want {
			t.Errorf("the server of %s nodes has a certificate for %v, want %s", nodes, ips, want)
		}
	}
	if got := p.realNetworkProxy().Server; got != "10.100.255.2:8188" {
		t.Errorf("the agents on machines connect to %s", got)
	}
}

// The certificates of the proxy server and of the lab's agent are renewed 30 days before
// their end. The certificates of other components do not change.
func TestProxyCertificatesAreRenewed(t *testing.T) {
	now := time.Now()
	keys := pki{dir: t.TempDir(), now: now}
	if _, err := keys.ensure(); err != nil {
		t.Fatal(err)
	}
	read := func() (all [3]string) {
		for n, name := range []string{"proxy-server", "proxy-agent", "kube-apiserver"} {
			raw, err := os.ReadFile(keys.crt(name))
			if err != nil {
				t.Fatal(err)
			}
			all[n] = string(raw)
		}
		return all
	}
	first := read()
	if err := keys.renewProxy(now.AddDate(0, 0, 365-31)); err != nil || read() != first {
		t.Errorf("the lab renewed certificates 31 days before their expiry: %v", err)
	}
	if err := keys.renewProxy(now.AddDate(0, 0, 365-29)); err != nil {
		t.Fatal(err)
	}
	if got := read(); got[0] == first[0] || got[1] == first[1] || got[2] != first[2] {
		t.Errorf("29 days before the expiry: server renewed %v, agent renewed %v, kube-apiserver renewed %v", got[0] != first[0], got[1] != first[1], got[2] != first[2])
	}
}
