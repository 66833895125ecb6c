package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTableAligns(t *testing.T) {
	var got bytes.Buffer
	tab := Table{w: &got, head: []string{"ID", "NAME"}}
	for _, rows := range [][][]string{
		{{"1", "é"}, {"long", ""}},
		{{"2", "later"}, {"much longer", "x"}}, // the column widths of the first rows stay
		{{"3", "\x1b[31mred\nline"}},           // Print replaces control characters
	} {
		if err := tab.Print(rows); err != nil {
			t.Fatal(err)
		}
	}
	want := "ID     NAME\n" +
		"1      é\n" +
		"long   -\n" +
		"2             later\n" +
		"much longer   x\n" +
		"3             ?[31mred?line\n"
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Error(d)
	}
}

func TestAge(t *testing.T) {
	for want, since := range map[string]time.Duration{"0s": -time.Hour, "5s": 5 * time.Second, "3m": 3 * time.Minute, "2d3h": 51 * time.Hour} {
		if got := Age(time.Now().Add(-since)); got != want {
			t.Errorf("age of %v = %q, want %q", since, got, want)
		}
	}
	if got := Age(time.Time{}); got != "" {
		t.Errorf("age of the zero time = %q", got)
	}
}
