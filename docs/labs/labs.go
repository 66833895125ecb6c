// Package labs embeds the pages of the labs into the binary. Package course parses
// these pages.
package labs

import "embed"

// Pages contains one Markdown file for each lab.
//
//go:embed [0-9]*.md
var Pages embed.FS
