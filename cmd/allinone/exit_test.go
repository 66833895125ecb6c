package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab"
)

// TestExitCodesAreTotal proves that each Kind has its own exit code, so that scripts can
// distinguish failures.
func TestExitCodesAreTotal(t *testing.T) {
	taken := map[int]cloudsim.Kind{}
	for _, k := range cloudsim.Kinds() {
		row, ok := exitCodes[k]
		if !ok || row.code == exitOK || row.code >= 125 || row.meaning == "" {
			t.Errorf("Kind %v: code %d, meaning %q", k, row.code, row.meaning)
		}
		if other, twice := taken[row.code]; twice {
			t.Errorf("Kinds %v and %v share code %d", k, other, row.code)
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
		{fmt.Errorf("waiting: %w", context.Canceled), exitInterrupted},
	} {
		if got := exitCode(test.err); got != test.want {
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
		{"wrapping two is one error", fmt.Errorf("%w while %w", errors.New("no"), errors.New("at it")), "cmd: no while at it\n"},
		{"many lines", errors.Join(errors.New("etcd does not start; its log ends:\nno\nroom"), errors.New("no")), "cmd: etcd does not start; its log ends:\nno\nroom\ncmd: no\n"},
		{"fields", two, "cmd: 2 fields are wrong:\n  a is bad\n  b is worse\n"},
		{"one field", &cloudsim.Error{Msg: "a is bad", Fields: two.Fields[:1]}, "cmd: a is bad\n"},
		{"interrupted", fmt.Errorf("x: %w", context.Canceled), "cmd: interrupted\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got bytes.Buffer
			explain(&got, "cmd", test.err)
			if d := cmp.Diff(test.want, got.String()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestDetachedErrors proves that a lab in the background prints the same errors as a lab in the
// foreground.
func TestDetachedErrors(t *testing.T) {
	failed := errors.Join(errors.New("etcd does not start; its log ends:\nno\nroom"), errors.New("no"))
	var pipe, got, want bytes.Buffer
	message{out: json.NewEncoder(&pipe)}.failed(failed)
	_, err := listen(&pipe, io.Discard)
	explain(&got, "cmd", err)
	explain(&want, "cmd", failed)
	if d := cmp.Diff(want.String(), got.String()); d != "" {
		t.Error(d)
	}
}

// TestDetachedUnready proves that a detached up fails if not all nodes are Ready. The error
// says how many nodes are Ready and why the others are not.
func TestDetachedUnready(t *testing.T) {
	for _, tc := range []struct {
		nodes lab.NodesReport
		want  string
	}{
		{lab.NodesReport{Ready: 3, Total: 3}, ""},
		{lab.NodesReport{Ready: 1, Total: 3, NotReady: []lab.NotReady{{Reason: "the condition Ready is Unknown: NodeStatusUnknown", Count: 2, Examples: []string{"node-2", "node-3"}}}},
			"1 of 3 nodes are Ready; not Ready: 2 × the condition Ready is Unknown: NodeStatusUnknown (node-2, node-3)"},
		{lab.NodesReport{Error: "no route to host"}, "it is unknown which nodes are Ready: no route to host"},
	} {
		var pipe, said bytes.Buffer
		message{out: json.NewEncoder(&pipe), pipe: io.NopCloser(&pipe)}.ready(lab.Report{Machines: &tc.nodes})
		report, err := listen(&pipe, &said)
		if err != nil {
			t.Fatal(err)
		}
		err = unreadyNodes(report)
		if tc.want == "" {
			if err != nil || !strings.Contains(said.String(), "The lab is ready.") {
				t.Errorf("all Ready: %v\n%s", err, said.String())
			}
			continue
		}
		if !errors.Is(err, cloudsim.Unavailable) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(said.String(), tc.want) || strings.Contains(said.String(), "The lab is ready.") {
			t.Errorf("%v\n%s\nwant %q", err, said.String(), tc.want)
		}
	}
}

// TestSupervise proves that the first signal stops the work, and that the second signal also
// ends the wait for the work.
func TestSupervise(t *testing.T) {
	if got := supervise(nil, func(context.Context) int { return 7 }); got != 7 {
		t.Errorf("undisturbed: %d, want 7", got)
	}
	signals := make(chan os.Signal, 2)
	signals <- os.Interrupt
	if got := supervise(signals, func(ctx context.Context) int { <-ctx.Done(); return 3 }); got != 3 {
		t.Errorf("one signal: %d, want the 3 of who stops cleanly", got)
	}
	stuck := make(chan struct{})
	defer close(stuck)
	signals <- os.Interrupt
	signals <- syscall.SIGTERM
	if got := supervise(signals, func(context.Context) int { <-stuck; return 0 }); got != exitInterrupted {
		t.Errorf("two signals: %d, want %d", got, exitInterrupted)
	}
}
