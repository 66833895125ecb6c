package real

import "context"

// notification carries no data. Notifications that arrive while no goroutine reads are
// merged into one notification.
type notification chan struct{}

func newNotification() notification { return make(notification, 1) }

func (b notification) notify() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// each calls work on each notification until ctx ends. After a failure it calls failed
// and repeats the work after a backoff.
func (b notification) each(ctx context.Context, work func() error, failed func(error)) {
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
			b.notify()
			continue
		}
		again.Reset()
	}
}
