package ccm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// leaseDeadline bounds what is asked of the API server about Leases: the end of
// the process does not wait long for it.
const leaseDeadline = 5 * time.Second

// leases gives up the Leases of this process at its end. Upstream lets them run
// out, for which the next leader waits 15 seconds. It elects under one identity,
// which it tells nobody: whoever leads reads it in the main Lease.
type leases struct {
	log  *slog.Logger
	api  clientcoordinationv1.LeaseInterface
	main string   // the Lease without which there is no other
	all  []string // with it

	once sync.Once
	mu   sync.Mutex
	self string // "" while this process does not lead
}

// lead notes that this process leads now.
func (l *leases) lead() {
	l.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), leaseDeadline)
		defer cancel()
		lease, err := l.api.Get(ctx, l.main, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			l.log.Warn("the Lease is not given up at the end: it cannot be read", "lease", l.main, "err", err)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.self = *lease.Spec.HolderIdentity
	})
}

// release gives up what this process holds. It is the last thing that it does:
// upstream's elector still runs, and would take them again at its next beat.
func (l *leases) release(ctx context.Context) error {
	l.mu.Lock()
	self := l.self
	l.mu.Unlock()
	if self == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaseDeadline)
	defer cancel()
	var errs []error
	for _, name := range l.all {
		if err := l.giveUp(ctx, name, self); err != nil {
			errs = append(errs, fmt.Errorf("giving up the Lease %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// giveUp leaves a Lease to whoever comes first, as client-go does where it is
// told to. One that is another's by now, or that nobody has, is left alone.
func (l *leases) giveUp(ctx context.Context, name, self string) error {
	for range attempts {
		lease, err := l.api.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != self:
			return nil
		}
		now, second := metav1.NowMicro(), int32(1)
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: new(string), LeaseDurationSeconds: &second, LeaseTransitions: lease.Spec.LeaseTransitions,
			AcquireTime: &now, RenewTime: &now,
		}
		if _, err = l.api.Update(ctx, lease, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return err // nil, or one that a renewal in between does not explain
		}
	}
	return errors.New("it is renewed all the time")
}
