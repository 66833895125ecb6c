package wire

import (
	"slices"
	"strings"
)

// Cause is the reason for a failed dial, as one word that programs can compare. An agent that
// supports cloudsim's extension of the protocol writes the Cause before the error text of a
// DIAL_RSP. An example is "refused: dial tcp 10.0.0.1:80: connect: connection refused".
type Cause string

const (
	Unknown     Cause = ""            // upstream's agents send no cause
	Refused     Cause = "refused"     // the target refused the connection; every agent would get this answer
	TimedOut    Cause = "timeout"     // the target did not answer
	Unreachable Cause = "unreachable" // this agent has no route to the target
	Busy        Cause = "busy"        // this agent has no free resources
	Invalid     Cause = "invalid"     // the protocol or the address is not valid
	Failed      Cause = "failed"      // any other reason
)

// Text returns the error text of a DIAL_RSP: the cause, followed by the
// message.
func (c Cause) Text(message string) string { return string(c) + ": " + message }

// CutCause splits the error text of a DIAL_RSP into the cause and the message after it.
func CutCause(text string) (Cause, string) {
	word, why, ok := strings.Cut(text, ": ")
	if ok && slices.Contains([]Cause{Refused, TimedOut, Unreachable, Busy, Invalid, Failed}, Cause(word)) {
		return Cause(word), why
	}
	return Unknown, text
}

// Retry reports whether the same dial through another agent can succeed. A retry is safe, because a
// failed dial has sent no data to the target.
func (c Cause) Retry() bool { return c == TimedOut || c == Unreachable || c == Busy }
