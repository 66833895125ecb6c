package run_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/internal/run"
)

// If a killed process left its socket at the path, Socket replaces this socket. For any other file
// at the path, Socket returns an error.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	ln, err := run.Socket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("new socket: got %v, error %v; want mode 0600", info, err)
	}
	if _, err := run.Socket(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf(`Socket at the path of a running server: got error %v, want "another process"`, err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false) //nolint:forcetypeassert // leaves the socket like a killed process
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if ln, err = run.Socket(t.Context(), path); err != nil {
		t.Fatalf("socket of a dead server: %v", err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	other, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Socket(t.Context(), path); err == nil || !strings.Contains(err.Error(), "may be in use") {
		t.Errorf(`Socket at the path of a datagram socket: got error %v, want "may be in use"`, err)
	}
	if err := errors.Join(other.Close(), os.Remove(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := run.Socket(t.Context(), path+strings.Repeat("x", 100)); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf(`Socket at a path that is too long: got error %v, want "too long"`, err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Socket(t.Context(), path); err == nil {
		t.Error("Socket at the path of a regular file returned no error")
	}
	if raw, err := os.ReadFile(path); err != nil || string(raw) != "mine" {
		t.Errorf("regular file after Socket: got the contents %q, error %v; want mine", raw, err)
	}
}
