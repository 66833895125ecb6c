package conform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// CleanupConfig contains the inputs of Cleanup.
type CleanupConfig struct {
	// Kube is the client configuration for the API server. If Kube is nil, Cleanup deletes only
	// resources of the cloud.
	Kube *rest.Config
	// Driver gives access to the cloud.
	Driver Driver
	// Run is the name of a run. If Run is empty, Cleanup deletes the resources of all runs.
	Run string
	// Timeout is the longest time that Cleanup waits for the CCM to remove the load balancers of
	// deleted Services. The default is DefaultTimeout.
	Timeout time.Duration
	// Deleted receives the kind and the name of each deleted object. It may be nil.
	Deleted func(kind, name string)
}

// Cleanup deletes the objects that an interrupted run has left in the cluster and in the cloud. It
// continues after an error, and returns all errors. The order is:
//   - It deletes the Services, and waits until the CCM has removed their load balancers.
//   - It deletes the remaining load balancers that forward only to machines of the run.
//   - It deletes the routes to these machines, and then the machines.
//   - It removes the finalizers of the remaining Services, and deletes the Nodes and namespaces.
//
// Cleanup finds the run of a load balancer only by its machines. Therefore it does not delete a
// load balancer that forwards to no machine.
func Cleanup(ctx context.Context, c CleanupConfig) error {
	if c.Driver == nil {
		return errors.New("the field Driver is missing")
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Kube == nil {
		return c.cleanCloud(ctx)
	}
	kube, err := kubernetes.NewForConfig(c.Kube)
	if err != nil {
		return err
	}
	return errors.Join(c.deleteServices(ctx, kube), c.cleanCloud(ctx), c.cleanCluster(ctx, kube))
}

func (c CleanupConfig) selector() metav1.ListOptions {
	if c.Run == "" {
		return metav1.ListOptions{LabelSelector: LabelRun}
	}
	return metav1.ListOptions{LabelSelector: LabelRun + "=" + c.Run}
}

// deleteServices deletes the Services of the run, and waits until the CCM has removed their
// finalizers. It waits at most for the time c.Timeout.
func (c CleanupConfig) deleteServices(ctx context.Context, kube kubernetes.Interface) error {
	deadline := time.NewTimer(c.Timeout)
	defer deadline.Stop()
	for {
		all, err := kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, c.selector())
		if err != nil || len(all.Items) == 0 {
			return err
		}
		var errs []error
		for _, s := range all.Items {
			if s.DeletionTimestamp != nil {
				continue
			}
			// See removeService for the reason for the precondition.
			err := kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &s.ResourceVersion}})
			if apierrors.IsConflict(err) {
				continue // the Service has changed since the list: the next list contains the change
			}
			errs = append(errs, c.reportDeleted("service", s.Namespace+"/"+s.Name, err))
		}
		select {
		case <-time.After(poll):
		case <-deadline.C:
			return errors.Join(errs...) // no CCM removes the finalizers in time, so cleanCluster removes them
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c CleanupConfig) cleanCloud(ctx context.Context) error {
	all, err := c.Driver.ListMachines(ctx)
	if err != nil {
		return fmt.Errorf("driver: list machines: %w", err)
	}
	var machines []string
	for _, m := range all {
		if m.Run != "" && (c.Run == "" || m.Run == c.Run) {
			machines = append(machines, m.Name)
		}
	}
	inRun := func(name string) bool { return slices.Contains(machines, name) }
	var errs []error
	lbs, err := c.Driver.ListLoadBalancers(ctx)
	if err != nil && !errors.Is(err, ErrUnsupported) {
		errs = append(errs, fmt.Errorf("driver: list load balancers: %w", err))
	}
	for _, lb := range lbs {
		if len(lb.Machines) > 0 && !slices.ContainsFunc(lb.Machines, func(name string) bool { return !inRun(name) }) {
			errs = append(errs, c.reportDeleted("loadbalancer", lb.ID, c.Driver.DeleteLoadBalancer(ctx, lb.ID)))
		}
	}
	routes, err := c.Driver.ListRoutes(ctx)
	if err != nil && !errors.Is(err, ErrUnsupported) {
		errs = append(errs, fmt.Errorf("driver: list routes: %w", err))
	}
	for _, r := range routes {
		if inRun(r.Machine) {
			errs = append(errs, c.reportDeleted("route", r.ID, c.Driver.DeleteRoute(ctx, r.ID)))
		}
	}
	for _, name := range machines {
		errs = append(errs, c.reportDeleted("machine", name, c.Driver.DeleteMachine(ctx, name)))
	}
	return errors.Join(errs...)
}

// cleanCluster removes the finalizers of Services that still exist, and deletes the Nodes and
// namespaces of the run.
func (c CleanupConfig) cleanCluster(ctx context.Context, kube kubernetes.Interface) error {
	var errs []error
	services, err := kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, c.selector())
	if err != nil {
		return err
	}
	for _, s := range services.Items {
		_, err := kube.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		errs = append(errs, c.reportDeleted("finalizers of service", s.Namespace+"/"+s.Name, err))
	}
	nodes, err := kube.CoreV1().Nodes().List(ctx, c.selector())
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, n := range nodes.Items {
		errs = append(errs, c.reportDeleted("node", n.Name, deleteNode(ctx, kube, n.Name)))
	}
	namespaces, err := kube.CoreV1().Namespaces().List(ctx, c.selector())
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, n := range namespaces.Items {
		if n.Status.Phase != v1.NamespaceTerminating {
			errs = append(errs, c.reportDeleted("namespace", n.Name, kube.CoreV1().Namespaces().Delete(ctx, n.Name, metav1.DeleteOptions{})))
		}
	}
	return errors.Join(errs...)
}

// reportDeleted passes a deleted object to the function c.Deleted. The parameter err is the result
// of the deletion. If the object did not exist, reportDeleted reports nothing and returns nil. It
// returns every other error.
func (c CleanupConfig) reportDeleted(kind, name string, err error) error {
	switch {
	case apierrors.IsNotFound(err), errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("delete %s %s: %w", kind, name, err)
	}
	if c.Deleted != nil {
		c.Deleted(kind, name)
	}
	return nil
}
