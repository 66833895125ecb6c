package hollow

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kubelet's defaults: a lease of 40 s, renewed after a quarter of it.
const (
	leaseSeconds = 40
	renewEvery   = leaseSeconds * time.Second / 4
	renewJitter  = 0.04
	retryEvery   = 2 * time.Second
)

// beat renews the leases of the machines that are on, each when it is due,
// until ctx ends. A machine that comes on waits up to a second for its first.
func (k *kubelets) beat(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	silent := false
	for {
		renewed, failed := k.renewDue(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case len(failed) > 0 && !silent:
			k.log.Warn("leases of hollow nodes are not renewed; trying again", "nodes", len(failed), "err", failed[0])
			silent = true
		case len(failed) == 0 && renewed > 0 && silent:
			k.log.Info("leases of hollow nodes are renewed again")
			silent = false
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// renewDue renews what is due now, a few at a time, and returns how many were
// and why others were not.
func (k *kubelets) renewDue(ctx context.Context) (renewed int, failed []error) {
	now := time.Now()
	due := make(chan machine)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for m := range due {
				next, err := renewEvery, k.renew(ctx, m)
				mu.Lock()
				if err == nil {
					renewed++
					next += time.Duration(renewJitter * rand.Float64() * float64(renewEvery))
				} else {
					failed = append(failed, err)
					next = retryEvery
				}
				mu.Unlock()
				k.fleet.change(m, func(m *machine) { m.beat = now.Add(next) })
			}
		})
	}
	for _, m := range k.fleet.powered() {
		if m.registered && !now.Before(m.beat) {
			due <- m
		}
	}
	close(due)
	wg.Wait()
	return renewed, failed
}

// renew renews a machine's lease as its kubelet does. The Node owns the lease,
// so that the garbage collector takes it away with the Node.
func (k *kubelets) renew(ctx context.Context, m machine) error {
	n, err := k.nodes.Get(m.Name)
	if apierrors.IsNotFound(err) || err == nil && !belongs(n, m) {
		return nil
	}
	if err != nil {
		return err
	}
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       new(m.Name),
		LeaseDurationSeconds: new(int32(leaseSeconds)),
		RenewTime:            new(metav1.NowMicro()),
	}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	leases := k.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	_, err = leases.Patch(ctx, m.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID},
		}},
		Spec: spec,
	}, metav1.CreateOptions{})
	return err
}
