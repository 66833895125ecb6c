package aws

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// TestPattern creates random patterns for filters, and a regular expression with the same meaning
// for each pattern. It proves that both match the same texts.
func TestPattern(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // repeatable random numbers
	text := func(alphabet []string) string {
		var b strings.Builder
		for range random.IntN(8) {
			b.WriteString(alphabet[random.IntN(len(alphabet))])
		}
		return b.String()
	}
	elements := map[string]string{"*": `.*`, "?": `.`, `\*`: `\*`, `\?`: `\?`, `\\`: `\\`, `\a`: `a`, "a": `a`, "ä": `ä`, "\n": `\n`}
	names := []string{"*", "*", "?", `\*`, `\?`, `\\`, `\a`, "a", "a", "ä", "\n"}
	matched := 0
	for range 20_000 {
		value, expression := "", `(?s)^`
		for range random.IntN(6) {
			name := names[random.IntN(len(names))]
			value, expression = value+name, expression+elements[name]
		}
		s := text([]string{"a", "a", "ä", "*", "?", `\`, "\n"})
		want := regexp.MustCompile(expression + `$`).MatchString(s)
		if got := parsePattern(value).matches(s); got != want {
			t.Fatalf("pattern %q, text %q: got %v, want %v", value, s, got, want)
		}
		if want {
			matched++
		}
	}
	if matched < 1000 {
		t.Errorf("only %d texts matched, want at least 1000", matched)
	}
	if n := len(parsePattern(strings.Repeat("*", 1000))); n != 1 {
		t.Errorf("pattern with 1000 asterisks: got %d elements, want 1", n)
	}
}
