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
	"k8s.io/apimachinery/pkg/util/wait"
	clientcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// leaseDeadline is the time limit for the calls to the API server that read and
// release Leases. The process exits only after these calls, so the limit is
// short.
const leaseDeadline = 5 * time.Second

// leaseRetry is the time between two attempts to read the main Lease in setIdentity.
const leaseRetry = 250 * time.Millisecond

// leaseReleaser releases the Leases of this process when the process ends.
// Upstream itself does not release Leases. Without leaseReleaser, the next
// leader would have to wait up to 15 seconds until the Leases expire. Upstream
// uses the same identity in all Leases of a process, but does not export this
// identity. leaseReleaser therefore reads the identity from the main Lease when
// the process begins to lead.
type leaseReleaser struct {
	log  *slog.Logger
	api  clientcoordinationv1.LeaseInterface
	main string   // the main Lease, which this process acquires before all other Leases
	all  []string // all Leases, including main

	mu   sync.Mutex
	self string // empty until setIdentity succeeds
}

// setIdentity reads the identity of this process from the main Lease, and stores the identity. The
// caller must call setIdentity when this process begins to lead. If a read fails, setIdentity tries
// again until leaseDeadline. If no call of setIdentity succeeds, releaseAll releases no
// Lease.
func (l *leaseReleaser) setIdentity() {
	l.mu.Lock()
	self := l.self
	l.mu.Unlock()
	if self != "" {
		return
	}
	var failed error // the error of the last read
	err := wait.PollUntilContextTimeout(context.Background(), leaseRetry, leaseDeadline, true, func(ctx context.Context) (bool, error) {
		lease, err := l.api.Get(ctx, l.main, metav1.GetOptions{})
		if failed = err; err != nil || lease.Spec.HolderIdentity == nil {
			return false, nil //nolint:nilerr // the next read may succeed
		}
		self = *lease.Spec.HolderIdentity
		return true, nil
	})
	if err != nil {
		l.log.Warn("the Lease cannot be read, so it will not be released when this process stops", "lease", l.main, "err", errors.Join(err, failed))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.self = self
}

// releaseAll releases all Leases of this process. The process must exit
// directly after this call, because upstream's leader election still runs and
// would take the Leases again at its next renewal.
func (l *leaseReleaser) releaseAll(ctx context.Context) error {
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
		if err := l.releaseLease(ctx, name, self); err != nil {
			errs = append(errs, fmt.Errorf("releasing the Lease %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// releaseLease releases one Lease, in the same way as client-go with
// ReleaseOnCancel. It does not change a Lease without a holder, or a Lease that
// another process holds.
func (l *leaseReleaser) releaseLease(ctx context.Context, name, self string) error {
	for range maxAttempts {
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
			return err // err may be nil; after a conflict with a renewal, the loop tries again
		}
	}
	return errors.New("the Lease changed during every attempt")
}
