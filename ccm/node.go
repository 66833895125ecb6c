package ccm

import (
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// toBeDeletedTaint is the taint that the cluster autoscaler puts on a node before
// it deletes the node.
const toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"

// eligibleNodes returns the nodes that upstream's service controller would pass to the provider. It
// omits nodes with a deletion timestamp, with the label that excludes a node from load balancers,
// or with the deletion taint of the cluster autoscaler. It includes nodes that are not ready
// (KEP-3458), because the load balancer's health checks find out whether a node can receive
// traffic.
func eligibleNodes(nodes []*v1.Node) []*v1.Node {
	kept := make([]*v1.Node, 0, len(nodes))
	for _, n := range nodes {
		if n.DeletionTimestamp == nil && !isExcluded(n) && !slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == toBeDeletedTaint }) {
			kept = append(kept, n)
		}
	}
	return kept
}

// isExcluded reports whether the label
// node.kubernetes.io/exclude-from-external-load-balancers excludes the node. If
// strconv.ParseBool reads the label's value as false, the label does not
// exclude the node. Every other value excludes the node, as in upstream.
func isExcluded(n *v1.Node) bool {
	v, ok := n.Labels[v1.LabelNodeExcludeBalancers]
	if !ok {
		return false
	}
	b, err := strconv.ParseBool(v)
	return err != nil || b
}

// nodeMatters reports whether the change of a node can affect the targets of a
// load balancer.
func nodeMatters(before, after *v1.Node) bool {
	return before.Spec.ProviderID != after.Spec.ProviderID ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!maps.Equal(before.Labels, after.Labels) ||
		!slices.Equal(before.Status.Addresses, after.Status.Addresses) ||
		!slices.EqualFunc(before.Spec.Taints, after.Spec.Taints, func(a, b v1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value })
}
