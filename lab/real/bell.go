package real

import "context"

// bell rings when there is news, and says no more than that: news that comes
// while nobody listens is heard once.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// each does the work whenever b rings, and again after a pause when that
// failed, until ctx ends.
func (b bell) each(ctx context.Context, work func() error, failed func(error)) {
	again := retry()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b:
		}
		if err := work(); err != nil {
			failed(err)
			again.Wait(ctx)
			b.ring()
			continue
		}
		again.Reset()
	}
}
