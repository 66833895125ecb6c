package real

import "context"

// notification is a channel that wakes its reader. Its values contain no data. If several
// notifications arrive before the reader is ready, the reader gets only one.
type notification chan struct{}

func newNotification() notification { return make(notification, 1) }

func (b notification) notify() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// forEach calls the function work for each notification until ctx ends. If work returns an error,
// forEach passes the error to onError, waits for the backoff time, and calls work again.
func (b notification) forEach(ctx context.Context, work func() error, onError func(error)) {
	retry := retryBackoff()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b:
		}
		if err := work(); err != nil {
			onError(err)
			retry.Wait(ctx)
			b.notify()
			continue
		}
		retry.Reset()
	}
}
