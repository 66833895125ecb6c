package conform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var loadBalancerChecks = []Check{
	{ID: "lb.ensure", Level: Must, skipReason: needsLoadBalancers, run: onNode(checkEnsure),
		Title: "A Service gets the finalizer, and then a load balancer that forwards the Service's ports to the Nodes"},
	{ID: "lb.ports", Level: Must, skipReason: needsLoadBalancers, run: onNode(checkPorts),
		Title: "The load balancer follows the ports of the Service and keeps its address"},
	{ID: "lb.nodes", Level: Must, skipReason: needsLoadBalancers, run: onNode(checkNodes),
		Title: "The load balancer follows the Nodes: new, excluded and deleted Nodes"},
	{ID: "lb.delete", Level: Must, skipReason: needsLoadBalancers, run: onNode(checkDelete),
		Title: "A deleted Service exists until its load balancer is deleted"},
	{ID: "lb.type", Level: Must, skipReason: needsLoadBalancers, run: onNode(checkType),
		Title: "A Service that changes to the type ClusterIP loses its load balancer, status and finalizer"},
	{ID: "lb.class", Level: Must, skipReason: needsLoadBalancers, run: onNode(checkClass),
		Title: "The CCM ignores a Service with the load balancer class of another controller"},
	{ID: "lb.collision", Level: Must, skipReason: needsLoadBalancers, run: onNode(checkCollision),
		Title: "Two Services with the same name in different namespaces share no load balancer, and a Service that is deleted and created again gets a load balancer"},
	{ID: "lb.sourceranges", Level: Must, skipReason: requirements(needsLoadBalancers, needsSourceRanges), run: onNode(checkSourceRanges),
		Title: "The load balancer permits only clients in loadBalancerSourceRanges"},
	{ID: "lb.udp", Level: Must, skipReason: requirements(needsLoadBalancers, needsUDP), run: onNode(checkUDP),
		Title: "A Service with a UDP port gets a UDP port at the load balancer"},
	{ID: "lb.drift", Level: Should, skipReason: needsLoadBalancers, run: onNode(checkDrift),
		Title: "The CCM restores a load balancer that was deleted in the cloud, at the next change of the Service"},
	{ID: "lb.lostreply", Level: Must, skipReason: requirements(needsLoadBalancers, needsCalls, needsFault(FaultLoseReply)), exclusive: true, limitFactor: 2, run: onNode(checkLostReply),
		Title: "After the loss of a reply, a Service has one load balancer, and none after its deletion"},
}

// createBalanced creates a Service, and waits until the Service has an address. It also
// returns the load balancer with this address.
func (e *env) createBalanced(ctx context.Context, suffix string, change ...func(*v1.Service)) (*v1.Service, LoadBalancer, error) {
	s, err := e.service(ctx, suffix, change...)
	if err != nil {
		return nil, LoadBalancer{}, err
	}
	if err := e.serviceBecomes(ctx, s, "ready", hasAddress); err != nil {
		return s, LoadBalancer{}, err
	}
	lb, err := e.loadBalancerOf(ctx, s)
	return s, lb, err
}

func hasAddress(s *v1.Service) error {
	if len(addressesOf(s)) == 0 {
		return errors.New("status.loadBalancer.ingress is empty")
	}
	return nil
}

// loadBalancerOf returns the load balancer with an address of the Service. It returns an error if
// no load balancer or more than one load balancer has an address of the Service.
func (e *env) loadBalancerOf(ctx context.Context, s *v1.Service) (LoadBalancer, error) {
	now, err := e.lastService(s)
	if err != nil {
		return LoadBalancer{}, err
	}
	addresses := addressesOf(now)
	found, err := e.loadBalancers(ctx, func(lb LoadBalancer) bool {
		return slices.ContainsFunc(lb.Addresses, func(a string) bool { return slices.Contains(addresses, a) })
	})
	if err != nil {
		return LoadBalancer{}, err
	}
	if len(found) != 1 {
		return LoadBalancer{}, fmt.Errorf("the cloud has %d load balancers with one of the addresses %v; want 1", len(found), addresses)
	}
	return found[0], nil
}

func (e *env) loadBalancers(ctx context.Context, filter func(LoadBalancer) bool) ([]LoadBalancer, error) {
	all, err := e.driver.ListLoadBalancers(ctx)
	if err != nil {
		return nil, fmt.Errorf("driver: list load balancers: %w", err)
	}
	return slices.DeleteFunc(all, func(lb LoadBalancer) bool { return !filter(lb) }), nil
}

