package lab

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/credprovider/node"
)

//go:embed rbac.yaml
var rbacObjects []byte

//go:embed dns.yaml
var dnsObjects []byte

// furnish puts into the cluster what it needs to begin with. It is run each
// time the API server becomes ready, before anybody who needs the roles starts:
// a component that begins with "forbidden" backs off for seconds. On hollow
// nodes nothing would answer as a name server.
func (p *plan) furnish(ctx context.Context) error {
	k, err := p.kubernetes()
	if err != nil {
		return err
	}
	if err := apply(ctx, k, rbacObjects); err != nil || p.Nodes != Real {
		return err
	}
	pulls, err := p.registryFiles()
	if err != nil {
		return err
	}
	return errors.Join(apply(ctx, k, dnsObjects), apply(ctx, k, pulls[node.RBACFile]))
}

// apply makes the objects of a file what it says.
func apply(ctx context.Context, k *kubernetes.Clientset, file []byte) error {
	groups := map[string]rest.Interface{
		"v1": k.CoreV1().RESTClient(), "apps/v1": k.AppsV1().RESTClient(), "rbac.authorization.k8s.io/v1": k.RbacV1().RESTClient(),
	}
	for _, doc := range bytes.Split(file, []byte("\n---\n")) {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return fmt.Errorf("an object to apply: %w", err)
		}
		apply := func(ctx context.Context) error {
			return groups[o.APIVersion].Patch(types.ApplyYAMLPatchType).
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
