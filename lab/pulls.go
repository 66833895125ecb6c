package lab

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/cloudsim-dev/allinone/lab/real"
)

// PullAdvice creates an event for each image that a pod needs and that the pod's node cannot pull.
// The event says how the user loads the image. `kubectl describe pod` prints this event after the
// kubelet's event, which contains the cause.
type PullAdvice struct {
	Kube kubernetes.Interface
	Log  *slog.Logger
	// Registries lists the names of the cloud's registry. PullAdvice creates no event for an image
	// of this registry, because the registry's own error explains the cause.
	Registries []string
	// Internet and Mirrors are the machines' settings for image pulls. If the imagePullPolicy is
	// Never, the event does not mention these settings. Otherwise the event contains the URLs of
	// the image's mirrors. If machines have no internet access, the event also contains the
	// reason from Internet.Off.
	Internet Internet
	Mirrors  []real.Mirror
	// Load returns the command that loads an image.
	Load func(image string) string
}

// Start watches the pods until ctx ends or the caller calls stop. The caller must call stop, which
// waits until the watch has ended.
func (a PullAdvice) Start(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactory(a.Kube, 0)
	check := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			a.check(ctx, pod)
		}
	}
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: check, UpdateFunc: func(_, now any) { check(now) },
	})
	if err != nil {
		cancel()
		return nil, err
	}
	factory.StartWithContext(ctx)
	return func() { cancel(); factory.Shutdown() }, nil
}

// errImageNeverPull is the kubelet's reason for a waiting container that lacks its image and has
// the imagePullPolicy Never.
const errImageNeverPull = "ErrImageNeverPull"

// notPulled lists the kubelet's reasons for a waiting container that lacks its image.
var notPulled = []string{"ErrImagePull", "ImagePullBackOff", errImageNeverPull}

func (a PullAdvice) check(ctx context.Context, pod *corev1.Pod) {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		host, _, _ := strings.Cut(c.Image, "/")
		if c.State.Waiting == nil || !slices.Contains(notPulled, c.State.Waiting.Reason) || slices.Contains(a.Registries, host) {
			continue
		}
		_, err := a.Kube.CoreV1().Events(pod.Namespace).Create(ctx, a.event(pod, c), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
			a.Log.Warn("event about an image not created", "pod", pod.Namespace+"/"+pod.Name, "image", c.Image, "err", err)
		}
	}
}

// event returns the event for the image of a container. The name of the event depends only on the
// pod and the image, so the API server refuses a second event for the same pod and image.
func (a PullAdvice) event(pod *corev1.Pod, c corev1.ContainerStatus) *corev1.Event {
	problem, remedy := "The node does not have the image %s and cannot pull it.", "If your computer has the image, load it: %s"
	always := func(s corev1.Container) bool { return s.Name == c.Name && s.ImagePullPolicy == corev1.PullAlways }
	alwaysEphemeral := func(s corev1.EphemeralContainer) bool { return always(corev1.Container(s.EphemeralContainerCommon)) }
	if slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), always) || slices.ContainsFunc(pod.Spec.EphemeralContainers, alwaysEphemeral) {
		problem = "The node cannot pull the image %s, and imagePullPolicy is Always."
		remedy = "To use an image of your computer, set imagePullPolicy to IfNotPresent, and load the image: %s"
	}
	neverPulls := c.State.Waiting != nil && c.State.Waiting.Reason == errImageNeverPull
	if neverPulls {
		problem = "The node does not have the image %s, and imagePullPolicy is Never."
	}
	message := []string{fmt.Sprintf(problem, c.Image)}
	if a.Internet.Off != "" && !neverPulls {
		message = append(message, "The "+a.Internet.String()+".")
	}
	for _, m := range a.Mirrors {
		if m.Serves(c.Image) && !neverPulls {
			message = append(message, fmt.Sprintf("Check that the mirror %s runs and has the image.", m.URL))
		}
	}
	message = append(message, fmt.Sprintf(remedy, a.Load(c.Image)))
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "image-" + Hash(string(pod.UID)+c.Image)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		},
		Type: corev1.EventTypeWarning, Reason: "ImageNotLoaded",
		Message: strings.Join(message, " "),
		Source:  corev1.EventSource{Component: HypervisorAgent}, ReportingController: HypervisorAgent,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}
