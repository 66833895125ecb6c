package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TestExitCodesAreTotal proves that each Kind has its own exit code. Scripts can therefore
// distinguish the kinds of errors.
func TestExitCodesAreTotal(t *testing.T) {
	taken := map[int]cloudsim.Kind{}
	for _, k := range cloudsim.Kinds() {
		row, ok := exitCodes[k]
		if !ok || row.code == ExitOK || row.code >= 125 || row.meaning == "" {
			t.Errorf("exit code of the kind %v: got %d with the meaning %q, want 1 to 124 and a meaning", k, row.code, row.meaning)
		}
		if other, twice := taken[row.code]; twice {
			t.Errorf("kinds %v and %v share the exit code %d", k, other, row.code)
		}
		taken[row.code] = k
	}
	if len(exitCodes) != len(cloudsim.Kinds()) {
		t.Errorf("%d codes for %d Kinds", len(exitCodes), len(cloudsim.Kinds()))
	}
}

func TestExitCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{errors.New("plain"), 1},
		{fmt.Errorf("wrapped: %w", cloudsim.Errorf(cloudsim.NotFound, "x")), 3},
		{errors.Join(cloudsim.Errorf(cloudsim.Conflict, "first"), cloudsim.Errorf(cloudsim.NotFound, "second")), 5},
		{fmt.Errorf("waiting: %w", context.Canceled), ExitInterrupted},
	} {
		if got := ExitCode(test.err); got != test.want {
			t.Errorf("exitCode(%v) = %d, want %d", test.err, got, test.want)
		}
	}
}

func TestExplain(t *testing.T) {
	two := &cloudsim.Error{Kind: cloudsim.Invalid, Msg: "a is bad; b is worse", Fields: []cloudsim.FieldError{{Field: "a", Reason: "is bad"}, {Field: "b", Reason: "is worse"}}}
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"one", errors.New("no"), "cmd: no\n"},
		{"joined", errors.Join(errors.New("no"), errors.Join(errors.New("never"))), "cmd: no\ncmd: never\n"},
		{"two wrapped errors", fmt.Errorf("%w while %w", errors.New("no"), errors.New("at it")), "cmd: no while at it\n"},
		{"error with several lines", errors.Join(errors.New("etcd does not start; its log ends:\nno\nroom"), errors.New("no")), "cmd: etcd does not start; its log ends:\nno\nroom\ncmd: no\n"},
		{"fields", two, "cmd: 2 fields are invalid:\n  a is bad\n  b is worse\n"},
		{"one field", &cloudsim.Error{Msg: "a is bad", Fields: two.Fields[:1]}, "cmd: a is bad\n"},
		{"interrupted", fmt.Errorf("x: %w", context.Canceled), "cmd: interrupted\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got bytes.Buffer
			Explain(&got, "cmd", test.err)
			if d := cmp.Diff(test.want, got.String()); d != "" {
				t.Error(d)
			}
		})
	}
}
