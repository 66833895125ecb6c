package conform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// These names are part of the contract between the kubelet and a CCM. The package
// k8s.io/cloud-provider defines these names in api/well_known_taints.go and service/helpers.
const (
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	taintShutdown      = "node.cloudprovider.kubernetes.io/shutdown"
	finalizer          = "service.kubernetes.io/load-balancer-cleanup"
)

const (
	// LabelRun marks every object that a run creates in the cluster. Its value is the name of the
	// run. A driver can use the same label in the cloud.
	LabelRun = "conform.cloudsim.dev/run"
	// poll is the time between two attempts of a loop that waits.
	poll           = 200 * time.Millisecond
	leaseNamespace = "kube-node-lease"
	leaseSeconds   = 40
)

// env is the environment of one check. The names of all objects that the check creates begin with
// prefix.
type env struct {
	kube    kubernetes.Interface
	driver  Driver
	caps    Capabilities
	subject Subject // nil if the user has started the CCM
	seen    *observer
	run     string        // name of the run
	prefix  string        // for example "conform-7f3a-node-init"
	timeout time.Duration // the longest time for one reaction of the CCM
	observe time.Duration // how long the check waits for a forbidden reaction

	restarts int // number of restarts of the CCM by this check

	mu      sync.Mutex
	undo    []func(context.Context) error // cleanup functions, in the order in which the check registered them
	notLive map[string]bool               // names of Nodes that are not Ready
	nodes   []string                      // names of Nodes whose Lease keepAlive renews
}

func (e *env) addCleanup(undo func(context.Context) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.undo = append(e.undo, undo)
}

// cleanup removes all objects of the check, the newest first. It returns the errors of all cleanup
// functions.
func (e *env) cleanup(ctx context.Context) error {
	e.mu.Lock()
	undo := e.undo
	e.undo = nil
	e.mu.Unlock()
	var errs []error
	for i := len(undo) - 1; i >= 0; i-- {
		errs = append(errs, undo[i](ctx))
	}
	return errors.Join(errs...)
}

func (e *env) machine(ctx context.Context, suffix string) (Machine, error) {
	name := e.prefix + "-" + suffix
	e.addCleanup(func(ctx context.Context) error {
		if err := e.driver.DeleteMachine(ctx, name); err != nil {
			return fmt.Errorf("delete machine %s: %w", name, err)
		}
		return nil
	})
	m, err := e.driver.CreateMachine(ctx, Machine{Name: name, Run: e.run})
	if err != nil {
		return Machine{}, fmt.Errorf("driver: create machine %s: %w", name, err)
	}
	now, err := e.driver.GetMachine(ctx, name)
	switch {
	case err != nil:
		return m, fmt.Errorf("driver: CreateMachine returned the machine %s, but GetMachine failed: %w", name, err)
	case !now.Running:
		return m, fmt.Errorf("driver: CreateMachine returned the machine %s, but the machine does not run", name)
	}
	return m, nil
}

// deleteMachine deletes a machine in the cloud. It returns an error if the driver still finds the
// machine after the deletion.
func (e *env) deleteMachine(ctx context.Context, name string) error {
	if err := e.driver.DeleteMachine(ctx, name); err != nil {
		return fmt.Errorf("driver: delete machine: %w", err)
	}
	switch _, err := e.driver.GetMachine(ctx, name); {
	case err == nil:
		return fmt.Errorf("driver: DeleteMachine deleted the machine %s, but GetMachine still finds it", name)
	case !errors.Is(err, ErrNotFound):
		return fmt.Errorf("driver: get machine: %w", err)
	}
	return nil
}

// disturb sets the fault that disturbs the calls of the CCM. It replaces the current fault. The
// cleanup of the check clears the fault.
func (e *env) disturb(ctx context.Context, f Fault) error {
	e.addCleanup(e.driver.ClearFault)
	if err := e.driver.SetFault(ctx, f); err != nil {
		return fmt.Errorf("driver: set fault %s: %w", f.Kind, err)
	}
	return nil
}

func (e *env) undisturb(ctx context.Context) error {
	if err := e.driver.ClearFault(ctx); err != nil {
		return fmt.Errorf("driver: clear fault: %w", err)
	}
	return nil
}

// node creates a Node in the same way as a kubelet with --cloud-provider=external. The Node is
// Ready, and keepAlive renews its Lease until the end of the check.
func (e *env) node(ctx context.Context, name string, change ...func(*v1.Node)) error {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{LabelRun: e.run, v1.LabelHostname: name, v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64"},
		},
		Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: taintUninitialized, Value: "true", Effect: v1.TaintEffectNoSchedule}}},
		// If the first version of the Node has no condition Ready, a CCM can delete the Node at
		// once.
		Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeHostName, Address: name}}, Conditions: []v1.NodeCondition{readyCondition(true)}},
	}
	for _, c := range change {
		c(n)
	}
	e.addCleanup(func(ctx context.Context) error { return e.deleteNode(ctx, name) })
	if _, err := e.kube.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Node: %w", err)
	}
	e.mu.Lock()
	e.nodes = append(e.nodes, name)
	e.mu.Unlock()
	return e.renew(ctx, name)
}

// deleteNode deletes a Node and its Lease. It ignores objects that do not exist.
func (e *env) deleteNode(ctx context.Context, name string) error {
	return deleteNode(ctx, e.kube, name)
}

