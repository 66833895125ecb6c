package main

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// These are the durations of the leader election. Upstream's sidecars use the
// same values.
const (
	leaseFor   = 15 * time.Second
	renewFor   = 10 * time.Second
	retryLease = 2 * time.Second
)

// runElected runs work while this process holds the lease. If the process
// loses the lease, the function returns an error, because another process may
// hold the lease now. When ctx ends, the function lets the work finish and
// then releases the lease.
func runElected(ctx context.Context, k *cluster, who string, work func(context.Context) error) error {
	conf := rest.CopyConfig(k.rest) // a separate client, so that the controllers' calls do not throttle the lease
	leases, err := kubernetes.NewForConfig(conf)
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Name: "csi-sidecars", Namespace: k.electNamespace}, Client: leases.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: who},
	}
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	standing, giveUp := context.WithCancel(holding)
	defer giveUp()
	began, ended := make(chan struct{}), make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-began: // release the lease only after the work has ended
		default:
			giveUp()
		}
	})()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseFor, RenewDeadline: renewFor, RetryPeriod: retryLease, ReleaseOnCancel: true, Name: "csi-sidecars",
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(lease context.Context) {
				close(began)
				working, stop := context.WithCancel(lease)
				defer stop()
				defer context.AfterFunc(ctx, stop)()
				ended <- work(working)
				giveUp()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(standing)
	select {
	case err := <-ended:
		return err
	default:
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("the lease csi-sidecars was lost")
}
