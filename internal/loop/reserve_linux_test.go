package loop

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReleaseOfOpenDevice proves that Release waits while a program has the device open. If the
// program closes the device before the timeout, Release removes the device. Otherwise Release
// returns an error.
func TestReleaseOfOpenDevice(t *testing.T) {
	needsRoot(t)
	n, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	dev, err := os.Open(Path(n))
	if err != nil {
		t.Fatal(err)
	}
	if err := Release(t.Context(), n); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Release of an open device: got %v, want EBUSY", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = dev.Close() })
	if err := Release(t.Context(), n); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join("/sys/block", filepath.Base(Path(n)))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the device after Release: got %v, want none", err)
	}
	if err := Release(t.Context(), n); err != nil {
		t.Errorf("Release of a missing device: %v", err)
	}
}
