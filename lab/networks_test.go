package lab

import (
	"net"
	"strings"
	"testing"
)

func TestLabsDoNotShareAddresses(t *testing.T) {
	first, err := chooseNetworks(networks{})
	if err != nil {
		t.Fatal(err)
	}
	ip := strings.Replace(first.LoadBalancers, "0.0/16", "3.7", 1)
	l, err := net.Listen("tcp4", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := chooseNetworks(networks{})
	if err != nil || second.Instances == first.Instances || second.LoadBalancers == first.LoadBalancers {
		t.Errorf("a second lab gets %v, %v, and the first has %v", second, err, first)
	}
	if _, err := chooseNetworks(first); err == nil || !strings.Contains(err.Error(), "something listens on "+l.Addr().String()) {
		t.Errorf("a lab whose addresses are taken: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := chooseNetworks(first)
	if err != nil || again != first {
		t.Errorf("the addresses change: %v, %v; want %v", again, err, first)
	}
}
