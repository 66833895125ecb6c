package freeport_test

import (
	"net"
	"runtime"
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
		t.Fatalf("Choose(20): got %v, error %v; want 20 ports", ports, err)
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

// Choose returns no port that an earlier call returned, even if no program listens on this port.
func TestChooseReserves(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has abstract Unix sockets")
	}
	seen := map[int]bool{}
	for range 4 {
		ports, err := freeport.Choose(150)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ports {
			if seen[p] {
				t.Errorf("port %d is in the results of two calls", p)
			}
			seen[p] = true
		}
	}
}

func TestChooseTooMany(t *testing.T) {
	if ports, err := freeport.Choose(1001); err == nil {
		t.Errorf("Choose(1001) returned %d ports, want an error", len(ports))
	}
}
