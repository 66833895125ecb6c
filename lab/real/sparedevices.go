package real

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/loop"
)

// spareFolder is the name of a folder in the machine's folder. For each disk, the folder has a file
// with the number of the disk's second loop device. A later hypervisor needs this number to remove
// the device. The comment of device.spareLoop describes the use of the second loop device.
const spareFolder = "spares"

// reserve makes the second loop device of a disk and returns the number of this device. The kubelet
// needs this device for a raw block volume. A machine cannot open /dev/loop-control, so the kubelet
// cannot make the device itself.
func (d *machineDevices) reserve(ctx context.Context, id cloudsim.DiskID) (int, error) {
	if err := d.release(ctx, id); err != nil { // an earlier attempt may have failed after it made the device
		return 0, err
	}
	if err := os.MkdirAll(d.folder.path(spareFolder), 0o700); err != nil {
		return 0, err
	}
	n, err := loop.Reserve()
	if err != nil {
		return 0, err
	}
	file := d.folder.path(spareFolder, string(id))
	if err := os.WriteFile(file, []byte(strconv.Itoa(n)), 0o600); err != nil {
		return 0, errors.Join(err, loop.Release(ctx, n), removeIfThere(file))
	}
	return n, nil
}

// releaseUnused removes the second loop device of each disk that is neither in d.have nor in
// wanted. It stores the error of each disk in d.failed. A removal fails, for example, while a
// program has the device open. The next update tries again.
func (d *machineDevices) releaseUnused(ctx context.Context, wanted map[cloudsim.DiskID]cloudsim.Disk) error {
	files, err := os.ReadDir(d.folder.path(spareFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		id := cloudsim.DiskID(f.Name())
		if _, isWanted := wanted[id]; isWanted {
			continue // add releases the device before it makes a new one
		}
		if _, exists := d.have[id]; !exists {
			d.failed[id] = errors.Join(d.failed[id], d.release(ctx, id))
		}
	}
	return err
}

func (d *machineDevices) release(ctx context.Context, id cloudsim.DiskID) error {
	return release(ctx, d.folder.path(spareFolder, string(id)))
}

func release(ctx context.Context, file string) error {
	n, err := readSpare(file)
	if err != nil {
		return err
	}
	if n != 0 {
		if err := loop.Release(ctx, n); err != nil {
			return err
		}
	}
	return removeIfThere(file)
}

func removeIfThere(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readSpare returns the number in a file of the folder spares. It returns 0 if the file does not
// exist, or if the file is unfinished because the host's disk was full or the host lost power.
func readSpare(file string) (int, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0, nil //nolint:nilerr // the file is unfinished
	}
	return n, nil
}
