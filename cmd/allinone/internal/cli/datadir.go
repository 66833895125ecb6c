package cli

import (
	"path/filepath"
)

// DefaultDataDir returns the default data dir of a lab: the value of $CLOUDSIM_DATA_DIR. Without
// this variable, it returns the folder cloudsim in the user's data folder, according to the XDG
// base directory specification. If $CLOUDSIM_DATA_DIR, $XDG_DATA_HOME and $HOME are empty, it
// returns "".
func DefaultDataDir(getenv func(string) string) string {
	if dir := getenv("CLOUDSIM_DATA_DIR"); dir != "" {
		return dir
	}
	base := getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(base) { // the specification says to ignore a relative path
		home := getenv("HOME")
		if home == "" {
			return ""
		}
		base = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(base, "cloudsim")
}

// DefaultCloudDir returns the default data directory of `allinone cloudsim`: the folder cloud in
// the directory that DefaultDataDir returns. If DefaultDataDir returns "", DefaultCloudDir also
// returns "".
func DefaultCloudDir(getenv func(string) string) string {
	if dir := DefaultDataDir(getenv); dir != "" {
		return filepath.Join(dir, "cloud")
	}
	return ""
}
