package conform

import (
	"context"
	"testing"
	"testing/synctest"
)

// hangingDriver is a driver that never returns from DeleteMachine.
type hangingDriver struct {
	Driver
	stop chan struct{}
}

func (hangingDriver) CreateMachine(_ context.Context, m Machine) (Machine, error) {
	m.Running = true
	return m, nil
}

func (hangingDriver) GetMachine(_ context.Context, name string) (Machine, error) {
	return Machine{Name: name, Running: true}, nil
}

func (d hangingDriver) DeleteMachine(context.Context, string) error {
	<-d.stop // this call ignores its context
	return nil
}

func (hangingDriver) Capabilities(context.Context) (Capabilities, error) { return Capabilities{}, nil }

// TestHangingCleanup proves that a run skips its remaining checks after three calls that do not
// return, even if these calls belong to the cleanup of the checks.
func TestHangingCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		defer close(stop)
		s := &suite{Config: Config{Limit: DefaultLimit}, driver: &boundDriver{driver: hangingDriver{stop: stop}}, seen: newObserver(), run: "run", stop: func(error) {}}
		for n := range maxHangs + 1 {
			r := s.check(t.Context(), Check{ID: "test", run: func(ctx context.Context, e *env) error {
				_, err := e.machine(ctx, "a")
				return err
			}})
			want := Fail
			if n == maxHangs {
				want = Skip
			}
			if r.Verdict != want {
				t.Errorf("check %d: got the verdict %s with the reason %q, want %s", n, r.Verdict, r.Reason, want)
			}
		}
	})
}
