package lab

import (
	"crypto/x509"
	"encoding/pem"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// Each machine's agent has its own certificate, which grants only the identifiers of this machine's
// instance.
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
		certPEM, keyPEM, err := p.issueAgent(i)
		if err != nil {
			t.Fatal(err)
		}
		keys[string(keyPEM)] = true
		block, _ := pem.Decode(certPEM)
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.GrantedBy(c)
		if err != nil || got.String() != want {
			t.Errorf("the certificate of %s permits %s, %v; want %s", i.Name, got, err, want)
		}
	}
	if len(keys) != 2 {
		t.Error("two machines have the same key")
	}
}