// addedLoadBalancers returns a function that lists new load balancers. A load balancer is new if it
// did not exist when the check called addedLoadBalancers.
func (e *env) addedLoadBalancers(ctx context.Context) (func(context.Context) ([]LoadBalancer, error), error) {
	before, err := e.loadBalancers(ctx, func(LoadBalancer) bool { return true })
	return func(ctx context.Context) ([]LoadBalancer, error) {
		return e.loadBalancers(ctx, func(lb LoadBalancer) bool {
			return !slices.ContainsFunc(before, func(old LoadBalancer) bool { return old.ID == lb.ID })
		})
	}, err
}

// leavesNone deletes a Service. It returns an error if listAdded still lists a load balancer
// after the deletion.
func (e *env) leavesNone(ctx context.Context, s *v1.Service, listAdded func(context.Context) ([]LoadBalancer, error)) error {
	if err := e.removeService(ctx, s); err != nil {
		return err
	}
	found, err := listAdded(ctx)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("the Service is deleted, but the cloud still has the load balancers %v", found)
	}
	return nil
}

// awaitBalancer waits until the load balancer of the Service has the given ID and fulfills the
// condition.
func (e *env) awaitBalancer(ctx context.Context, s *v1.Service, id, property string, condition func(*v1.Service, LoadBalancer) error) error {
	return e.retryUntilOK(ctx, "the load balancer of "+s.Name+" "+property, func(ctx context.Context) error {
		now, err := e.lastService(s)
		if err != nil {
			return err
		}
		lb, err := e.loadBalancerOf(ctx, s)
		if err != nil {
			return err
		}
		if lb.ID != id {
			return fmt.Errorf("the ID of the load balancer has changed to %s; want %s", lb.ID, id)
		}
		return condition(now, lb)
	})
}

func samePorts(s *v1.Service, lb LoadBalancer) error {
	var want []Port
	for _, p := range s.Spec.Ports {
		want = append(want, Port{Protocol: string(p.Protocol), Port: p.Port, NodePort: p.NodePort})
	}
	order := func(a, b Port) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	got := slices.SortedFunc(slices.Values(lb.Ports), order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the ports of the load balancer are %v; the Service has %v", got, want)
	}
	return nil
}

// forwardsTo returns an error if the load balancer does not forward to all required machines, or if
// it forwards to a forbidden machine.
func forwardsTo(lb LoadBalancer, required, forbidden []string) error {
	for _, m := range required {
		if !slices.Contains(lb.Machines, m) {
			return fmt.Errorf("the load balancer does not forward to the machine %s, only to %v", m, lb.Machines)
		}
	}
	for _, m := range forbidden {
		if slices.Contains(lb.Machines, m) {
			return fmt.Errorf("the load balancer still forwards to the machine %s", m)
		}
	}
	return nil
}

func checkEnsure(ctx context.Context, e *env, m Machine) error {
	s, lb, err := e.createBalanced(ctx, "web")
	if err != nil {
		return err
	}
	all, _ := e.seen.versionsOf(serviceKey(s))
	for _, v := range all {
		if s, ok := v.object.(*v1.Service); ok && len(addressesOf(s)) > 0 && !slices.Contains(s.Finalizers, finalizer) {
			return fmt.Errorf("the Service had an address without the finalizer %s", finalizer)
		}
	}
	return e.awaitBalancer(ctx, s, lb.ID, "is complete", func(s *v1.Service, lb LoadBalancer) error {
		return errors.Join(samePorts(s, lb), forwardsTo(lb, []string{m.Name}, nil))
	})
}

func checkPorts(ctx context.Context, e *env, _ Machine) error {
	s, lb, err := e.createBalanced(ctx, "web")
	if err != nil {
		return err
	}
	for _, change := range []func(*v1.Service){
		func(s *v1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "more", Port: 81, Protocol: v1.ProtocolTCP})
		},
		func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 },
		func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:1] },
	} {
		if err := e.changeService(ctx, s, change); err != nil {
			return err
		}
		if err := e.awaitBalancer(ctx, s, lb.ID, "has the new ports", samePorts); err != nil {
			return err
		}
	}
	return nil
}

