//go:build !unix

package credprovider

import "io/fs"

// isOwned returns false, so the plugin uses no cache. No cache is necessary,
// because no kubelet runs the plugin on this operating system.
func isOwned(fs.FileInfo) bool { return false }
