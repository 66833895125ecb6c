package main

import (
	"path/filepath"
)

// defaultDataDir is where a lab lives when nobody says otherwise:
// $CLOUDSIM_DATA_DIR, or cloudsim in the user's data folder as the XDG base
// directory specification has it. It is "" when the user has no home.
func defaultDataDir(getenv func(string) string) string {
	if dir := getenv("CLOUDSIM_DATA_DIR"); dir != "" {
		return dir
	}
	base := getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(base) { // the specification: a relative one is ignored
		home := getenv("HOME")
		if home == "" {
			return ""
		}
		base = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(base, "cloudsim")
}
