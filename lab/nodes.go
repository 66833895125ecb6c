package lab

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
)

// uninitializedTaint is on a node until the cloud controller manager has told
// it where it is: KEP-2392.
const uninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// awaitNodes waits until every instance that runs has a node that is Ready,
// initialised, and known to the scheduler as Ready: what is deployed next is spread
// over all of them. When ctx ends before, it returns what is missing.
func (p *plan) awaitNodes(ctx context.Context) (late string, err error) {
	k, err := p.kubernetes()
	if err != nil {
		return "", err
	}
	c := p.cloudClient()
	for {
		late, err = missingNodes(ctx, k, c, p.began)
		if err == nil && late == "" {
			return "", nil
		}
		select {
		case <-ctx.Done():
			if late == "" && err != nil {
				late = err.Error()
			}
			return late, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// missingNodes is a line for people, "" when nothing is missing. A node that has
// not renewed its Lease since the lab began is one that was Ready before.
func missingNodes(ctx context.Context, k *kubernetes.Clientset, c *client.Client, began time.Time) (string, error) {
	instances, _, err := cloudsim.All(ctx, c.ListInstances, cloudsim.ListOptions{})
	if err != nil {
		return "", err
	}
	list, err := k.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return "", err
	}
	leases, err := k.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return "", err
	}
	alive := map[string]bool{}
	for _, l := range leases.Items {
		alive[l.Name] = l.Spec.RenewTime != nil && l.Spec.RenewTime.After(began)
	}
	nodes := map[string]corev1.Node{}
	for _, n := range list.Items {
		if alive[n.Name] {
			nodes[n.Spec.ProviderID] = n
		}
	}
	var missing []string
	for _, i := range instances {
		switch i.State {
		case cloudsim.InstanceProvisioning, cloudsim.InstanceStarting, cloudsim.InstanceRebooting:
			missing = append(missing, fmt.Sprintf("%s is %s", i.Name, i.State))
		case cloudsim.InstanceRunning:
			if why := notServing(nodes, i); why != "" {
				missing = append(missing, i.Name+" "+why)
			}
		}
	}
	return strings.Join(missing, ", "), nil
}

func notServing(nodes map[string]corev1.Node, i cloudsim.Instance) string {
	n, ok := nodes[i.ProviderID]
	if !ok {
		return "has no node that is initialised and alive"
	}
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if !ready {
		return "is not Ready"
	}
	for _, t := range n.Spec.Taints {
		switch {
		case t.Key == uninitializedTaint:
			return "is not initialised"
		case t.Key == corev1.TaintNodeNotReady && t.Effect == corev1.TaintEffectNoSchedule:
			return "is Ready and not given pods yet"
		}
	}
	return ""
}

// releaseLeases deletes the node Leases that an earlier kwok holds: there is
// one kwok in a lab, so whoever held them is dead. A new one has another
// identity and would wait until they expire. Kubelets hold their Lease by
// their node's name and are left alone.
func (p *plan) releaseLeases(ctx context.Context) error {
	k, err := p.kubernetes()
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
