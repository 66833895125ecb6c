package conform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var nodeChecks = []Check{
	{ID: "node.init", Level: Must, run: onNode(checkInit),
		Title: "The CCM removes the taint from a Node only when provider ID, type, zone and region are set"},
	{ID: "node.providerid", Level: Must, run: onNode(checkProviderID),
		Title: "The provider ID of a Node is the machine's provider ID and never changes"},
	{ID: "node.addresses", Level: Must, run: onNode(checkAddresses),
		Title: "A Node has the addresses of its machine and keeps the host name from the kubelet"},
	{ID: "node.nodeip", Level: Must, run: checkNodeIP,
		Title: "A Node with an unknown --node-ip stays uninitialized"},
	{ID: "node.labels", Level: Must, skipReason: needsZones, run: onNode(checkLabels),
		Title: "A Node has labels with the machine's type, zone and region"},
	{ID: "node.unknown", Level: Must, run: checkUnknown,
		Title: "The CCM does not initialize a Node without a machine, and does not delete it while it is Ready"},
	{ID: "node.create-race", Level: Must, run: checkCreateRace,
		Title: "A Node that joins before the cloud shows its machine is not deleted, and is initialized later"},
	{ID: "node.labelrepair", Level: Should, skipReason: needsZones, run: onNode(checkLabelRepair),
		Title: "The CCM restores a changed zone label of a Node"},
	{ID: "node.foreign", Level: Must, run: checkForeign,
		Title: "The CCM does not change or delete a Node with the provider ID of another provider"},
	{ID: "node.shutdown", Level: Must, skipReason: needsShutdown, run: onNode(checkShutdown),
		Title: "The Node of a stopped machine gets the shutdown taint and is not deleted"},
	{ID: "node.deleted", Level: Must, run: onNode(checkDeleted),
		Title: "The Node of a deleted machine is deleted when it is not Ready, and not earlier"},
	{ID: "node.replaced", Level: Should, run: onNode(checkReplaced),
		Title: "A new machine with the name of a deleted one gets its own Node"},
	{ID: "node.outage", Level: Must, skipReason: needsAnyFault, exclusive: true, limitFactor: 2, run: onNode(checkOutage),
		Title: "During an outage of the cloud's API, the CCM deletes no Node and adds no taint"},
}

// checkInit checks the recorded versions of the Node. Pods can start on the Node as soon as it
// lacks the taint taintUninitialized. Therefore each version without this taint must have the
// provider ID and all labels. checkInit does not check the addresses, because upstream's controller
// first removes the taint and then writes the addresses. The check node.addresses checks the
// addresses. See KEP-2392, "Node controller".
func checkInit(ctx context.Context, e *env, m Machine) error {
	all, _ := e.seen.versionsOf(nodeKey(m.Name))
	for _, v := range all {
		n, ok := v.object.(*v1.Node)
		if !ok || hasTaint(n, taintUninitialized) {
			continue
		}
		var missing []string
		if n.Spec.ProviderID == "" {
			missing = append(missing, "spec.providerID")
		}
		for label, wanted := range wantedLabels(m, e.caps.Zones) {
			if wanted != "" && n.Labels[label] == "" {
				missing = append(missing, "the label "+label)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("the CCM removed the taint %s before it set %s", taintUninitialized, strings.Join(missing, ", "))
		}
	}
	return nil
}

func wantedLabels(m Machine, zones bool) map[string]string {
	wanted := map[string]string{v1.LabelInstanceTypeStable: m.Type}
	if zones {
		wanted[v1.LabelTopologyZone], wanted[v1.LabelTopologyRegion] = m.Zone, m.Region
	}
	return wanted
}

func checkProviderID(ctx context.Context, e *env, m Machine) error {
	if m.ProviderID == "" {
		return errors.New("driver: the machine has no provider ID")
	}
	return e.nodeStays(ctx, m.Name, "unchanged", func(n *v1.Node) error {
		if n.Spec.ProviderID != m.ProviderID || !strings.HasPrefix(n.Spec.ProviderID, e.caps.ProviderIDPrefix) {
			return fmt.Errorf("spec.providerID is %q; want %q, and it must begin with %q", n.Spec.ProviderID, m.ProviderID, e.caps.ProviderIDPrefix)
		}
		return nil
	})
}

func checkAddresses(ctx context.Context, e *env, m Machine) error {
	complete := func(n *v1.Node) error {
		for _, a := range m.Addresses {
			if !slices.Contains(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeAddressType(a.Type), Address: a.Address}) {
				return fmt.Errorf("status.addresses is %v; the %s %s of the machine is missing", n.Status.Addresses, a.Type, a.Address)
			}
		}
		if !slices.ContainsFunc(n.Status.Addresses, func(a v1.NodeAddress) bool { return a.Type == v1.NodeHostName }) {
			return errors.New("status.addresses has no Hostname any more; the kubelet had set it")
		}
		return nil
	}
	if err := e.nodeBecomes(ctx, m.Name, "complete", complete); err != nil {
		return err
	}
	return e.nodeStays(ctx, m.Name, "complete", complete)
}

