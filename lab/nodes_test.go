package lab

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// A node serves when pods can be placed on it: a lab that is ready sooner has
// what is deployed at once on fewer nodes.
func TestNotServing(t *testing.T) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	for name, tc := range map[string]struct {
		conditions []corev1.NodeCondition
		taints     []corev1.Taint
		want       string
	}{
		"it serves":       {[]corev1.NodeCondition{ready}, nil, ""},
		"no kubelet yet":  {nil, nil, "is not Ready"},
		"not initialised": {[]corev1.NodeCondition{ready}, []corev1.Taint{{Key: uninitializedTaint, Effect: corev1.TaintEffectNoSchedule}}, "is not initialised"},
		"not known to be": {[]corev1.NodeCondition{ready}, []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}, "is Ready and not given pods yet"},
		"evicted no more": {[]corev1.NodeCondition{ready}, []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}, ""}, // every pod tolerates it
		"cordoned":        {[]corev1.NodeCondition{ready}, []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}, ""},
	} {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "id", Taints: tc.taints}, Status: corev1.NodeStatus{Conditions: tc.conditions}}
		if got := notServing(map[string]corev1.Node{"id": n}, cloudsim.Instance{ProviderID: "id"}); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := notServing(nil, cloudsim.Instance{ProviderID: "id"}); got == "" {
		t.Error("an instance without a node serves")
	}
}
