package hollow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// bind creates a pod with a node in its spec, as if the scheduler
// had chosen this node.
func (b *bench) bind(name, node string) {
	b.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:    node,
			Containers:  []corev1.Container{{Name: "c", Image: "example.com/c"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	if _, err := b.kube.CoreV1().Pods("default").Create(b.Context(), p, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) podReady(name string) (*corev1.Pod, bool) {
	b.Helper()
	p, err := b.kube.CoreV1().Pods("default").Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return p, c.Status == corev1.ConditionTrue
		}
	}
	return p, false
}

func (b *bench) awaitPod(name string) *corev1.Pod {
	b.Helper()
	var p *corev1.Pod
	b.await("pod "+name+" is Ready", func() error {
		got, ok := b.podReady(name)
		if !ok {
			return fmt.Errorf("the status of the pod is %+v", got.Status)
		}
		p = got
		return nil
	})
	return p
}

// Kwok runs pods while their machine is on. While the machine is off, kwok does not change the
// machine's pods. When the machine is back, kwok makes the pods Ready again.
func TestPodsFollowPower(t *testing.T) {
	b := newBench(t)
	one, _ := b.createNodes()
	b.bind("early", "one")
	ip := b.awaitPod("early").Status.PodIP
	if ip == "" {
		t.Error("a running pod has no address")
	}

	b.callVerb(b.cloud.StopInstance, one)
	b.awaitNode("one", "off", isOff)
	b.markNotReady("early") // as the node lifecycle controller does
	b.bind("late", "one")
	b.bind("other", "two")
	b.awaitPod("other")
	for _, name := range []string{"early", "late"} {
		if _, ok := b.podReady(name); ok {
			t.Errorf("pod %s is Ready on a stopped machine", name)
		}
	}

	b.callVerb(b.cloud.StartInstance, one)
	b.awaitPod("late")
	if got := b.awaitPod("early").Status.PodIP; got != ip {
		t.Errorf("the pod has the address %s after the restart, and had %s", got, ip)
	}
	if err := b.kube.CoreV1().Pods("default").Delete(b.Context(), "early", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.await("a deleted pod disappears", func() error {
		list, err := b.kube.CoreV1().Pods("default").List(b.Context(), metav1.ListOptions{FieldSelector: "metadata.name=early"})
		if err == nil && len(list.Items) != 0 {
			err = errors.New("it is there")
		}
		return err
	})
}

// Two pods of a node never have equal addresses, even after a restart of the
// hypervisor. If no address is free, a new pod waits until another pod is gone.
func TestPodAddresses(t *testing.T) {
	b := newBench(t)
	b.createNodes()
	have := map[string]string{} // pod name by address
	for _, name := range []string{"a", "b", "c", "d"} {
		b.bind(name, "one")
	}
	await := func(name string) *corev1.Pod {
		p := b.awaitPod(name)
		if len(p.Status.PodIPs) != 2 || p.Status.PodIPs[0].IP != p.Status.PodIP {
			t.Errorf("pod %s: got podIPs %v and podIP %s, want two addresses, the first equal to podIP", name, p.Status.PodIPs, p.Status.PodIP)
		}
		for _, ip := range p.Status.PodIPs {
			if other, taken := have[ip.IP]; taken {
				t.Errorf("%s is the address of %s and of %s", ip.IP, other, name)
			}
			have[ip.IP] = name
		}
		return p
	}
	var first *corev1.Pod
	for _, name := range []string{"d", "c", "b", "a"} {
		first = await(name)
	}
	b.stop()
	b.bind("e", "one")
	b.bind("f", "one")
	b.start(b.cloud)
	b.await("five of six pods have an address", func() error {
		if n := b.log.count("no address is free", `"node":"one"`); n == 0 {
			return errors.New("the log does not say that no address is free")
		}
		return nil
	})
	if err := b.kube.CoreV1().Pods("default").Delete(b.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	delete(have, first.Status.PodIP)
	await("e")
	await("f")
}

func (b *bench) markNotReady(pod string) {
	b.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": "Ready", "status": "False", "lastTransitionTime": metav1.Now()},
	}}})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.kube.CoreV1().Pods("default").Patch(b.Context(), pod, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		b.Fatal(err)
	}
}
