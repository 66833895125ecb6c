package conform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Replicable is a Subject that can also run with leader election.
type Replicable interface {
	// Replica returns a CCM that uses leader election and has not started yet. The replica has the
	// same settings as the Subject, except for leader election. Several replicas can run at the
	// same time.
	Replica() Subject
}

// replica starts a replica of the CCM. The cleanup of the check kills the replica.
func (e *env) replica(ctx context.Context) (Subject, error) {
	all, ok := e.subject.(Replicable)
	if !ok {
		return nil, missingError("this program cannot start a second CCM")
	}
	s := all.Replica()
	e.addCleanup(func(context.Context) error { return s.Kill() })
	if err := s.Start(ctx); err != nil {
		return nil, fmt.Errorf("start the CCM: %w", err)
	}
	return s, nil
}

// pause kills the CCM. The cleanup of the check first kills all replicas that the check has
// started, and then starts the CCM again.
func (e *env) pause() error {
	if err := e.subject.Kill(); err != nil {
		return fmt.Errorf("kill the CCM: %w", err)
	}
	e.addCleanup(e.subject.Start)
	return nil
}

// excludedNode creates a machine and its Node, and waits until the CCM has initialized the Node. A
// label excludes the Node from load balancers, so the Node causes no change of load balancers.
func (e *env) excludedNode(ctx context.Context) error {
	e.restarts++
	_, err := e.joinNode(ctx, fmt.Sprintf("restart-%d", e.restarts), excludeNode)
	return err
}

// leaseHolders returns the holder of each Lease. The keys of the map have the form NAMESPACE/NAME.
// leaseHolders omits expired Leases, and the Leases of Nodes and API servers.
func (e *env) leaseHolders(ctx context.Context) (map[string]string, error) {
	all, err := e.kube.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Leases: %w", err)
	}
	holders := map[string]string{}
	for _, l := range all.Items {
		s := l.Spec
		if l.Namespace == leaseNamespace || l.Labels["apiserver.kubernetes.io/identity"] != "" || s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
			continue
		}
		if time.Since(s.RenewTime.Time) < time.Duration(*s.LeaseDurationSeconds)*time.Second {
			holders[l.Namespace+"/"+l.Name] = *s.HolderIdentity
		}
	}
	return holders, nil
}

// checkLeader starts two CCMs, one after the other. It creates a Service and kills the first CCM at
// once. The second CCM must then finish the work for the Service.
func checkLeader(ctx context.Context, e *env, _ Machine) error {
	if err := e.pause(); err != nil {
		return err
	}
	first, err := e.replica(ctx)
	if err != nil {
		return err
	}
	if err := e.excludedNode(ctx); err != nil {
		return fmt.Errorf("the CCM with leader election: %w", err)
	}
	var before map[string]string
	if err := e.retryUntilOK(ctx, "the first CCM holds its Leases", func(ctx context.Context) (err error) {
		before, err = e.leaseHolders(ctx)
		switch {
		case err != nil:
			return err
		case len(before) == 0:
			return errors.New("the CCM renews no Lease, so two CCMs would work at the same time: enable leader election")
		case e.caps.LeaderMigration && before[migrationNamespace+"/"+migrationLease] == "": // the CCM takes this Lease last
			return fmt.Errorf("no CCM holds the Lease %s", migrationLease)
		}
		return nil
	}); err != nil {
		return err
	}
	second, err := e.replica(ctx)
	if err != nil {
		return err
	}
	if err := e.checkAlways(ctx, "the first CCM keeps its Leases while the second one runs", func(ctx context.Context) error {
		now, err := e.leaseHolders(ctx)
		if err == nil && !maps.Equal(now, before) {
			err = fmt.Errorf("the holders of the Leases were %v; now they are %v", before, now)
		}
		return errors.Join(err, first.Ended(), second.Ended())
	}); err != nil {
		return err
	}
	added, err := e.addedLoadBalancers(ctx)
	if err != nil {
		return err
	}
	s, err := e.service(ctx, "web")
	if err != nil {
		return err
	}
	if err := first.Kill(); err != nil {
		return fmt.Errorf("kill the CCM: %w", err)
	}
	return e.checkFinished(ctx, s, added)
}

// A leader migration uses this Lease by default. The function DefaultLeaderMigrationConfiguration
// in k8s.io/controller-manager returns the name of the Lease.
const (
	migrationNamespace = metav1.NamespaceSystem
	migrationLease     = "cloud-provider-extraction-migration"
)

// checkMigrate holds the Lease of the migration, as an old kube-controller-manager does. While
// another process holds this Lease, the CCM must not delete Nodes. See KEP-2436.
func checkMigrate(ctx context.Context, e *env, m Machine) error {
	if err := e.pause(); err != nil {
		return err
	}
	leases := e.kube.CoordinationV1().Leases(migrationNamespace)
	release := func(ctx context.Context) error {
		if err := leases.Delete(ctx, migrationLease, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete the Lease %s: %w", migrationLease, err)
		}
		return nil
	}
	if err := release(ctx); err != nil { // the killed CCM may have held the Lease
		return err
	}
	e.addCleanup(release)
	holder, hour, now := "kube-controller-manager", int32(time.Hour/time.Second), metav1.NowMicro()
	if _, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: migrationLease, Namespace: migrationNamespace},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &hour, AcquireTime: &now, RenewTime: &now},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the Lease %s: %w", migrationLease, err)
	}
	if _, err := e.replica(ctx); err != nil {
		return err
	}
	if err := e.excludedNode(ctx); err != nil { // the controller that initializes Nodes does not need this Lease
		return fmt.Errorf("while another process holds the Lease of the migration: %w", err)
	}
	if err := e.deleteMachine(ctx, m.Name); err != nil {
		return err
	}
	if err := e.setReady(ctx, m.Name, false); err != nil {
		return err
	}
	if err := e.nodeStays(ctx, m.Name, "in the cluster while another process holds the Lease of the migration", anyObject); err != nil {
		return err
	}
	if err := release(ctx); err != nil {
		return err
	}
	return e.nodeDisappears(ctx, m.Name)
}