func deleteNode(ctx context.Context, kube kubernetes.Interface, name string) error {
	var errs []error
	for _, err := range []error{
		kube.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}),
		kube.CoordinationV1().Leases(leaseNamespace).Delete(ctx, name, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func readyCondition(ok bool) v1.NodeCondition {
	c := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "ConformanceTest", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}
	if ok {
		c.Status = v1.ConditionTrue
	}
	return c
}

func (e *env) setReady(ctx context.Context, name string, ok bool) error {
	e.mu.Lock()
	e.notLive[name] = !ok
	e.mu.Unlock()
	return e.beat(ctx, name)
}

// beat writes the condition Ready of a Node. If the Node is Ready, beat also renews the Lease of
// the Node. If the Node does not exist, beat returns nil.
func (e *env) beat(ctx context.Context, name string) error {
	e.mu.Lock()
	live := !e.notLive[name]
	e.mu.Unlock()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := e.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		wanted := readyCondition(live)
		found := false
		for i, c := range n.Status.Conditions {
			if c.Type != v1.NodeReady {
				continue
			}
			found = true
			if c.Status == wanted.Status {
				wanted.LastTransitionTime = c.LastTransitionTime
			}
			n.Status.Conditions[i] = wanted
		}
		if !found {
			n.Status.Conditions = append(n.Status.Conditions, wanted)
		}
		_, err = e.kube.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !live {
		return err
	}
	return e.renew(ctx, name)
}

// renew writes the Lease of a Node. kube-controller-manager marks a Node as unreachable if its
// Lease expires.
func (e *env) renew(ctx context.Context, name string) error {
	leases := e.kube.CoordinationV1().Leases(leaseNamespace)
	seconds, now := int32(leaseSeconds), metav1.NewMicroTime(time.Now())
	spec := coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now}
	l, err := leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: leaseNamespace}, Spec: spec}, metav1.CreateOptions{})
	case err == nil:
		l.Spec = spec
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	}
	return err
}

// keepAlive regularly calls beat for all Nodes of the check until ctx ends.
func (e *env) keepAlive(ctx context.Context) {
	tick := time.NewTicker(leaseSeconds / 4 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		e.mu.Lock()
		nodes := append([]string(nil), e.nodes...)
		e.mu.Unlock()
		for _, name := range nodes {
			_ = e.beat(ctx, name) // after an error, the next tick tries again
		}
	}
}

// onNode returns a function for Check.run. The function creates the machine "a" and its Node, waits
// until the CCM has initialized the Node, and calls check.
func onNode(check func(context.Context, *env, Machine) error) func(context.Context, *env) error {
	return func(ctx context.Context, e *env) error {
		m, err := e.joinNode(ctx, "a")
		if err != nil {
			return err
		}
		return check(ctx, e, m)
	}
}

func (e *env) joinNode(ctx context.Context, suffix string, change ...func(*v1.Node)) (Machine, error) {
	m, err := e.machine(ctx, suffix)
	if err != nil {
		return m, err
	}
	if err := e.node(ctx, m.Name, change...); err != nil {
		return m, err
	}
	return m, e.nodeBecomes(ctx, m.Name, "initialized", checkInitialized)
}

func checkInitialized(n *v1.Node) error {
	if hasTaint(n, taintUninitialized) {
		return fmt.Errorf("the Node still has the taint %s", taintUninitialized)
	}
	return nil
}

func hasTaint(n *v1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == key })
}

// service creates a Service of the type LoadBalancer with port 80 and without pods.
func (e *env) service(ctx context.Context, suffix string, change ...func(*v1.Service)) (*v1.Service, error) {
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: e.prefix + "-" + suffix, Namespace: metav1.NamespaceDefault, Labels: map[string]string{LabelRun: e.run}},
		Spec: v1.ServiceSpec{
			Type:     v1.ServiceTypeLoadBalancer,
			Selector: map[string]string{"app": e.prefix},
			Ports:    []v1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: v1.ProtocolTCP}},
		},
	}
	for _, c := range change {
		c(s)
	}
	e.addCleanup(func(ctx context.Context) error { return e.removeService(ctx, s) }) // first, because the reply to the creation can be lost
	created, err := e.kube.CoreV1().Services(s.Namespace).Create(ctx, s, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create Service: %w", err)
	}
	return created, nil
}

// removeService deletes a Service and waits for the CCM. If the CCM does not remove the finalizer
// of the Service, removeService removes the finalizer and returns an error.
func (e *env) removeService(ctx context.Context, s *v1.Service) error {
	services := e.kube.CoreV1().Services(s.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := services.Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		// Without this precondition, the API server can ignore a finalizer that the CCM adds at the
		// same moment. The API server then deletes the Service at once, and the CCM does not delete
		// the load balancer.
		return services.Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &now.ResourceVersion}})
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	err = e.serviceDisappears(ctx, s)
	if err == nil {
		return nil
	}
	_, patched := services.Patch(ctx, s.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	return errors.Join(fmt.Errorf("cleanup: %w; the load balancer of the Service may remain in the cloud", err), patched)
}

func (e *env) changeService(ctx context.Context, s *v1.Service, change func(*v1.Service)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := e.kube.CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(now)
		_, err = e.kube.CoreV1().Services(s.Namespace).Update(ctx, now, metav1.UpdateOptions{})
		return err
	})
}
