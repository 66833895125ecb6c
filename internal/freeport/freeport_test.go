package freeport_test

import (
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/cloudsim-dev/allinone/internal/freeport"
)

// Programs can use all chosen ports concurrently. The ports are outside of the
// ranges for outgoing connections and node ports.
func TestChoose(t *testing.T) {
	ports, err := freeport.Choose(20)
	if err != nil || len(ports) != 20 {
		t.Fatalf("%v: %v", ports, err)
	}
	for _, port := range ports {
		l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			t.Error(err)
			continue
		}
		defer l.Close()
		if port < 10000 || port > 29999 {
			t.Errorf("port %d is in the range of outgoing connections or node ports", port)
		}
	}
	if slices.Sort(ports); len(slices.Compact(ports)) != 20 {
		t.Errorf("equal ports in %v", ports)
	}
}

// Choose returns an error if there are not enough ports.
func TestChooseTooMany(t *testing.T) {
	if ports, err := freeport.Choose(40000); err == nil {
		t.Errorf("%d ports", len(ports))
	}
}
