//go:build !linux

package conform

import "os/exec"

// endWithThread does nothing, because only Linux can kill a process when the
// thread that started the process ends.
func endWithThread(*exec.Cmd) {}
