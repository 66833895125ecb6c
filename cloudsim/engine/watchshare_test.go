package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestWatchesShareReads proves that many watches of one project do not all read a new event at the
// same time. Other callers therefore get processor time. If the project has few watches, all its
// watches read the event immediately after the commit. A watch of another project also reads its
// event immediately after the commit.
func TestWatchesShareReads(t *testing.T) {
	for _, tc := range []struct {
		watches     int
		least, most time.Duration // minimum and maximum time until the last watch receives the event
	}{{8, 0, 0}, {200, 190 * time.Millisecond, 400 * time.Millisecond}} {
		t.Run(fmt.Sprint(tc.watches), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, down := boot(t, file(t), instant)
				defer down()
				var watching sync.WaitGroup
				defer watching.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				watch := func(project string, n int) (create func(), arrivals chan time.Time) {
					p := must(e.CreateProject(engine.AsCloud(ctx), cloudsim.CreateProject{Name: project}))(t)
					token := must(e.CreateToken(engine.AsCloud(ctx), cloudsim.CreateToken{Name: project, Role: cloudsim.RoleReader, Project: p.ID}))(t)
					reader := must(e.Authorize(ctx, engine.Request{Secret: token.Secret, Access: engine.Read}))(t)
					writer := must(e.Authorize(ctx, engine.Request{Secret: "secret", Project: project, Access: engine.Write}))(t)
					since := must(e.ListEvents(reader, cloudsim.WatchOptions{}))(t).Revision
					arrivals = make(chan time.Time, n)
					for range n {
						watching.Go(func() {
							for _, err := range e.Watch(reader, cloudsim.WatchOptions{Since: since, Kinds: []cloudsim.ResourceKind{cloudsim.KindAddress}}) {
								if err != nil {
									t.Error(err)
								}
								arrivals <- time.Now()
							}
						})
					}
					return func() {
						must(e.CreateAddress(writer, cloudsim.CreateAddress{Name: "new"}))(t)
					}, arrivals
				}
				noise, noisy := watch("noisy", tc.watches)
				write, quiet := watch("quiet", 1)
				time.Sleep(10 * time.Second) // after this time all watches have read all events
				began := time.Now()
				noise()
				write()
				if took := (<-quiet).Sub(began); took != 0 {
					t.Errorf("the watch of another project received its event after %s, want no delay", took)
				}
				var last time.Duration
				for range tc.watches {
					last = (<-noisy).Sub(began)
				}
				if last < tc.least || last > tc.most {
					t.Errorf("the last of %d watches received the event after %s, want between %s and %s", tc.watches, last, tc.least, tc.most)
				}
			})
		})
	}
}
