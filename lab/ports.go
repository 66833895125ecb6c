package lab

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/cloudsim-dev/allinone/internal/freeport"
)

// DefaultPortBase is the first of a lab's ports.
const DefaultPortBase = 8180

// Ports that people use come first; each is the base plus its place here.
// New ones are appended, so that printed instructions stay true.
var portNames = []string{
	"cloudsim", "kube-apiserver", "etcd", "etcd-peer",
	"kube-controller-manager", "kube-scheduler", "kwok", "ccm",
	"proxy-agents", "proxy-health", "proxy-admin", "proxy-agent", "registry",
	"csi", "csi-sidecars",
}

// host is where everything listens: nothing of a lab is reachable from
// another machine.
const host = "127.0.0.1"

// ports is where each component listens.
type ports map[string]int

func (p ports) addr(name string) string { return net.JoinHostPort(host, strconv.Itoa(p[name])) }

func (p ports) url(scheme, name string) string { return scheme + "://" + p.addr(name) }

// choosePorts decides: base if it is given (free ones if it is 0), else those
// of the last time, else the default.
func choosePorts(base *int, last ports) (ports, error) {
	complete := !slices.ContainsFunc(portNames, func(n string) bool { return last[n] == 0 })
	switch {
	case base == nil && complete:
		return last, nil
	case base == nil:
		return portsFrom(DefaultPortBase), nil
	case *base == 0 && complete && last[portNames[0]] != DefaultPortBase:
		return last, nil // chosen like this before
	case *base == 0:
		return freePorts()
	}
	return portsFrom(*base), nil
}

func portsFrom(base int) ports {
	p := ports{}
	for i, n := range portNames {
		p[n] = base + i
	}
	return p
}

// freePorts are such that nobody has now.
func freePorts() (ports, error) {
	free, err := freeport.Choose(len(portNames))
	if err != nil {
		return nil, err
	}
	p := ports{}
	for i, n := range portNames {
		p[n] = free[i]
	}
	return p, nil
}

// taken is one line for each port that somebody else listens on.
func (p ports) taken() error {
	var errs []error
	for _, n := range portNames {
		l, err := net.Listen("tcp4", p.addr(n))
		if err != nil {
			errs = append(errs, fmt.Errorf("port %d for %s cannot be used: %w; stop what uses it, or shift all ports with --port-base", p[n], n, rootCause(err)))
			continue
		}
		l.Close()
	}
	return errors.Join(errs...)
}

// rootCause drops what the caller's own words say already.
func rootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
