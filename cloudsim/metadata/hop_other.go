//go:build !linux

package metadata

import (
	"errors"
	"net"
)

// oneHop returns ErrUnsupported. Instances have their own networks only on Linux.
func oneHop(net.Listener) error { return errors.ErrUnsupported }
