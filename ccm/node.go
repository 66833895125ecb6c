package ccm

import (
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// toBeDeletedTaint is what the cluster autoscaler puts on a node that it is
// about to delete.
const toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"

// eligible are the nodes that upstream's service controller would hand to the
// provider: not those that go, or that a label excludes. Whether they are ready
// does not count (KEP-3458): health checks know better.
func eligible(nodes []*v1.Node) []*v1.Node {
	kept := make([]*v1.Node, 0, len(nodes))
	for _, n := range nodes {
		if n.DeletionTimestamp == nil && !excluded(n) && !slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == toBeDeletedTaint }) {
			kept = append(kept, n)
		}
	}
	return kept
}

// excluded reads node.kubernetes.io/exclude-from-external-load-balancers as
// upstream does: any value but a false one excludes.
func excluded(n *v1.Node) bool {
	v, ok := n.Labels[v1.LabelNodeExcludeBalancers]
	if !ok {
		return false
	}
	b, err := strconv.ParseBool(v)
	return err != nil || b
}

// nodeMatters reports whether a change of a node may change who the targets of
// a load balancer are, or how they are reached.
func nodeMatters(before, after *v1.Node) bool {
	return before.Spec.ProviderID != after.Spec.ProviderID ||
		!maps.Equal(before.Labels, after.Labels) ||
		!slices.Equal(before.Status.Addresses, after.Status.Addresses) ||
		!slices.EqualFunc(before.Spec.Taints, after.Spec.Taints, func(a, b v1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value })
}
