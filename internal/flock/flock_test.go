package flock_test

import (
	"os"
	"testing"

	"github.com/cloudsim-dev/allinone/internal/flock"
)

func TestTry(t *testing.T) {
	dir := t.TempDir()
	open := func() *os.File {
		t.Helper()
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	if ok, err := flock.Try(first); !ok || err != nil {
		t.Fatalf("lock of a free directory: %v, %v", ok, err)
	}
	if ok, err := flock.Try(second); ok || err != nil {
		t.Errorf("lock of a locked directory: %v, %v", ok, err)
	}
	first.Close()
	if ok, err := flock.Try(second); !ok || err != nil {
		t.Errorf("lock after the holder closed it: %v, %v", ok, err)
	}
	second.Close()
	if ok, err := flock.Try(second); ok || err == nil {
		t.Errorf("lock of a closed file: %v, %v", ok, err)
	}
}
