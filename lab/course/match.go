package course

import (
	"regexp"
	"strings"
)

// examples are what differs from one run to the next, in the order in which it
// is looked for, and what stands for it in a comparison.
var examples = []struct {
	like *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{8,10}-[bcdfghjklmnpqrstvwxz2456789]{5}\b`), "-POD"},
	{regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+(/\d+)?`), "ADDRESS"},
	{regexp.MustCompile(`\[?\b[0-9a-f]+:[0-9a-f:]+:[0-9a-f]+\b\]?`), "ADDRESS"},
	{regexp.MustCompile(`(ADDRESS|localhost):\d+`), "ADDRESS"},
	{regexp.MustCompile(`\b([a-z]+)-[0-9a-f]{6}\b`), "$1-ID"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m|h|d)(\d+(s|m|h))?\b`), "AGE"},
}

// Matches reports whether what a command printed is what its page shows; ages
// and the like need not be the same.
func (c Command) Matches(printed string) bool { return matches(c.Want, printed, true) }

// Matches reports whether what the check's command printed is what is wanted,
// to the letter.
func (c Check) Matches(printed string) bool { return matches(c.Want, printed, false) }

func matches(want, printed string, likely bool) bool {
	var b strings.Builder
	b.WriteString(`\A`)
	for _, line := range canonical(want, likely) {
		if line == "…" {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n`)
	}
	b.WriteString(`\z`)
	all := strings.Join(canonical(printed, likely), "\n")
	if all != "" {
		all += "\n"
	}
	return regexp.MustCompile(b.String()).MatchString(all)
}

// canonical are the lines of s with blanks of one width, without empty ones,
// and, if likely, with what is only an example replaced by its kind.
func canonical(s string, likely bool) []string {
	var lines []string
	for line := range strings.Lines(s) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" {
			continue
		}
		if likely {
			for _, e := range examples {
				line = e.like.ReplaceAllString(line, e.as)
			}
		}
		lines = append(lines, line)
	}
	return lines
}
