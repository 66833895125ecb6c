package ccm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// AnnotationNodeLabels is the annotation with the keys of the labels that the CCM copied from the
// instance to its Node. When the instance loses one of these labels, the CCM deletes the label from
// the Node. The CCM keeps labels that a person added.
const AnnotationNodeLabels = "cloudsim.dev/labels-from-instance"

// labelPeriod is the time between two rounds of the labeler. In each round the CCM compares the
// labels of all Nodes with the labels of their instances. The CCM reads the instances from the
// mirror, a local copy, so the comparison needs no calls to the cloud.
//
// The period must be short. Upstream copies the labels of an instance to a new Node, but only the
// next round writes the keys of these labels to AnnotationNodeLabels. If a label of the instance
// changes before this round, AnnotationNodeLabels does not contain the key of the label. The CCM
// therefore assumes that a person set the label on the Node, and keeps the old value.
const labelPeriod = 2 * time.Second

// labeler copies changed labels of instances to their Nodes. Upstream's node
// controller copies these labels only once, when it initializes the Node.
type labeler struct {
	log   *slog.Logger
	p     *Provider
	kube  kubernetes.Interface
	nodes corelisters.NodeLister
}

func (l *labeler) run(ctx context.Context) {
	for logged := ""; ctx.Err() == nil; { // logged is the error of the last round, which is logged only once
		backoff.Sleep(ctx, labelPeriod)
		failure := ""
		if err := l.sweep(ctx); err != nil {
			failure = err.Error()
		}
		if failure != "" && failure != logged && ctx.Err() == nil {
			l.log.Warn("labels of nodes not synchronized; retrying", "err", failure)
		}
		logged = failure
	}
}

func (l *labeler) sweep(ctx context.Context) error {
	nodes, err := l.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	var all []error
	for _, n := range nodes { // after an error for one Node, continue with the other Nodes
		if err := l.sync(ctx, n); err != nil {
			all = append(all, fmt.Errorf("node %q: %w", n.Name, err))
		}
	}
	return errors.Join(all...)
}

// sync patches a Node if its labels differ from the labels of its instance. It
// reads the instance only from the mirror. If the mirror does not have the
// instance, the method does nothing, and a later round tries again.
func (l *labeler) sync(ctx context.Context, n *v1.Node) error {
	if n.Spec.ProviderID == "" || awaitsCloud(n) { // the Node is not initialized yet, or it does not belong to this cloud, even if an instance has the same name
		return nil
	}
	i, ok := l.p.instances.fromMirror(n)
	if !ok {
		return nil
	}
	want := nodeLabels(i)
	maps.DeleteFunc(want, func(k, _ string) bool { return isReserved(k) })
	had := map[string]bool{} // the keys in the annotation. The value is false if the CCM must not delete or change the label. A kubelet may write the annotation of its Node, so the value is false for reserved labels
	for k := range strings.SplitSeq(n.Annotations[AnnotationNodeLabels], ",") {
		had[k] = !isReserved(k) && len(validation.IsQualifiedName(k)) == 0
	}
	change := map[string]any{} // null in the patch deletes a label
	for k, v := range want {
		if have, found := n.Labels[k]; !found || had[k] && have != v {
			change[k] = v
		} else if have != v {
			delete(want, k) // the CCM did not copy this label from the instance, so a person set it
		}
	}
	for k, managed := range had {
		if _, wanted := want[k]; managed && !wanted {
			if _, exists := n.Labels[k]; exists {
				change[k] = nil
			}
		}
	}
	list := strings.Join(slices.Sorted(maps.Keys(want)), ",")
	if len(change) == 0 && list == n.Annotations[AnnotationNodeLabels] {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": change, "annotations": map[string]string{AnnotationNodeLabels: list},
	}})
	if err != nil {
		return err
	}
	_, err = l.kube.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// isReserved reports whether only Kubernetes itself may set a label with the
// given key.
func isReserved(key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return ok && (prefix == "kubernetes.io" || prefix == "k8s.io" || strings.HasSuffix(prefix, ".kubernetes.io") || strings.HasSuffix(prefix, ".k8s.io"))
}
