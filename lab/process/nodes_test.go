package process

import (
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// A node counts as serving only when the scheduler can place pods on it. If a
// lab reported Ready before all nodes serve, the scheduler would place the
// user's first pods on only some of the nodes.
func TestNotServing(t *testing.T) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	for name, tc := range map[string]struct {
		conditions []corev1.NodeCondition
		taints     []corev1.Taint
		want       string
	}{
		"Ready":                          {[]corev1.NodeCondition{ready}, nil, ""},
		"no report of a kubelet":         {nil, nil, "no kubelet has reported yet"},
		"uninitialized taint":            {[]corev1.NodeCondition{ready}, []corev1.Taint{{Key: uninitializedTaint, Effect: corev1.TaintEffectNoSchedule}}, "the cloud controller manager has not initialized the Node"},
		"Ready with the taint not-ready": {[]corev1.NodeCondition{ready}, []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}, "the Node is Ready, but does not accept pods yet"},
		"Ready with the taint not-ready:NoExecute only": {[]corev1.NodeCondition{ready}, []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}, ""}, // every pod tolerates this taint
		"not Ready": {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady"}}, nil, "the condition Ready is False: KubeletNotReady"},
		"cordoned":  {[]corev1.NodeCondition{ready}, []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}, ""},
	} {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "id", Taints: tc.taints}, Status: corev1.NodeStatus{Conditions: tc.conditions}}
		if got := notServing(map[string]corev1.Node{name: n}, cloudsim.Instance{Meta: cloudsim.Meta{Name: name}, ProviderID: "id"}); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := notServing(nil, cloudsim.Instance{ProviderID: "id"}); got == "" {
		t.Error("an instance without a Node counts as ready")
	}
}

// reportNodes counts the instances that should run, and groups them by the reason why their nodes
// are not Ready. If the condition Ready and the Lease of a node are from an earlier run of the lab,
// the node counts as not Ready.
func TestReportNodes(t *testing.T) {
	cloud := cloudtest.Start(t)
	ctx, began := t.Context(), time.Now()
	kube := fake.NewClientset()
	register := func(i cloudsim.Instance, ready corev1.ConditionStatus, reason string, renewed, heartbeat time.Time) {
		t.Helper()
		_, err1 := kube.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: i.Name}, Spec: corev1.NodeSpec{ProviderID: i.ProviderID},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: reason, LastHeartbeatTime: metav1.NewTime(heartbeat)}}},
		}, metav1.CreateOptions{})
		_, err2 := kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: i.Name}, Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}},
		}, metav1.CreateOptions{})
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
	}
	const unknown = 5
	before, after := began.Add(-time.Second), began.Add(time.Second)
	for n := range 10 {
		i, err := cloud.CreateInstance(ctx, cloudsim.CreateInstance{Name: fmt.Sprint("node-", n), Zone: "sim-1a", Type: "small"})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case n < unknown:
			register(i, corev1.ConditionUnknown, "NodeStatusUnknown", after, before)
		case n == 5:
			register(i, corev1.ConditionTrue, "KubeletReady", before, before)
		case n == 6: // no Node
		case n == 7:
			if _, err := cloud.StopInstance(ctx, i.ID); err != nil {
				t.Fatal(err)
			}
		case n == 8: // a kwok has renewed the Lease
			register(i, corev1.ConditionTrue, "KubeletReady", after, before)
		default: // a kubelet has written the condition, but not yet its Lease
			register(i, corev1.ConditionTrue, "KubeletReady", before, after)
		}
	}
	got, err := reportNodes(ctx, kube, cloud, began)
	if err != nil {
		t.Fatal(err)
	}
	want := "2 of 9 nodes are Ready; not Ready: 5 × the condition Ready is Unknown: NodeStatusUnknown (node-0, node-1, node-2, …), 2 × no Node with the instance's provider id has reported since the start of the lab (node-5, node-6)"
	if got.String() != want || got.AllReady() {
		t.Errorf("%s, all ready %t; want %s", got, got.AllReady(), want)
	}
}
