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

	"github.com/cloudsim-dev/allinone/internal/pause"
)

// AnnotationNodeLabels lists the labels of a Node that came from its instance,
// so that one which is gone from the instance goes from the Node, and one that a
// person put there stays.
const AnnotationNodeLabels = "cloudsim.dev/labels-from-instance"

// labelPeriod is how often nodes are compared; the mirror answers, so it costs
// the cloud nothing.
const labelPeriod = 30 * time.Second

// labeler keeps a Node's labels as its instance's are. Upstream's node
// controller writes them once, when it initialises the Node.
type labeler struct {
	log   *slog.Logger
	p     *Provider
	kube  kubernetes.Interface
	nodes corelisters.NodeLister
}

// run compares all nodes now and then until ctx ends.
func (l *labeler) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause.For(ctx, labelPeriod)
		if err := l.sweep(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("labels of nodes are not kept", "err", err)
		}
	}
}

func (l *labeler) sweep(ctx context.Context) error {
	nodes, err := l.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	var all []error
	for _, n := range nodes { // one that cannot be patched is alone with it
		if err := l.sync(ctx, n); err != nil {
			all = append(all, fmt.Errorf("node %q: %w", n.Name, err))
		}
	}
	return errors.Join(all...)
}

// sync patches one Node if its labels differ. Only the mirror is asked: where it
// does not know, the next round may.
func (l *labeler) sync(ctx context.Context, n *v1.Node) error {
	if n.Spec.ProviderID == "" || awaitsCloud(n) { // not the cloud's, whatever it is called; or not yet
		return nil
	}
	i, ok := l.p.instances.mirrored(n)
	if !ok {
		return nil
	}
	want := nodeLabels(i)
	maps.DeleteFunc(want, func(k, _ string) bool { return reserved(k) })
	had := map[string]bool{} // never what is reserved: a node may write its own annotations, and not all of its labels
	for k := range strings.SplitSeq(n.Annotations[AnnotationNodeLabels], ",") {
		had[k] = !reserved(k) && len(validation.IsQualifiedName(k)) == 0
	}
	change := map[string]any{} // null removes
	for k, v := range want {
		if have, there := n.Labels[k]; !there || had[k] && have != v {
			change[k] = v
		} else if have != v {
			delete(want, k) // a person's, who was first
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

// reserved are the labels that are Kubernetes' own to give.
func reserved(key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return ok && (prefix == "kubernetes.io" || prefix == "k8s.io" || strings.HasSuffix(prefix, ".kubernetes.io") || strings.HasSuffix(prefix, ".k8s.io"))
}
