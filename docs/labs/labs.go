// Package labs holds the pages of the course, as people read them: the binary
// carries them along, and package course makes steps of them.
package labs

import "embed"

// Pages are the labs, a file each.
//
//go:embed [0-9]*.md
var Pages embed.FS
