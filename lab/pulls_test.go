package lab

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/cloudsim-dev/allinone/internal/eventually"
	"github.com/cloudsim-dev/allinone/lab/real"
)

// A pod gets one event for each image that its node cannot pull. The event contains the command
// that loads the image, and the URL of the image's mirror. Images of the cloud's registry get no
// event.
func TestPullAdvice(t *testing.T) {
	waiting := func(name, image, reason string, policy corev1.PullPolicy) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image, ImagePullPolicy: policy}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", Image: image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
			}}},
		}
	}
	debug := waiting("debug", "web:v1", "ContainerCreating", corev1.PullIfNotPresent)
	debug.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", ImagePullPolicy: corev1.PullAlways}}}
	debug.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{
		Name: "debugger", Image: "tools", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
	}}
	kube := fake.NewClientset(
		debug,
		waiting("always", "web", "ImagePullBackOff", corev1.PullAlways),
		waiting("missing", "web:v2", "ErrImagePull", corev1.PullIfNotPresent),
		waiting("mirrored", "ghcr.io/web:v1", "ErrImagePull", corev1.PullIfNotPresent),
		waiting("private", "10.100.255.2:5000/team-a/web:v1", "ErrImagePull", corev1.PullIfNotPresent),
		waiting("alias", "000000000001.dkr.ecr.sim-1.amazonaws.com/web:v1", "ErrImagePull", corev1.PullIfNotPresent),
		waiting("starting", "web:v1", "ContainerCreating", corev1.PullAlways),
	)
	a := PullAdvice{Kube: kube, Log: slog.New(slog.DiscardHandler), Registries: []string{"10.100.255.2:5000", "000000000001.dkr.ecr.sim-1.amazonaws.com"},
		Mirrors: []real.Mirror{{Host: "ghcr.io", URL: "http://mirror"}},
		Load:    func(image string) string { return "load " + image }}
	stop, err := a.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	want := []string{
		"always: The node cannot pull the image web, and imagePullPolicy is Always. To use an image of your computer, set imagePullPolicy to IfNotPresent, and load the image: load web",
		"debug: The node cannot pull the image tools, and imagePullPolicy is Always. To use an image of your computer, set imagePullPolicy to IfNotPresent, and load the image: load tools",
		"mirrored: The node does not have the image ghcr.io/web:v1 and cannot pull it. Check that the mirror http://mirror runs and has the image. If your computer has the image, load it: load ghcr.io/web:v1",
		"missing: The node does not have the image web:v2 and cannot pull it. If your computer has the image, load it: load web:v2",
	}
	same := func() string {
		events, err := kube.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var got []string
		for _, e := range events.Items {
			got = append(got, e.InvolvedObject.Name+": "+e.Message)
		}
		slices.Sort(got)
		return cmp.Diff(want, got)
	}
	eventually.Empty(t, same)

	// If the status of a pod changes, the pod gets no second event for the same image. A new pod
	// gets an event.
	pods := kube.CoreV1().Pods("default")
	_, err1 := pods.Update(t.Context(), waiting("missing", "web:v2", "ImagePullBackOff", corev1.PullIfNotPresent), metav1.UpdateOptions{})
	_, err2 := pods.Create(t.Context(), waiting("never", "web:v3", "ErrImageNeverPull", corev1.PullNever), metav1.CreateOptions{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	want = append(want, "never: The node does not have the image web:v3, and imagePullPolicy is Never. If your computer has the image, load it: load web:v3")
	eventually.Empty(t, same)

	a.Internet = Internet{Off: "this host has no default route"}
	now := a.event(waiting("offline", "web:v1", "", ""), corev1.ContainerStatus{Image: "web:v1"}).Message
	if want := "The node does not have the image web:v1 and cannot pull it. The machines have no internet access: this host has no default route. If your computer has the image, load it: load web:v1"; now != want {
		t.Errorf("got %q, want %q", now, want)
	}
}
