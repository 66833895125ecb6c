//go:build !linux

package metadata

import (
	"errors"
	"net"
)

// oneHop returns ErrUnsupported. Only on Linux, instances have their own networks.
func oneHop(net.Listener) error { return errors.ErrUnsupported }
