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

// AnnotationNodeLabels lists the labels of a Node that came from its instance.
// The CCM deletes such a label when the instance no longer has it. The CCM keeps
// a label that a person added.
const AnnotationNodeLabels = "cloudsim.dev/labels-from-instance"

// labelPeriod is how often the CCM compares the labels of all Nodes. It reads the
// instances from the mirror, so the comparison needs no calls to the cloud.
const labelPeriod = 30 * time.Second

// labeler keeps the labels of Nodes equal to those of their instances. Upstream's
// node controller writes these labels only once, when it initialises the Node.
type labeler struct {
	log   *slog.Logger
	p     *Provider
	kube  kubernetes.Interface
	nodes corelisters.NodeLister
}

// run compares all Nodes periodically until ctx ends.
func (l *labeler) run(ctx context.Context) {
	for ctx.Err() == nil {
		backoff.Sleep(ctx, labelPeriod)
		if err := l.sweep(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("labels of nodes not synchronized", "err", err)
		}
	}
}

func (l *labeler) sweep(ctx context.Context) error {
	nodes, err := l.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	var all []error
	for _, n := range nodes { // an error for one Node does not stop the others
		if err := l.sync(ctx, n); err != nil {
			all = append(all, fmt.Errorf("node %q: %w", n.Name, err))
		}
	}
	return errors.Join(all...)
}

// sync patches a Node if its labels differ from those of its instance. It uses
// only the mirror. If the mirror does not have the instance, a later round may
// succeed.
func (l *labeler) sync(ctx context.Context, n *v1.Node) error {
	if n.Spec.ProviderID == "" || awaitsCloud(n) { // not a Node of this cloud, even if the name matches, or not initialised yet
		return nil
	}
	i, ok := l.p.instances.mirrored(n)
	if !ok {
		return nil
	}
	want := nodeLabels(i)
	maps.DeleteFunc(want, func(k, _ string) bool { return reserved(k) })
	had := map[string]bool{} // excludes reserved labels: a node may write its own annotations, but not all of its labels
	for k := range strings.SplitSeq(n.Annotations[AnnotationNodeLabels], ",") {
		had[k] = !reserved(k) && len(validation.IsQualifiedName(k)) == 0
	}
	change := map[string]any{} // null in the patch deletes a label
	for k, v := range want {
		if have, there := n.Labels[k]; !there || had[k] && have != v {
			change[k] = v
		} else if have != v {
			delete(want, k) // a person set this label first
		}
	}
	for k, ours := range had {
		if _, still := want[k]; ours && !still {
			if _, there := n.Labels[k]; there {
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

// reserved reports whether only Kubernetes itself may set a label with this key.
func reserved(key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return ok && (prefix == "kubernetes.io" || prefix == "k8s.io" || strings.HasSuffix(prefix, ".kubernetes.io") || strings.HasSuffix(prefix, ".k8s.io"))
}
