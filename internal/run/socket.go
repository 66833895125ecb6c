package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// longestSocket is the maximum length of a Unix socket's path in bytes (unix(7)).
const longestSocket = 107

// Socket creates a Unix socket that only its owner may use. It replaces a socket that a killed
// process left. It returns an error if a process serves on the socket, or if path is a file of
// another kind. If two processes call Socket for one path at the same moment, one process can
// replace the socket of the other process.
//
// If the system cannot change the permissions of an open socket, Socket changes them after it has
// created the socket. For a moment, the socket then has the default permissions.
func Socket(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > longestSocket {
		return nil, fmt.Errorf("socket path %s is too long: a path may have at most %d bytes", path, longestSocket)
	}
	if err := removeStaleSocket(ctx, path); err != nil {
		return nil, err
	}
	var late error
	mode := func(_, _ string, c syscall.RawConn) error { // sets the mode before the socket has a name, if the system supports this
		return c.Control(func(fd uintptr) { late = setMode(fd, 0o600) })
	}
	ln, err := (&net.ListenConfig{Control: mode}).Listen(ctx, "unix", path)
	if err != nil || late == nil {
		return ln, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// removeStaleSocket removes the socket at path if no process serves on it.
func removeStaleSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists, but is not a socket", path)
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("socket %s is in use by another process", path), c.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil // another process has removed the socket in the meantime
	}
	return fmt.Errorf("socket %s exists, and may be in use: %w", path, err)
}
