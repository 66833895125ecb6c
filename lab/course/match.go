package course

import (
	"regexp"
	"strings"
)

// valuePatterns lists patterns for values that differ between runs. normalize applies the patterns
// in the order of the list. It replaces each match of an entry's pattern by the text in this entry.
var valuePatterns = []struct {
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

// Matches reports whether an output is equal to the page's output. The comparison ignores values
// that change with each run, such as ages.
func (c Command) Matches(printed string) bool { return matches(c.Want, printed, true) }

// Matches reports whether an output is equal to the expected output. Ages and similar values
// must be equal, too.
func (c Check) Matches(printed string) bool { return matches(c.Want, printed, false) }

func matches(want, printed string, maskValues bool) bool {
	var b strings.Builder
	b.WriteString(`\A`)
	for _, line := range normalize(want, maskValues) {
		if line == "…" {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n`)
	}
	b.WriteString(`\z`)
	all := strings.Join(normalize(printed, maskValues), "\n")
	if all != "" {
		all += "\n"
	}
	return regexp.MustCompile(b.String()).MatchString(all)
}

// normalize returns the non-empty lines of s. In each line, it replaces several spaces by one
// space. If maskValues is true, it also replaces values that differ in each run, such as the age of
// an object, by the words in the table valuePatterns.
func normalize(s string, maskValues bool) []string {
	var lines []string
	for line := range strings.Lines(s) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" {
			continue
		}
		if maskValues {
			for _, e := range valuePatterns {
				line = e.like.ReplaceAllString(line, e.as)
			}
		}
		lines = append(lines, line)
	}
	return lines
}
