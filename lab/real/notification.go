package real

import "context"

// bell is a notification without data. Notifications that arrive while no goroutine reads
// are merged into one notification.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// each calls work on each notification until ctx ends. After a failure it calls failed
// and repeats the work after a backoff.
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
