// Package freeport finds free TCP ports of 127.0.0.1 for programs that listen on
// these ports later. It does not reserve the ports.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Choose selects ports from first to last. This range contains neither the node
// ports of Kubernetes nor the ports that current systems use for outgoing
// connections. So no outgoing connection takes a chosen port before the program
// listens on the port, even if the program restarts.
const first, last = 10000, 29999

// maxTries is the maximum number of attempts to find free ports. If so many
// attempts fail, the range probably has no free ports.
const maxTries = 1000

// Choose returns n different ports of 127.0.0.1 without a listener.
func Choose(n int) ([]int, error) {
	var ports []int
	for try := 1; len(ports) < n; try++ {
		port := first + rand.IntN(last-first+1) //nolint:gosec // ports are not secret
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		switch {
		case err == nil:
			defer l.Close() // open until the end, so that all ports differ
			ports = append(ports, port)
		case try >= maxTries:
			return nil, fmt.Errorf("looking for free ports from %d to %d: %w", first, last, err)
		}
	}
	return ports, nil
}
