//go:build unix

package credprovider

import (
	"io/fs"
	"os"
	"syscall"
)

// isOwned reports whether a file belongs to the user that runs the plugin.
func isOwned(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
