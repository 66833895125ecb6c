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

// longestSocket is how long the path of a Unix socket may be (unix(7)).
const longestSocket = 107

// Socket makes a Unix socket that only its owner may use, from its first moment.
// One that a killed process left is replaced; one that somebody serves on is not,
// nor is anything else of that name. Two that begin at the same moment may still
// take it from each other.
func Socket(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > longestSocket {
		return nil, fmt.Errorf("%s is too long for a socket: at most %d bytes", path, longestSocket)
	}
	if err := leftover(ctx, path); err != nil {
		return nil, err
	}
	var late error
	mode := func(_, _ string, c syscall.RawConn) error { // before it has a name, where the system can
		return c.Control(func(fd uintptr) { late = syscall.Fchmod(int(fd), 0o600) })
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

// leftover removes a socket that nobody serves on.
func leftover(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is no socket", path)
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%s is in use: another process serves on it", path), c.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil // it went meanwhile
	}
	return fmt.Errorf("%s is there, and may be in use: %w", path, err)
}
