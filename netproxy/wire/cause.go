package wire

import (
	"slices"
	"strings"
)

// Cause is why a dial failed, in a word that a program can act on. An agent
// that has negotiated the extension writes it before the error of DIAL_RSP, as
// in "refused: dial tcp 10.0.0.1:80: connect: connection refused".
type Cause string

const (
	Unknown     Cause = ""            // upstream's agents do not say
	Refused     Cause = "refused"     // the target said no: every agent would hear that
	TimedOut    Cause = "timeout"     // the target said nothing
	Unreachable Cause = "unreachable" // this agent has no way to the target
	Busy        Cause = "busy"        // this agent takes no more
	Invalid     Cause = "invalid"     // no such protocol or address
	Failed      Cause = "failed"      // anything else
)

// Text is the error of a DIAL_RSP.
func (c Cause) Text(why string) string { return string(c) + ": " + why }

// CutCause takes an error of DIAL_RSP apart.
func CutCause(text string) (Cause, string) {
	word, why, ok := strings.Cut(text, ": ")
	if ok && slices.Contains([]Cause{Refused, TimedOut, Unreachable, Busy, Invalid, Failed}, Cause(word)) {
		return Cause(word), why
	}
	return Unknown, text
}

// Retry reports whether another agent may do better. Nothing has been sent to
// the target when a dial fails, so trying again harms nobody.
func (c Cause) Retry() bool { return c == TimedOut || c == Unreachable || c == Busy }