func checkNodes(ctx context.Context, e *env, a Machine) error {
	s, lb, err := e.createBalanced(ctx, "web")
	if err != nil {
		return err
	}
	targets := func(property string, yes, no []string) error {
		return e.awaitBalancer(ctx, s, lb.ID, property, func(_ *v1.Service, lb LoadBalancer) error { return forwardsTo(lb, yes, no) })
	}
	b, err := e.joinNode(ctx, "b")
	if err != nil {
		return err
	}
	if err := targets("has the new Node", []string{a.Name, b.Name}, nil); err != nil {
		return err
	}
	if err := e.patchNode(ctx, b.Name, `{"metadata":{"labels":{"`+v1.LabelNodeExcludeBalancers+`":"true"}}}`); err != nil {
		return err
	}
	if err := targets("omits the excluded Node", []string{a.Name}, []string{b.Name}); err != nil {
		return err
	}
	if err := e.patchNode(ctx, b.Name, `{"metadata":{"labels":{"`+v1.LabelNodeExcludeBalancers+`":null}}}`); err != nil {
		return err
	}
	if err := targets("has the Node again", []string{a.Name, b.Name}, nil); err != nil {
		return err
	}
	if err := e.deleteNode(ctx, b.Name); err != nil {
		return err
	}
	return targets("omits the deleted Node", []string{a.Name}, []string{b.Name})
}

func (e *env) awaitDeletion(ctx context.Context, id string) error {
	return e.retryUntilOK(ctx, "the load balancer "+id+" is deleted", func(ctx context.Context) error {
		found, err := e.loadBalancers(ctx, func(lb LoadBalancer) bool { return lb.ID == id })
		if err == nil && len(found) > 0 {
			err = errors.New("the load balancer still exists")
		}
		return err
	})
}

func checkDelete(ctx context.Context, e *env, _ Machine) error {
	s, lb, err := e.createBalanced(ctx, "web")
	if err != nil {
		return err
	}
	if err := e.kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := e.serviceDisappears(ctx, s); err != nil {
		return err
	}
	found, err := e.loadBalancers(ctx, func(l LoadBalancer) bool { return l.ID == lb.ID })
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("the Service is deleted, but the cloud still has its load balancer %s", lb.ID)
	}
	return nil
}

func checkType(ctx context.Context, e *env, _ Machine) error {
	s, lb, err := e.createBalanced(ctx, "web")
	if err != nil {
		return err
	}
	if err := e.changeService(ctx, s, func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP }); err != nil {
		return err
	}
	if err := e.awaitDeletion(ctx, lb.ID); err != nil {
		return err
	}
	return e.serviceBecomes(ctx, s, "free of the load balancer", func(s *v1.Service) error {
		if len(addressesOf(s)) > 0 || slices.Contains(s.Finalizers, finalizer) {
			return fmt.Errorf("status.loadBalancer has the addresses %v, want none; the finalizers are %v, want no finalizer %s", addressesOf(s), s.Finalizers, finalizer)
		}
		return nil
	})
}

func checkClass(ctx context.Context, e *env, _ Machine) error {
	class := "conform.cloudsim.dev/another-controller"
	s, err := e.service(ctx, "web", func(s *v1.Service) { s.Spec.LoadBalancerClass = &class })
	if err != nil {
		return err
	}
	return e.serviceStays(ctx, s, "untouched", func(s *v1.Service) error {
		if len(addressesOf(s)) > 0 || len(s.Finalizers) > 0 {
			return fmt.Errorf("the CCM wrote the addresses %v and the finalizers %v", addressesOf(s), s.Finalizers)
		}
		return nil
	})
}

