package lab

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
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
	crds := ""
	if p.hasVolumes() {
		crds = filepath.Join(p.CSIDir, "crds")
	}
	return furnishReal(ctx, k, crds, p.ServeAs, pulls[node.RBACFile])
}

// furnishReal adds what real machines take: a name server, the right to pull
// images, and volumes, unless crds is "".
func furnishReal(ctx context.Context, k *kubernetes.Clientset, crds string, serveAs []string, pulls []byte) error {
	if crds != "" {
		if err := furnishVolumes(ctx, k, crds, serveAs); err != nil {
			return err
		}
	}
	return errors.Join(apply(ctx, k, dnsObjects), apply(ctx, k, pulls))
}

// apply makes the objects of a file what it says.
func apply(ctx context.Context, k *kubernetes.Clientset, file []byte) error {
	for _, doc := range bytes.Split(file, []byte("\n---\n")) {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return fmt.Errorf("an object to apply: %w", err)
		}
		if o.Kind == "" { // a comment
			continue
		}
		apply := func(ctx context.Context) error {
			return k.Discovery().RESTClient().Patch(types.ApplyYAMLPatchType).
				AbsPath(pathOf(o)).
				Param("fieldManager", "cloudsim").Param("force", "true").
				Body(doc).Do(ctx).Error()
		}
		if err := insist(ctx, apply); err != nil {
			return fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
		}
	}
	return nil
}

// pathOf is where the API server has an object.
func pathOf(o metav1.PartialObjectMetadata) string {
	elem := []string{"apis", o.APIVersion}
	if o.APIVersion == "v1" {
		elem[0] = "api"
	}
	if o.Namespace != "" {
		elem = append(elem, "namespaces", o.Namespace)
	}
	plural := strings.ToLower(o.Kind) + "s"
	if strings.HasSuffix(o.Kind, "s") {
		plural = strings.ToLower(o.Kind) + "es"
	}
	return "/" + strings.Join(append(elem, plural, o.Name), "/")
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
