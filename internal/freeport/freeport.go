// Package freeport chooses free TCP ports of 127.0.0.1 for programs that listen on
// these ports later.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// These are the first and the last port that Choose can return. The range
// contains neither the node ports of Kubernetes nor the ports that current
// systems use for outgoing connections. So no outgoing connection takes a
// chosen port before the program listens on the port, or while the program
// restarts.
const first, last = 10000, 29999

// maxPorts is the maximum number of ports in a call of Choose. Choose takes ports from a range with
// many more ports, so a random port of the range is probably free.
const maxPorts = 1000

// maxTries limits the attempts of one call of Choose. After maxTries attempts, Choose returns an
// error, because the range probably has too few free ports.
const maxTries = 3 * maxPorts

// reservations contains an abstract Unix socket (unix(7)) for each port that this process has
// reserved. A reservation is valid only in this network namespace.
var (
	mu           sync.Mutex
	reservations []net.Listener
)

// Choose returns n different ports of 127.0.0.1 on which no program listens. It returns an error if
// n is greater than maxPorts, or if it finds too few free ports. On Linux, Choose reserves these
// ports until this process ends, because a lab listens on its ports only after it has chosen all of
// them. Later calls of Choose, in this process or in another process, return other ports.
func Choose(n int) ([]int, error) {
	if n > maxPorts {
		return nil, fmt.Errorf("choosing %d free ports: the limit is %d", n, maxPorts)
	}
	var ports []int
	for try := 1; len(ports) < n; try++ {
		port := first + rand.IntN(last-first+1) //nolint:gosec // ports are not secret
		if slices.Contains(ports, port) {
			continue
		}
		err := reserve(port)
		switch {
		case err == nil:
			ports = append(ports, port)
		case try >= maxTries:
			return nil, fmt.Errorf("looking for free ports from %d to %d: %w", first, last, err)
		}
	}
	return ports, nil
}

// reserve reserves a port. It returns an error if a program listens on the port, or if the port is
// reserved.
func reserve(port int) error {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	defer l.Close()
	if runtime.GOOS != "linux" {
		return nil
	}
	reservation, err := net.Listen("unix", "@cloudsim/ports/"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	reservations = append(reservations, reservation)
	return nil
}