// nodeIPAnnotation is the annotation in which a kubelet writes the value of its flag --node-ip.
const nodeIPAnnotation = "alpha.kubernetes.io/provided-node-ip"

func checkNodeIP(ctx context.Context, e *env) error {
	m, err := e.machine(ctx, "a")
	if err != nil {
		return err
	}
	const documentation = "192.0.2.1" // RFC 5737: no machine has this address
	if err := e.node(ctx, m.Name, func(n *v1.Node) { n.Annotations = map[string]string{nodeIPAnnotation: documentation} }); err != nil {
		return err
	}
	return e.nodeStays(ctx, m.Name, "uninitialized", func(n *v1.Node) error {
		if checkInitialized(n) == nil {
			return fmt.Errorf("the annotation %s is %s, which is no address of the machine, but the CCM removed the taint", nodeIPAnnotation, documentation)
		}
		return nil
	})
}

func checkLabels(ctx context.Context, e *env, m Machine) error {
	return e.nodeBecomes(ctx, m.Name, "labeled", func(n *v1.Node) error {
		for label, wanted := range wantedLabels(m, true) {
			if wanted != "" && n.Labels[label] != wanted {
				return fmt.Errorf("the label %s is %q; the machine has %q", label, n.Labels[label], wanted)
			}
		}
		return nil
	})
}

func checkUnknown(ctx context.Context, e *env) error {
	name := e.prefix + "-a"
	if err := e.node(ctx, name); err != nil {
		return err
	}
	return e.nodeStays(ctx, name, "uninitialized", func(n *v1.Node) error {
		if checkInitialized(n) == nil {
			return errors.New("the CCM removed the taint, but there is no machine with this name")
		}
		return nil
	})
}

// checkCreateRace creates the Node before the machine. The CCM then sees the same state as in the
// many clouds that list a new machine only after some seconds. The Node is not Ready, because a
// kubelet reports Ready only after the network of the pods works. The CCMs of some providers have
// deleted new Nodes in this state, for example kubernetes/cloud-provider-openstack#2062.
func checkCreateRace(ctx context.Context, e *env) error {
	name := e.prefix + "-a"
	if err := e.node(ctx, name, func(n *v1.Node) { n.Status.Conditions = []v1.NodeCondition{readyCondition(false)} }); err != nil {
		return err
	}
	if err := e.setReady(ctx, name, false); err != nil {
		return err
	}
	if err := e.nodeStays(ctx, name, "in the cluster while its machine is missing", anyObject); err != nil {
		return err
	}
	m, err := e.machine(ctx, "a")
	if err != nil {
		return err
	}
	return e.nodeBecomes(ctx, name, "initialized", func(n *v1.Node) error {
		if n.Spec.ProviderID != m.ProviderID {
			return fmt.Errorf("spec.providerID is %q; the machine has %q", n.Spec.ProviderID, m.ProviderID)
		}
		return checkInitialized(n)
	})
}

func checkLabelRepair(ctx context.Context, e *env, m Machine) error {
	if err := e.patchNode(ctx, m.Name, `{"metadata":{"labels":{"`+v1.LabelTopologyZone+`":"wrong"}}}`); err != nil {
		return err
	}
	return e.nodeBecomes(ctx, m.Name, "labeled again", func(n *v1.Node) error {
		if got := n.Labels[v1.LabelTopologyZone]; got != m.Zone {
			return fmt.Errorf("the label %s is %q; the machine is in %q", v1.LabelTopologyZone, got, m.Zone)
		}
		return nil
	})
}

// foreignPrefix is the first part of provider IDs of a provider that does not exist.
const foreignPrefix = "conformance-other-provider://"

func checkForeign(ctx context.Context, e *env) error {
	name := e.prefix + "-a"
	id := foreignPrefix + name
	if err := e.node(ctx, name, func(n *v1.Node) { n.Spec.ProviderID, n.Spec.Taints = id, nil }); err != nil {
		return err
	}
	if err := e.setReady(ctx, name, false); err != nil {
		return err
	}
	return e.nodeStays(ctx, name, "untouched", func(n *v1.Node) error {
		if n.Spec.ProviderID != id || hasTaint(n, taintShutdown) {
			return fmt.Errorf("spec.providerID is %q, want %q; the Node has the shutdown taint: %t, want false", n.Spec.ProviderID, id, hasTaint(n, taintShutdown))
		}
		return nil
	})
}

