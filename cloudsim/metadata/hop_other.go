//go:build !linux

package metadata

import (
	"errors"
	"net"
)

// oneHop returns ErrUnsupported. Systems other than Linux need no hop limit, because
// instances have their own networks only on Linux.
func oneHop(net.Listener) error { return errors.ErrUnsupported }
