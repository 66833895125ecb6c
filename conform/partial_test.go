package conform_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/conform/fake"
)

// assertPartial fails the test if the report lacks the reason or contains no skipped check. It also
// fails the test if a verdict is neither PASS nor SKIP, or if the cloud still has machines.
func assertPartial(t *testing.T, r conform.Report, err error, reason string, cloud *fake.Cloud) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Incomplete, reason) || strings.Contains(r.Incomplete, "S3CRET") {
		t.Errorf("got the reason %q, want %q in it and no secret", r.Incomplete, reason)
	}
	skipped := 0
	for _, x := range r.Results {
		switch x.Verdict {
		case conform.Skip:
			skipped++
		case conform.Pass:
		case conform.Fail, conform.KnownIssue:
			t.Errorf("%s: %s: %s", x.ID, x.Verdict, x.Reason)
		}
	}
	if skipped == 0 {
		t.Error("no check was skipped")
	}
	if machines, err := cloud.ListMachines(t.Context()); err != nil || len(machines) > 0 {
		t.Errorf("machines after the run: %+v, %v", machines, err)
	}
}

// mortalDriver is a driver that does not answer any more after it has created some machines.
type mortalDriver struct {
	*fake.Cloud
	left atomic.Int32
}

func (m *mortalDriver) CreateMachine(ctx context.Context, x conform.Machine) (conform.Machine, error) {
	if m.left.Add(-1) < 0 {
		return x, errors.New("connection refused")
	}
	return m.Cloud.CreateMachine(ctx, x)
}

func (m *mortalDriver) Capabilities(ctx context.Context) (conform.Capabilities, error) {
	if m.left.Load() < 0 {
		return conform.Capabilities{}, errors.New("connection refused")
	}
	return m.Cloud.Capabilities(ctx)
}

// TestPartialReport proves that a run ends early if the CCM ends, if the driver does not answer, or
// if the context of the run ends. The run cleans up, and its report contains the reason.
func TestPartialReport(t *testing.T) {
	admin := startAPIServer(t)
	t.Run("the CCM ends", func(t *testing.T) {
		cloud := fake.NewCloud()
		r, err := conform.Run(t.Context(), conform.Config{
			Kube: admin, Driver: cloud, AllowExisting: true, Focus: regexp.MustCompile("^node"), Timeout: time.Hour,
			Subject: &conform.Command{Line: "echo wrong flag, token=S3CRET; exit 7", Log: filepath.Join(t.TempDir(), "log")},
		})
		assertPartial(t, r, err, "exit status 7", cloud)
		if !strings.Contains(r.Incomplete, "wrong flag") {
			t.Errorf(`got the reason %q, want the output "wrong flag" of the CCM in it`, r.Incomplete)
		}
	})
	t.Run("the driver dies", func(t *testing.T) {
		d := &mortalDriver{Cloud: fake.NewCloud()}
		d.left.Store(2)
		r, err := conform.Run(t.Context(), conform.Config{
			Kube: admin, Driver: d, Subject: &fake.Manager{Kube: admin, Cloud: d.Cloud}, AllowExisting: true, Focus: regexp.MustCompile("^node"), Timeout: time.Hour, Parallel: 1,
		})
		assertPartial(t, r, err, "the driver does not answer: connection refused", d.Cloud)
	})
	t.Run("an interruption", func(t *testing.T) {
		cloud := fake.NewCloud()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := conform.Run(ctx, conform.Config{
			Kube: admin, Driver: cloud, Subject: &fake.Manager{Kube: admin, Cloud: cloud}, AllowExisting: true, Focus: regexp.MustCompile("^node"), Parallel: 2,
			Progress: func(conform.Result) { cancel() },
		})
		assertPartial(t, r, err, "the run was interrupted", cloud)
	})
	t.Run("budgets", func(t *testing.T) {
		cloud := fake.NewCloud()
		r, err := conform.Run(t.Context(), conform.Config{
			Kube: admin, Driver: cloud, Subject: &fake.Manager{Kube: admin, Cloud: cloud}, AllowExisting: true, Focus: regexp.MustCompile("^$"), Observe: time.Second, Budgets: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"node.join", "lb.create", "lb.node", "lb.delete"} {
			if r.Budgets[name] == 0 {
				t.Errorf("the report has no calls for the action %s: %+v", name, r)
			}
		}
	})
}

// TestGrown proves that Grown reports an increase only if it is more than 20 percent and also more
// than 2 calls.
func TestGrown(t *testing.T) {
	r := conform.Report{Budgets: map[string]int{"a": 120, "b": 121, "c": 3, "d": 4, "e": 0, "new": 9}}
	got := r.Grown(map[string]int{"a": 100, "b": 100, "c": 1, "d": 1, "e": 100, "f": 1})
	want := []string{"b: 121 calls, the baseline has 100", "d: 4 calls, the baseline has 1", "f: the baseline has 1 calls, but this run did not count the calls of this action"}
	if !slices.Equal(got, want) {
		t.Errorf("Grown: got %q, want %q", got, want)
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if read, err := conform.ReadBaseline(&b); err != nil || read["b"] != 121 {
		t.Errorf("a baseline after writing and reading: got %v, %v", read, err)
	}
	for _, wrong := range []string{"", "{}", "[]"} {
		if _, err := conform.ReadBaseline(strings.NewReader(wrong)); err == nil {
			t.Errorf("the baseline %q: no error", wrong)
		}
	}
}