func checkShutdown(ctx context.Context, e *env, m Machine) error {
	if err := e.driver.StopMachine(ctx, m.Name); err != nil {
		return fmt.Errorf("driver: stop machine: %w", err)
	}
	if now, err := e.driver.GetMachine(ctx, m.Name); err != nil || now.Running {
		return errors.Join(fmt.Errorf("driver: StopMachine stopped the machine %s, but GetMachine does not return the machine as stopped", m.Name), err)
	}
	if err := e.setReady(ctx, m.Name, false); err != nil {
		return err
	}
	shutdown := func(n *v1.Node) error {
		if !hasTaint(n, taintShutdown) {
			return fmt.Errorf("the Node does not have the taint %s", taintShutdown)
		}
		return nil
	}
	if err := e.nodeBecomes(ctx, m.Name, "tainted", shutdown); err != nil {
		return err
	}
	if err := e.nodeStays(ctx, m.Name, "tainted", shutdown); err != nil {
		return err
	}
	if err := e.driver.StartMachine(ctx, m.Name); err != nil {
		return fmt.Errorf("driver: start machine: %w", err)
	}
	if err := e.setReady(ctx, m.Name, true); err != nil {
		return err
	}
	return e.nodeBecomes(ctx, m.Name, "free of the shutdown taint", func(n *v1.Node) error {
		if shutdown(n) == nil {
			return errors.New("the machine runs and the Node is Ready, but the taint is still set")
		}
		return nil
	})
}

// checkDeleted detects a bug in a CCM: for a deleted machine, InstanceExists returns the error
// InstanceNotFound instead of false. Because of this error, the CCM does not delete the Node. See
// kubernetes/kubernetes#139301.
func checkDeleted(ctx context.Context, e *env, m Machine) error {
	if err := e.deleteMachine(ctx, m.Name); err != nil {
		return err
	}
	if err := e.nodeStays(ctx, m.Name, "in the cluster while it is Ready", anyObject); err != nil {
		return err
	}
	if err := e.setReady(ctx, m.Name, false); err != nil {
		return err
	}
	return e.nodeDisappears(ctx, m.Name)
}

// anyObject is a condition that every existing object fulfills.
func anyObject[T any](*T) error { return nil }

func checkReplaced(ctx context.Context, e *env, old Machine) error {
	if err := e.deleteMachine(ctx, old.Name); err != nil {
		return err
	}
	m, err := e.machine(ctx, "a")
	if err != nil {
		return err
	}
	if m.ProviderID == old.ProviderID {
		return fmt.Errorf("driver: the new machine has the provider ID of the old machine, %s", m.ProviderID)
	}
	if err := e.setReady(ctx, old.Name, false); err != nil {
		return err
	}
	if err := e.nodeDisappears(ctx, old.Name); err != nil {
		return fmt.Errorf("the Node of the old machine: %w", err)
	}
	if err := e.node(ctx, m.Name); err != nil {
		return err
	}
	return e.nodeBecomes(ctx, m.Name, "a Node of the new machine", func(n *v1.Node) error {
		if err := checkInitialized(n); err != nil {
			return err
		}
		if n.Spec.ProviderID != m.ProviderID {
			return fmt.Errorf("spec.providerID is %q; the new machine has %q", n.Spec.ProviderID, m.ProviderID)
		}
		return nil
	})
}

// checkOutage injects each kind of fault that the driver supports, except lost replies, throttling
// and latency. The CCMs of several providers have deleted healthy Nodes after a network error, for
// example oracle/oci-cloud-controller-manager#57.
func checkOutage(ctx context.Context, e *env, m Machine) error {
	if err := e.setReady(ctx, m.Name, false); err != nil { // a CCM asks the cloud only about Nodes that are not Ready
		return err
	}
	for _, kind := range e.caps.Faults {
		if slices.Contains([]FaultKind{FaultLoseReply, FaultThrottle, FaultLatency}, kind) {
			continue // see lb.lostreply and ops.throttle
		}
		if err := e.disturb(ctx, Fault{Kind: kind}); err != nil {
			return err
		}
		err := e.nodeStays(ctx, m.Name, "untainted in the cluster", func(n *v1.Node) error {
			if hasTaint(n, taintUninitialized) || hasTaint(n, taintShutdown) {
				return fmt.Errorf("the Node has the taints %v", n.Spec.Taints)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("fault %q: %w", kind, err)
		}
	}
	if err := e.undisturb(ctx); err != nil {
		return err
	}
	// The CCM must work again after the outage.
	_, err := e.joinNode(ctx, "after")
	return err
}

func (e *env) patchNode(ctx context.Context, name, patch string) error {
	_, err := e.kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
