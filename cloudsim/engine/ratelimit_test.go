package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestProjectRate proves that all callers of a project share the rate limit of
// the project. The limit does not affect other projects, or callers with a role
// in all projects. The limit uses the machine's clock, so it still works while
// the cloud's clock is frozen.
func TestProjectRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), instant, frozen, func(c *engine.Config) { c.ProjectRate = cloudsim.Rate{PerSecond: 2, Burst: 4} })
		defer down()
		ctx := engine.AsCloud(t.Context())
		secret := map[string]string{}
		for _, name := range []string{"noisy", "quiet"} {
			p := must(e.CreateProject(ctx, cloudsim.CreateProject{Name: name}))(t)
			for _, of := range []string{name + "-1", name + "-2"} {
				secret[of] = must(e.CreateToken(ctx, cloudsim.CreateToken{Name: of, Role: cloudsim.RoleReader, Project: p.ID}))(t).Secret
			}
		}
		call := func(secret string) error {
			_, err := e.Authorize(context.Background(), engine.Request{Secret: secret, Access: engine.Read})
			return err
		}
		for range 2 {
			for _, of := range []string{"noisy-1", "noisy-2"} {
				if err := call(secret[of]); err != nil {
					t.Fatal(err)
				}
			}
		}
		err := call(secret["noisy-2"])
		var refused *cloudsim.Error
		if !errors.As(err, &refused) || refused.Kind != cloudsim.Exhausted || refused.RetryAfter != 500*time.Millisecond || !strings.Contains(err.Error(), "--project-rate-limit") {
			t.Errorf("fifth call of a project: got error %v", err)
		}
		for _, of := range []string{secret["quiet-1"], "secret"} {
			for range 4 {
				if err := call(of); err != nil {
					t.Errorf("call of another caller: got error %v", err)
				}
			}
		}
		time.Sleep(500 * time.Millisecond)
		if err := call(secret["noisy-1"]); err != nil {
			t.Errorf("call after half a second: got error %v", err)
		}
	})
}
