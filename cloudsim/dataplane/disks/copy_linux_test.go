package disks_test

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane/disks"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
)

// If the path of a disk is a FIFO, Save returns an error and does not wait for a writer.
func TestSaveRefusesAFIFO(t *testing.T) {
	dir := t.TempDir()
	path := disks.Path(dir, "disk-000001")
	ok(t, syscall.Mkfifo(path, 0o600))
	done := make(chan error, 1)
	go func() {
		done <- disks.NewFiles(dir).Save(t.Context(), statefile.NewWriter(&bytes.Buffer{}), map[string]cloudsim.DataSize{"disk-000001": {Bytes: 1 << 30}})
	}()
	select {
	case err := <-done:
		if !errors.Is(err, cloudsim.Conflict) || !strings.Contains(err.Error(), "disk-000001: the data file must be a regular file") {
			t.Errorf("Save of a FIFO: got error %v, want Conflict with the disk and the reason", err)
		}
	case <-time.After(10 * time.Second):
		fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_NONBLOCK, 0) // ends the wait of Save
		t.Fatal("Save of a FIFO waits for a writer", errors.Join(err, syscall.Close(fd)))
	}
}
