package registry

import "golang.org/x/sys/unix"

// freeBytes returns the number of free bytes on the disk of dir.
func freeBytes(dir string) (int64, error) {
	var on unix.Statfs_t
	if err := unix.Statfs(dir, &on); err != nil {
		return 0, err
	}
	return int64(on.Bavail) * int64(on.Bsize), nil //nolint:unconvert // the types differ on other architectures
}
