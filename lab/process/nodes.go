package process

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/internal/providerid"
)

// uninitializedTaint is on a node until the cloud controller manager has initialized
// the node (KEP-2392).
const uninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// NodesReport contains the number of instances that should run, and the number
// of instances with a Ready node. For each instance without a Ready node, it
// contains the reason.
type NodesReport struct {
	Ready    int        `json:"ready"`
	Total    int        `json:"total"`
	NotReady []NotReady `json:"notReady,omitempty"` // the most frequent reason first
	Error    string     `json:"error,omitempty"`    // why the lab could not read the nodes
}

// NotReady is a reason why instances are not ready, with the number of these instances.
type NotReady struct {
	Reason   string   `json:"reason"`
	Count    int      `json:"count"`
	Examples []string `json:"examples"` // names, at most three
}

const maxExamples = 3

// add counts an instance. The reason is "" if the instance's node is Ready.
func (r *NodesReport) add(name, reason string) {
	r.Total++
	if reason == "" {
		r.Ready++
		return
	}
	i := slices.IndexFunc(r.NotReady, func(n NotReady) bool { return n.Reason == reason })
	if i < 0 {
		i = len(r.NotReady)
		r.NotReady = append(r.NotReady, NotReady{Reason: reason})
	}
	n := &r.NotReady[i]
	if n.Count++; len(n.Examples) < maxExamples {
		n.Examples = append(n.Examples, name)
	}
}

// AllReady reports whether every instance that should run has a Ready node. It returns false if the
// lab could not read the nodes.
func (r NodesReport) AllReady() bool { return r.Error == "" && r.Ready == r.Total }

// String returns one line: the number of Ready nodes, the number of all nodes, and each reason why
// nodes are not Ready. After each reason, the line contains the names of some of these nodes. If
// r.Error is not "", the line contains only this error.
func (r NodesReport) String() string {
	if r.Error != "" {
		return "it is unknown which nodes are Ready: " + r.Error
	}
	line := fmt.Sprintf("%d of %d nodes are Ready", r.Ready, r.Total)
	for i, n := range r.NotReady {
		sep := ", "
		if i == 0 {
			sep = "; not Ready: "
		}
		examples := strings.Join(n.Examples, ", ")
		if n.Count > len(n.Examples) {
			examples += ", …"
		}
		line += fmt.Sprintf("%s%d × %s (%s)", sep, n.Count, n.Reason, examples)
	}
	return line
}

// awaitNodes waits until every instance that should run has a node that is Ready and
// initialized, and that accepts pods. When all nodes are in this state, the scheduler
// spreads new pods over all nodes. awaitNodes returns the last report when all nodes are
// ready or when ctx ends. Between two calls of reportNodes, it pauses at least minPause.
func (p *plan) awaitNodes(ctx context.Context, minPause time.Duration) (NodesReport, error) {
	k, err := p.adminClient()
	if err != nil {
		return NodesReport{}, err
	}
	c := p.cloudClient()
	last := NodesReport{Error: "the Nodes were not read in time"}
	for {
		began := time.Now()
		r, err := reportNodes(ctx, k, c, p.began)
		switch {
		case err == nil:
			last = r
		case ctx.Err() == nil:
			last = NodesReport{Error: err.Error()}
		}
		if last.AllReady() {
			return last, nil
		}
		// A read of thousands of nodes takes CPU time from the components that make the
		// nodes Ready. So the pause is at least five times as long as the read.
		pause := max(minPause, 5*time.Since(began))
		select {
		case <-ctx.Done():
			return last, nil
		case <-time.After(pause):
		}
	}
}

// reportNodes reads the cloud and the cluster once. The argument start is the start time of this
// run of the lab. The condition Ready and the Lease of a node can be from an earlier run. So a node
// counts as not Ready if both are older than start.
func reportNodes(ctx context.Context, k kubernetes.Interface, c *client.Client, start time.Time) (r NodesReport, err error) {
	instances, _, err := cloudsim.All(ctx, c.ListInstances, cloudsim.ListOptions{})
	if err != nil {
		return r, err
	}
	zones, _, err := cloudsim.All(ctx, c.ListZones, cloudsim.ListOptions{})
	if err != nil {
		return r, err
	}
	dark := map[string]bool{}
	for _, z := range zones {
		dark[z.Name] = z.Dark()
	}
	list, err := k.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return r, err
	}
	leases, err := k.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return r, err
	}
	alive := map[string]bool{}
	for _, l := range leases.Items {
		alive[l.Name] = l.Spec.RenewTime != nil && l.Spec.RenewTime.After(start)
	}
	nodes := map[string]corev1.Node{}
	for _, n := range list.Items {
		ready := readyCondition(n)
		if alive[n.Name] || ready != nil && ready.LastHeartbeatTime.After(start) {
			nodes[n.Name] = n
		}
	}
	for _, i := range instances {
		switch i.State {
		case cloudsim.InstanceProvisioning, cloudsim.InstanceStarting, cloudsim.InstanceRebooting:
			r.add(i.Name, "the instance is "+string(i.State))
		case cloudsim.InstanceRunning:
			reason := notServing(nodes, i)
			switch {
			case reason != "" && i.Crashed != nil:
				reason = "the instance crashed"
			case reason != "" && dark[i.Zone]:
				reason = "a fault makes zone " + i.Zone + " dark"
			}
			r.add(i.Name, reason)
		}
	}
	slices.SortStableFunc(r.NotReady, func(a, b NotReady) int { return b.Count - a.Count })
	return r, nil
}

// readyCondition returns the condition Ready of a node, or nil if the node does not have this
// condition.
func readyCondition(n corev1.Node) *corev1.NodeCondition {
	at := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if at < 0 {
		return nil
	}
	return &n.Status.Conditions[at]
}

// notServing returns the reason why the scheduler places no pods on an instance's node. It returns
// "" if the scheduler places pods on the node. It ignores cordons and taints of the user.
func notServing(nodes map[string]corev1.Node, i cloudsim.Instance) string {
	n, ok := nodes[i.Name]
	if !ok || !providerid.Same(n.Spec.ProviderID, i.ProviderID) {
		return "no Node with the instance's provider id has reported since the start of the lab"
	}
	ready := readyCondition(n)
	switch {
	case ready == nil:
		return "no kubelet has reported yet"
	case ready.Status != corev1.ConditionTrue:
		return fmt.Sprintf("the condition Ready is %s: %s", ready.Status, ready.Reason)
	}
	for _, t := range n.Spec.Taints {
		switch {
		case t.Key == uninitializedTaint:
			return "the cloud controller manager has not initialized the Node"
		case t.Key == corev1.TaintNodeNotReady && t.Effect == corev1.TaintEffectNoSchedule:
			return "the Node is Ready, but does not accept pods yet"
		}
	}
	return ""
}

// releaseLeases deletes the node Leases that an earlier kwok holds. Without releaseLeases, the new
// kwok would wait until the Leases expire, because it has another identity than the earlier kwok. A
// lab runs only one kwok at a time, so the earlier kwok has ended. releaseLeases keeps a Lease if
// its holder identity is the node's name, because a kubelet holds this Lease.
func (p *plan) releaseLeases(ctx context.Context) error {
	k, err := p.adminClient()
	if err != nil {
		return err
	}
	leases := k.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	held, err := leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(16)
	for _, l := range held.Items {
		if holder := l.Spec.HolderIdentity; holder != nil && *holder == l.Name {
			continue
		}
		work.Go(func() error {
			err := leases.Delete(ctx, l.Name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	return work.Wait()
}
