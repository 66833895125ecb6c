package lab

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// The network proxy's agent on each machine has its own certificate. With this certificate, the
// agent can claim only the names, addresses and pod range of the machine's instance.
func TestAgentCertificates(t *testing.T) {
	p := newPKI(t)
	node := func(name, address, pods string) cloudsim.Instance {
		return cloudsim.Instance{
			Meta: cloudsim.Meta{Name: name}, PodRanges: []string{pods},
			Addresses: []cloudsim.InstanceAddress{{Type: cloudsim.AddressHostname, Address: name + ".internal"}, {Type: cloudsim.AddressInternal, Address: address}},
		}
	}
	keys := map[string]bool{}
	for want, i := range map[string]cloudsim.Instance{
		"cidr=10.101.0.0%2F24&host=node-1&host=node-1.internal&ipv4=10.100.0.2": node("node-1", "10.100.0.2", "10.101.0.0/24"),
		"cidr=10.101.1.0%2F24&host=node-2&host=node-2.internal&ipv4=10.100.0.3": node("node-2", "10.100.0.3", "10.101.1.0/24"),
	} {
		pair, err := p.issueAgent(i)
		if err != nil {
			t.Fatal(err)
		}
		keys[string(pair.Cert.RawSubjectPublicKeyInfo)] = true
		got, err := wire.GrantedBy(pair.Cert)
		if err != nil || got.String() != want {
			t.Errorf("the certificate of %s permits %s, %v; want %s", i.Name, got, err, want)
		}
	}
	if len(keys) != 2 {
		t.Error("two machines have the same key")
	}
}

// The kubelet of a machine has its own certificates for its API and for its calls of the API
// server. Each boot makes new keys.
func TestIdentityOfMachine(t *testing.T) {
	p := newPKI(t)
	roots, err := loadPool(p.CertFile(ClusterCA))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, address := range []string{"10.100.0.2", "10.100.0.3"} {
		files, err := p.identifyMachine("https://10.100.255.1:6443", "node-1", netip.MustParseAddr(address))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"ca.crt", "kube-proxy.kubeconfig", "kubelet.crt", "kubelet.key", "kubelet.kubeconfig"}, slices.Sorted(maps.Keys(files))); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		keys = append(keys, string(files["kubelet.key"]))
		pair, err := tls.X509KeyPair(files["kubelet.crt"], files["kubelet.key"])
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"node-1", address} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
				t.Errorf("certificate of the kubelet's server for %s: %v", name, err)
			}
		}
		for file, user := range map[string]pkix.Name{
			"kubelet.kubeconfig":    {CommonName: "system:node:node-1", Organization: []string{"system:nodes"}},
			"kube-proxy.kubeconfig": {CommonName: "system:kube-proxy"},
		} {
			conf, err := clientcmd.RESTConfigFromKubeConfig(files[file])
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, string(conf.KeyData))
			client, err := tls.X509KeyPair(conf.CertData, conf.KeyData)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: asClient}); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			if got := client.Leaf.Subject; got.CommonName != user.CommonName || !slices.Equal(got.Organization, user.Organization) {
				t.Errorf("%s: got user %s, want %s", file, got, user)
			}
			if conf.Host != "https://10.100.255.1:6443" || !bytes.Equal(conf.CAData, files["ca.crt"]) {
				t.Errorf("%s: got server %s and authority %q", file, conf.Host, conf.CAData)
			}
		}
	}
	slices.Sort(keys)
	if got := len(slices.Compact(keys)); got != 5 { // both boots have the same key of kube-proxy
		t.Errorf("got %d keys, want 5", got)
	}
}
