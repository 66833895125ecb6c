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

// installAddons applies the objects that the cluster needs at its start. It runs each time the
// API server becomes ready, before the components that need the roles start. If the
// API server forbids a component's first request, the component backs off for seconds.
// Only real nodes get a name server, because hollow nodes run no containers.
func (p *plan) installAddons(ctx context.Context) error {
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
	return installRealAddons(ctx, k, crds, p.ServeAs, pulls[node.RBACFile])
}

// installRealAddons applies the objects for real machines: a name server, the permission to
// pull images, and volumes. An empty crds means no volumes.
func installRealAddons(ctx context.Context, k *kubernetes.Clientset, crds string, serveAs []string, pulls []byte) error {
	if crds != "" {
		if err := installVolumeAddons(ctx, k, crds, serveAs); err != nil {
			return err
		}
	}
	return errors.Join(apply(ctx, k, dnsObjects), apply(ctx, k, pulls))
}

// apply applies the objects of a YAML file with server-side apply.
func apply(ctx context.Context, k *kubernetes.Clientset, file []byte) error {
	for _, doc := range bytes.Split(file, []byte("\n---\n")) {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return fmt.Errorf("an object to apply: %w", err)
		}
		if o.Kind == "" { // the document contains only comments
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

// pathOf returns the API path of an object.
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

// insist retries f on errors that a new API server may return for a moment. For example,
// namespaces like kube-node-lease are created a little after the server is ready.
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
