// Package freeport finds TCP ports of loopback for programs that will listen on
// them a little later. It keeps none for them.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Free ports are drawn from where no system of today takes the ports of outgoing
// connections, nor Kubernetes its node ports: what was free when it was chosen is
// not some client's when a program comes to listen on it, or comes again after a
// restart.
const first, last = 10000, 29999

// tries is how often a port may be taken before it is not by chance.
const tries = 1000

// Choose returns n ports of 127.0.0.1 that nobody listens on, no two the same.
func Choose(n int) ([]int, error) {
	var ports []int
	for try := 1; len(ports) < n; try++ {
		port := first + rand.IntN(last-first+1) //nolint:gosec // it keeps no secret
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		switch {
		case err == nil:
			defer l.Close() // once the last is known, so that no two are the same
			ports = append(ports, port)
		case try >= tries:
			return nil, fmt.Errorf("looking for free ports from %d to %d: %w", first, last, err)
		}
	}
	return ports, nil
}
