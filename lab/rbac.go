package lab

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

//go:embed rbac.yaml
var rbacObjects []byte

// applyRBAC makes the roles of rbac.yaml what that file says. It is run each
// time the API server becomes ready, before anybody who needs them starts: a
// component that begins with "forbidden" backs off for seconds.
func (p *plan) applyRBAC(ctx context.Context) error {
	k, err := p.kubernetes()
	if err != nil {
		return err
	}
	for _, doc := range bytes.Split(rbacObjects, []byte("\n---\n")) {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return fmt.Errorf("rbac.yaml: %w", err)
		}
		apply := func(ctx context.Context) error {
			return k.RbacV1().RESTClient().Patch(types.ApplyYAMLPatchType).
				NamespaceIfScoped(o.Namespace, o.Namespace != "").
				Resource(strings.ToLower(o.Kind)+"s").Name(o.Name).
				Param("fieldManager", "cloudsim").Param("force", "true").
				Body(doc).Do(ctx).Error()
		}
		if err := insist(ctx, apply); err != nil {
			return fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
		}
	}
	return nil
}

// insist repeats what a new API server may refuse for a moment: namespaces
// like kube-node-lease are made a little after it is ready.
func insist(ctx context.Context, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil || !apierrors.IsNotFound(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsServiceUnavailable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
