package registry

import "golang.org/x/sys/unix"

// free is how many bytes there is room for where a folder is.
func free(dir string) (int64, error) {
	var on unix.Statfs_t
	if err := unix.Statfs(dir, &on); err != nil {
		return 0, err
	}
	return int64(on.Bavail) * int64(on.Bsize), nil //nolint:unconvert // they are of other types elsewhere
}
