package ccm_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Upstream's service controller ignores some changes of a Node. Examples are a changed label that a
// node selector uses, and the taint of the cluster autoscaler. The CCM updates the targets of a
// load balancer after these changes, too.
func TestTargetsFollowNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := normalPeriods(t)
		one, two := p.createMachine(t, "node-1"), p.createMachine(t, "node-2")
		first, second := setReady(initializedNode(one)), setReady(initializedNode(two))
		first.Labels, second.Labels = map[string]string{"pool": "web"}, map[string]string{"pool": "web"}
		p.join(t, first)
		p.join(t, second)
		time.Sleep(10 * time.Second)
		p.postService(t, newService(annotate("node-selector", "pool=web")))
		awaitEverySecond(t, time.Minute, "the Service has its address", func() bool { return addressed(p.getService(t)) })
		time.Sleep(time.Minute)
		for _, step := range []struct {
			name   string
			change func(*v1.Node)
			stays  bool
		}{
			{"autoscaler taint set", func(n *v1.Node) {
				n.Spec.Taints = []v1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Value: "1", Effect: v1.TaintEffectNoSchedule}}
			}, false},
			{"autoscaler taint removed", func(n *v1.Node) { n.Spec.Taints = nil }, true},
			{"exclusion label \"true\"", func(n *v1.Node) { n.Labels[v1.LabelNodeExcludeBalancers] = "true" }, false},
			{"exclusion label \"false\"", func(n *v1.Node) { n.Labels[v1.LabelNodeExcludeBalancers] = "false" }, true},
			{"empty exclusion label", func(n *v1.Node) { n.Labels[v1.LabelNodeExcludeBalancers] = "" }, false},
			{"exclusion label removed", func(n *v1.Node) { delete(n.Labels, v1.LabelNodeExcludeBalancers) }, true},
			{"exclusion label with another value", func(n *v1.Node) { n.Labels[v1.LabelNodeExcludeBalancers] = "junk" }, false},
			{"address changed", func(n *v1.Node) {
				delete(n.Labels, v1.LabelNodeExcludeBalancers)
				n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.9"}}
			}, true},
			{"label does not match the node selector", func(n *v1.Node) { n.Labels["pool"] = "db" }, false},
			{"label matches the node selector", func(n *v1.Node) { n.Labels["pool"] = "web" }, true},
			{"deletion timestamp set", func(n *v1.Node) {
				n.Finalizers, n.DeletionTimestamp = []string{"example.com/wait"}, &metav1.Time{Time: time.Now()}
			}, false},
		} {
			n := p.getNode(t, "node-2")
			step.change(n)
			if _, err := p.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			want := []cloudsim.InstanceID{one.ID}
			if step.stays {
				want = append(want, two.ID)
			}
			awaitEverySecond(t, time.Minute, "node-2 is "+step.name, func() bool {
				targets := p.onlyLoadBalancer(t).Targets
				return len(targets) == len(want) && targets[0].Instance == one.ID
			})
			time.Sleep(time.Minute) // wait, so that upstream does not write its cache while the test reads the cache
		}
	})
}
