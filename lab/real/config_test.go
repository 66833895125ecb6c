package real

import (
	"net/netip"
	"strings"
	"testing"
)

func testNetwork() Network {
	return Network{
		VPC: netip.MustParsePrefix("10.100.0.0/16"), Router: netip.MustParseAddr("10.100.255.1"), Host: netip.MustParseAddr("10.100.255.2"),
		LoadBalancers: netip.MustParsePrefix("10.100.128.0/18"), Pods: netip.MustParsePrefix("10.101.0.0/16"), Link: "csim-0123abcd",
	}
}

func TestNetworkValidate(t *testing.T) {
	if err := testNetwork().Validate(); err != nil {
		t.Fatalf("valid network: %v", err)
	}
	for name, spoil := range map[string]func(*Network){
		"router":         func(n *Network) { n.Router = netip.MustParseAddr("10.99.0.1") },
		"host":           func(n *Network) { n.Host = netip.Addr{} },
		"load balancers": func(n *Network) { n.LoadBalancers = netip.MustParsePrefix("10.0.0.0/8") },
		"pods":           func(n *Network) { n.Pods = netip.MustParsePrefix("10.100.3.0/24") },
		"link":           func(n *Network) { n.Link = "much-too-long-a-name" },
	} {
		n := testNetwork()
		spoil(&n)
		if err := n.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the error does not name the problem: %v", name, err)
		}
	}
}

// Validate reports all errors at once.
func TestConfigValidate(t *testing.T) {
	err := Config{Network: testNetwork()}.Validate()
	for _, want := range []string{"cloud", "dir", "name", "identify", "router", "registry", "disks"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	if err := (Config{Network: testNetwork(), Router: &Services{}}).Validate(); err == nil || !strings.Contains(err.Error(), "metadata") {
		t.Errorf("router without the metadata service: %v", err)
	}
}

func TestRouterConfigValidate(t *testing.T) {
	err := RouterConfig{Network: testNetwork()}.Validate()
	for _, want := range []string{"cloud", "dir", "metadata", "bridge"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}
