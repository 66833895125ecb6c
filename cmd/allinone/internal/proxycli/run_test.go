package proxycli

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestProxyRunsWithoutCompanions proves that a proxy without a health port and without an admin
// port runs until its context ends.
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

// TestProxyDrainsBeforeItsCompanionsEnd proves that the companions of a proxy end after the
// proxy. The companions still run while the proxy waits for its connections to end.
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
