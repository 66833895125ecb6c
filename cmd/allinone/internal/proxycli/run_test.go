package proxycli

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestProxyRunsWithoutCompanions proves that a proxy runs until its context ends, even if the
// proxy has no companions. A companion is, for example, the health server.
func TestProxyRunsWithoutCompanions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- runWith(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }, nil)
		}()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("the proxy ended before its context ended: got error %v", err)
		default:
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestProxyDrainsBeforeItsCompanionsEnd proves that the companions, for example the health server,
// run until the proxy has ended. They still run while the proxy waits for its connections to end.
func TestProxyDrainsBeforeItsCompanionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var companionEnded, endedBeforeDrain bool
		ended := make(chan error, 1)
		go func() {
			ended <- runWith(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				synctest.Wait()
				endedBeforeDrain = companionEnded
				return nil
			}, []func(context.Context) error{func(ctx context.Context) error {
				<-ctx.Done()
				companionEnded = true
				return nil
			}})
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if endedBeforeDrain || !companionEnded {
			t.Errorf("companion: ended before the proxy drained %t, want false; ended at all %t, want true", endedBeforeDrain, companionEnded)
		}
	})
}
