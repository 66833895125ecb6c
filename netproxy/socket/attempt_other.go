//go:build !unix

package socket

// canAttempt is false, because this system cannot read from a socket without waiting.
const canAttempt = false

// attempt has no effect. A Reader does not call it on this system.
func (*Reader) attempt(uintptr) bool { return true }
