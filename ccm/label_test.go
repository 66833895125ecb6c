package ccm_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// When the labels of an instance change, the CCM changes the labels of its
// Node. It keeps labels that a person added to the Node, and labels of
// Kubernetes.
func TestNodeLabelsFollowInstance(t *testing.T) {
	r := newRig(t)
	i, err := r.cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{
		Name: "node-1", Zone: "sim-1a", Type: "small",
		Labels: map[string]string{"team": "red", "tier": "cloud's", "topology.kubernetes.io/zone": "elsewhere"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.startMirror(t)
	n := initializedNode(i)
	n.Labels = map[string]string{"topology.kubernetes.io/zone": "sim-1a", "tier": "person's", "mine": "yes", "node-restriction.kubernetes.io/tenant": "a"}
	// A kubelet may write annotations of its own Node. But Kubernetes does not let the kubelet
	// write labels with the prefix node-restriction.kubernetes.io to this Node. The kubelet could
	// add such a label to the annotation that lists the labels of the CCM. The CCM must still keep
	// the label.
	n.Annotations = map[string]string{ccm.AnnotationNodeLabels: "node-restriction.kubernetes.io/tenant,topology.kubernetes.io/zone"}
	kube := fake.NewClientset(n)
	step := func(when string, want map[string]string) {
		t.Helper()
		now, err := kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.provider.SyncLabels(t.Context(), kube, now); err != nil {
			t.Fatal(err)
		}
		if now, err = kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, now.Labels); d != "" {
			t.Errorf("labels %s (-want +got):\n%s", when, d)
		}
	}
	own := map[string]string{"topology.kubernetes.io/zone": "sim-1a", "tier": "person's", "mine": "yes", "node-restriction.kubernetes.io/tenant": "a"}
	with := func(more ...string) map[string]string {
		all := map[string]string{}
		for k, v := range own {
			all[k] = v
		}
		for at := 0; at < len(more); at += 2 {
			all[more[at]] = more[at+1]
		}
		return all
	}
	step("at first", with("team", "red"))
	kube.ClearActions()
	step("without a change", with("team", "red"))
	for _, a := range kube.Actions() {
		if a.GetVerb() == "patch" {
			t.Error("the CCM patched the Node without a change")
		}
	}
	relabel := func(labels map[string]string) {
		t.Helper()
		if i, err = r.cloud.UpdateInstance(t.Context(), i.ID, cloudsim.UpdateInstance{Labels: labels}, 0); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "the mirror has the new labels", func() bool {
			m, ok := r.provider.MirroredInstance(i.ID)
			return ok && m.Revision == i.Revision
		})
	}
	relabel(map[string]string{"team": "blue", "new": "1"})
	step("after a changed and a new label", with("team", "blue", "new", "1"))
	relabel(map[string]string{"new": "1"})
	step("after a removed label", with("new", "1"))
}

func TestLabelSweepContinuesAfterError(t *testing.T) {
	r := newRig(t)
	var nodes []*v1.Node
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		i, err := r.cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small", Labels: map[string]string{"team": "red"}})
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, initializedNode(i))
	}
	r.startMirror(t)
	kube := fake.NewClientset(nodes[0], nodes[1], nodes[2])
	patched := map[string]bool{}
	kube.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := a.(clienttesting.PatchAction).GetName()
		if name == "node-2" {
			return true, nil, errors.New("a webhook says no")
		}
		patched[name] = true
		return false, nil, nil
	})
	if err := r.provider.SweepLabels(t.Context(), kube, nodes...); err == nil || !strings.Contains(err.Error(), "node-2") {
		t.Errorf("error of the sweep: got %v", err)
	}
	if len(patched) != 2 {
		t.Errorf("patched Nodes: got %v", patched)
	}
	clear(patched)
	nodes[0].Spec.ProviderID = "" // this Node does not belong to the cloud, although an instance has the same name
	if err := r.provider.SweepLabels(t.Context(), kube, nodes[0]); err != nil || len(patched) != 0 {
		t.Errorf("patched Nodes: got %v, %v", patched, err)
	}
}
