//go:build !linux

package metadata

import (
	"errors"
	"net"
)

// oneHop is not supported: only on Linux do instances have their own networks.
func oneHop(net.Listener) error { return errors.ErrUnsupported }