func checkCollision(ctx context.Context, e *env, _ Machine) error {
	s, first, err := e.createBalanced(ctx, "web")
	if err != nil {
		return err
	}
	other := e.prefix
	e.addCleanup(func(ctx context.Context) error { // first, because the reply to the creation can be lost
		if err := e.kube.CoreV1().Namespaces().Delete(ctx, other, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	if _, err := e.kube.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other, Labels: map[string]string{LabelRun: e.run}}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, second, err := e.createBalanced(ctx, "web", func(s *v1.Service) { s.Namespace = other })
	if err != nil {
		return err
	}
	if first.ID == second.ID {
		return fmt.Errorf("two Services in different namespaces share the load balancer %s", first.ID)
	}
	if err := e.kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := e.serviceDisappears(ctx, s); err != nil {
		return err
	}
	newService, _, err := e.createBalanced(ctx, "web")
	if err != nil {
		return fmt.Errorf("after the Service was created again: %w", err)
	}
	return e.serviceBecomes(ctx, newService, "protected", func(s *v1.Service) error {
		if !slices.Contains(s.Finalizers, finalizer) {
			return errors.New("the new Service has no finalizer")
		}
		return nil
	})
}

func checkSourceRanges(ctx context.Context, e *env, _ Machine) error {
	ranges := func(want ...string) func(*v1.Service, LoadBalancer) error {
		return func(_ *v1.Service, lb LoadBalancer) error {
			if got := slices.Sorted(slices.Values(lb.SourceRanges)); !slices.Equal(got, want) {
				return fmt.Errorf("the source ranges of the load balancer are %v; want %v", got, want)
			}
			return nil
		}
	}
	s, lb, err := e.createBalanced(ctx, "web", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} })
	if err != nil {
		return err
	}
	if err := e.awaitBalancer(ctx, s, lb.ID, "has the source range", ranges("192.0.2.0/24")); err != nil {
		return err
	}
	if err := e.changeService(ctx, s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "192.0.2.0/24"} }); err != nil {
		return err
	}
	return e.awaitBalancer(ctx, s, lb.ID, "has both source ranges", ranges("192.0.2.0/24", "198.51.100.0/24"))
}

func checkUDP(ctx context.Context, e *env, _ Machine) error {
	s, lb, err := e.createBalanced(ctx, "dns", func(s *v1.Service) {
		s.Spec.Ports = []v1.ServicePort{{Name: "dns", Port: 53, Protocol: v1.ProtocolUDP}}
	})
	if err != nil {
		return err
	}
	return e.awaitBalancer(ctx, s, lb.ID, "has the UDP port", samePorts)
}

// checkDrift deletes the load balancer in the cloud, and then changes the Service. The change is
// necessary, because upstream's controller reads the cloud only after a change of a Service or
// Node.
func checkDrift(ctx context.Context, e *env, _ Machine) error {
	s, lb, err := e.createBalanced(ctx, "web")
	if err != nil {
		return err
	}
	if err := e.driver.DeleteLoadBalancer(ctx, lb.ID); err != nil {
		return fmt.Errorf("driver: delete load balancer: %w", err)
	}
	if err := e.changeService(ctx, s, func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 }); err != nil {
		return err
	}
	return e.retryUntilOK(ctx, "the Service has a load balancer again", func(ctx context.Context) error {
		lb, err := e.loadBalancerOf(ctx, s)
		if err != nil {
			return err
		}
		now, err := e.lastService(s)
		if err != nil {
			return err
		}
		return samePorts(now, lb)
	})
}

// checkLostReply finds the names of the calls with which the CCM creates a load balancer. It
// then calls loseReply for each name.
func checkLostReply(ctx context.Context, e *env, _ Machine) error {
	added, err := e.addedLoadBalancers(ctx)
	if err != nil {
		return err
	}
	writes, err := e.writesOfCreation(ctx, added)
	if err != nil {
		return err
	}
	for i, name := range slices.Sorted(maps.Keys(writes)) {
		if err := e.loseReply(ctx, fmt.Sprintf("lost-%d", i+1), name, added); err != nil {
			return fmt.Errorf("lost reply of the call %s: %w", name, err)
		}
	}
	return nil
}

// loseReply sets a fault that drops the first reply to the given call, and creates a Service.
// Despite the lost reply, the cloud must have exactly one load balancer for the Service. Then
// loseReply deletes the Service. After the deletion, the cloud must have no load balancer for it.
func (e *env) loseReply(ctx context.Context, suffix, call string, added func(context.Context) ([]LoadBalancer, error)) error {
	if err := e.disturb(ctx, Fault{Kind: FaultLoseReply, Call: call, Count: 1}); err != nil {
		return err
	}
	s, lb, err := e.createBalanced(ctx, suffix)
	if err != nil {
		return err
	}
	if err := e.undisturb(ctx); err != nil {
		return err
	}
	if err := e.retryUntilOK(ctx, "the cloud has one new load balancer", func(ctx context.Context) error {
		found, err := added(ctx)
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("the cloud has %d load balancers for one Service; want only %s", len(found), lb.ID)
		}
		return err
	}); err != nil {
		return err
	}
	return e.leavesNone(ctx, s, added)
}
