//go:build !unix

package socket

// canAttempt is false, because this system cannot read from a socket without waiting.
const canAttempt = false

// hungUp returns false, because this system cannot check a socket without
// reading.
func hungUp(uintptr) bool { return false }

// attempt does nothing, because a Reader does not call attempt on this system.
func (*Reader) attempt(uintptr) bool { return true }
