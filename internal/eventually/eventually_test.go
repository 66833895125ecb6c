package eventually_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cloudsim-dev/allinone/internal/eventually"
)

type recorder struct{ failure string }

func (r *recorder) Fatalf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }

func TestConditionThatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		third := func() bool { tries++; return tries%3 == 0 }
		eventually.True(t, "the third try", third)
		eventually.NoError(t, "the third try", func() error {
			if third() {
				return nil
			}
			return errors.New("not yet")
		})
		eventually.Empty(t, func() string {
			if third() {
				return ""
			}
			return "not yet"
		})
		if tries != 9 {
			t.Errorf("%d tries, want 9", tries)
		}
	})
}

// If the condition does not become true before Timeout, each function of the package fails the test
// with a message about the condition.
func TestConditionThatNeverComes(t *testing.T) {
	for name, wait := range map[string]func(eventually.T){
		"True":    func(t eventually.T) { eventually.True(t, "rain", func() bool { return false }) },
		"NoError": func(t eventually.T) { eventually.NoError(t, "water", func() error { return errors.New("no rain") }) },
		"Empty":   func(t eventually.T) { eventually.Empty(t, func() string { return "no rain" }) },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &recorder{}
			wait(r)
			if !strings.Contains(r.failure, "rain") || !strings.Contains(r.failure, eventually.Timeout.String()) {
				t.Errorf("message of %s: got %q, want a message with rain and %s", name, r.failure, eventually.Timeout)
			}
		})
	}
}
