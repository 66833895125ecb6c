//go:build !linux

package conform

import "os/exec"

// endWithThread does nothing, because only Linux has this signal.
func endWithThread(*exec.Cmd) {}
