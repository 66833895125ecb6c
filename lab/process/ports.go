package process

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/cloudsim-dev/allinone/internal/freeport"
)

// DefaultPortBase is the default number of a lab's first port.
const DefaultPortBase = 8180

// portNames lists the names of the ports. The number of a port is the base plus
// the index of the port's name in this list. Ports that people use come first.
// Append new ports at the end, so that the existing ports keep their numbers.
var portNames = []string{
	"cloudsim", "kube-apiserver", "etcd", "etcd-peer",
	"kube-controller-manager", "kube-scheduler", "kwok", "ccm",
	"proxy-agents", "proxy-health", "proxy-admin", "proxy-agent", "registry",
	"csi", "csi-sidecars", dialectPort("hcloud"), "console", dialectPort("aws"),
}

func dialectPort(dialect string) string { return "dialect-" + dialect }

// host is the address on which the components listen. It is on loopback, so other machines cannot
// reach a lab. With real nodes, some servers listen at the host's address in the VPC instead.
const host = "127.0.0.1"

// portsByName maps each name in portNames to a port.
type portsByName map[string]int

func (p portsByName) addr(name string) string { return net.JoinHostPort(host, strconv.Itoa(p[name])) }

func (p portsByName) url(scheme, name string) string { return scheme + "://" + p.addr(name) }

// choosePorts returns the ports for a start of the lab. The parameter previous contains the ports
// of the previous start, and is empty at the first start. It is incomplete if the previous start
// was with an older release that had fewer ports. The result depends on base:
//
//   - If base is nil and previous is complete, choosePorts returns previous.
//   - If base is nil and previous is incomplete, choosePorts adds the missing ports to previous.
//     But if previous is empty or not consecutive (see isFrom), it returns the default ports.
//   - For a *base of 0, choosePorts returns previous if previous is complete, does not begin at
//     DefaultPortBase, and contains only free ports. Otherwise it chooses free ports.
//   - For any other *base, choosePorts returns consecutive ports that begin at *base.
func choosePorts(base *int, previous portsByName) (portsByName, error) {
	complete := !slices.ContainsFunc(portNames, func(n string) bool { return previous[n] == 0 })
	switch {
	case base == nil && complete:
		return previous, nil
	case base == nil && previous.isFrom(previous[portNames[0]]): // the previous release had fewer ports
		return portsFrom(previous[portNames[0]]), nil
	case base == nil:
		return portsFrom(DefaultPortBase), nil
	case *base == 0 && complete && previous[portNames[0]] != DefaultPortBase && previous.checkFree() == nil:
		return previous, nil
	case *base == 0:
		return freePorts()
	}
	return portsFrom(*base), nil
}

func portsFrom(base int) portsByName {
	p := portsByName{}
	for i, n := range portNames {
		p[n] = base + i
	}
	return p
}

// isFrom reports whether base is positive and the ports in p are consecutive numbers from base. So
// the port of portNames[i] must be base+i. isFrom ignores ports that p does not contain.
func (p portsByName) isFrom(base int) bool {
	for i, n := range portNames {
		if port, ok := p[n]; ok && port != base+i {
			return false
		}
	}
	return base > 0
}

func freePorts() (portsByName, error) {
	free, err := freeport.Choose(len(portNames))
	if err != nil {
		return nil, err
	}
	p := portsByName{}
	for i, n := range portNames {
		p[n] = free[i]
	}
	return p, nil
}

// checkFree returns an error with one line for each port on which another program listens.
func (p portsByName) checkFree() error {
	var errs []error
	for _, n := range portNames {
		l, err := net.Listen("tcp4", p.addr(n))
		if err != nil {
			errs = append(errs, fmt.Errorf("port %d for %s cannot be used: %w; stop the program that uses it, or choose other ports with --port-base", p[n], n, rootCause(err)))
			continue
		}
		l.Close()
	}
	return errors.Join(errs...)
}

// rootCause returns the innermost error, because the caller's message already contains
// the outer errors.
func rootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
