package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// advanceTimeout is the longest time for a call that advances the clock, including the reply. The
// call waits until the cloud has finished all work that is due at the new time or earlier.
const advanceTimeout = 10 * time.Minute

func (a *api) clockRoutes() {
	handle(a, op{id: "clock.get", method: http.MethodGet, path: "/v1/clock", summary: "Read the time and the rate of the cloud's clock", access: engine.Read},
		func(ctx context.Context, _ *none) (*struct{ Body cloudsim.Clock }, error) {
			return withoutETag(a.engine.GetClock(ctx))
		})
	handle(a, op{id: "clock.set", method: http.MethodPut, path: "/v1/clock", summary: "Freeze the cloud's clock, set its time or rate, or make it follow the computer's clock again", access: engine.Admin},
		func(ctx context.Context, in *create[cloudsim.SetClock]) (*struct{ Body cloudsim.Clock }, error) {
			return withoutETag(a.engine.SetClock(ctx, in.Body))
		})
	handle(a, op{id: "clock.advance", method: post, path: "/v1/clock/advance", summary: "Move the clock forward, and wait for the end of all work that is due", access: engine.Admin},
		func(ctx context.Context, in *create[cloudsim.AdvanceClock]) (*struct{ Body cloudsim.Clock }, error) {
			if reply := exchangeOf(ctx).reply; reply != nil {
				_ = reply.SetWriteDeadline(time.Now().Add(advanceTimeout))
			}
			ctx, cancel := context.WithTimeout(ctx, advanceTimeout-replyTimeout)
			defer cancel()
			return withoutETag(a.engine.AdvanceClock(ctx, in.Body))
		})
}

// withoutETag returns an answer that contains v and has no ETag. The caller uses withoutETag if v
// is not a resource.
func withoutETag[T any](v T, err error) (*struct{ Body T }, error) {
	if err != nil {
		return nil, err
	}
	return &struct{ Body T }{v}, nil
}
