// Package shell quotes words for POSIX shells.
package shell

import (
	"regexp"
	"strings"
)

var plain = regexp.MustCompile(`^[a-zA-Z0-9%+,\-./:=@_]+$`)

// Word returns s as one word for a shell command. It adds quotes only if s needs them.
func Word(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
