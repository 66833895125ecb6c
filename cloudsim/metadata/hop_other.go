//go:build !linux

package metadata

import (
	"errors"
	"net"
)

// oneHop cannot: instances with networks of their own are Linux's.
func oneHop(net.Listener) error { return errors.ErrUnsupported }
