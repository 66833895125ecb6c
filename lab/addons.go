package lab

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

//go:embed rbac.yaml
var rbacObjects []byte

//go:embed dns.yaml
var dnsText string

var dnsObjects = template.Must(template.New("dns.yaml").Parse(dnsText))

// InstallRoles applies the RBAC objects of the lab's components.
func InstallRoles(ctx context.Context, k *kubernetes.Clientset) error {
	return apply(ctx, k, rbacObjects)
}

// Addons holds the inputs of InstallRealAddons.
type Addons struct {
	CRDs       string     // folder with the CustomResourceDefinitions of snapshots; "" omits the objects for volumes
	ServeAs    []string   // legacy names of the CSI driver
	Pulls      []byte     // the permission to pull images, as YAML
	NameServer netip.Addr // resolves names outside the cluster; the zero value means none
}

// InstallRealAddons applies the objects that a cluster with real machines needs. The objects
// configure the name server, the permission to pull images, and volumes.
func InstallRealAddons(ctx context.Context, k *kubernetes.Clientset, a Addons) error {
	if a.CRDs != "" {
		if err := installVolumeAddons(ctx, k, a.CRDs, a.ServeAs); err != nil {
			return err
		}
	}
	var dns bytes.Buffer
	if err := dnsObjects.Execute(&dns, a); err != nil {
		return err
	}
	return errors.Join(apply(ctx, k, dns.Bytes()), apply(ctx, k, a.Pulls))
}

// apply applies the objects of a YAML file with server-side apply.
func apply(ctx context.Context, k *kubernetes.Clientset, file []byte) error {
	for _, doc := range bytes.Split(file, []byte("\n---\n")) {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return fmt.Errorf("decoding an object to apply: %w", err)
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
		if err := retryUntilServed(ctx, apply); err != nil {
			return fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
		}
	}
	return nil
}

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

// retryUntilServed repeats f after errors that an API server may return shortly after its start.
// For example, an API server reports that it is ready before it creates the namespace
// kube-node-lease. Until then, requests that create objects in this namespace fail.
func retryUntilServed(ctx context.Context, f func(context.Context) error) error {
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

//go:embed volumes.yaml
var volumeObjects []byte

// installVolumeAddons applies the CustomResourceDefinitions in the folder crds, and the storage
// classes. It also applies a CSIDriver object for each name in serveAs. These are names of legacy
// drivers under which the CSI driver also answers (KEP-625).
func installVolumeAddons(ctx context.Context, k *kubernetes.Clientset, crds string, serveAs []string) error {
	files, err := fs.Glob(os.DirFS(crds), "*.yaml") // in contrast to filepath.Glob, the path crds is not a pattern
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no CustomResourceDefinition (*.yaml) in %s: run 'make csi' again", crds)
	}
	slices.Sort(files)
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(crds, f))
		if err != nil {
			return err
		}
		if err := apply(ctx, k, raw); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	if err := apply(ctx, k, volumeObjects); err != nil {
		return err
	}
	for _, name := range serveAs {
		legacy := fmt.Sprintf("apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: %s}\nspec: {attachRequired: true, podInfoOnMount: false, fsGroupPolicy: File, seLinuxMount: true}\n", name)
		if err := apply(ctx, k, []byte(legacy)); err != nil {
			return err
		}
	}
	return nil
}

// VolumeDriver is the name of the CSI driver. If you change this name, also
// change it in the file volumes.yaml.
const VolumeDriver = "csi.cloudsim.dev"

// KwokConfig is the configuration of kwok. Its Stages tell kwok how to change nodes and pods.
//
//go:embed kwok.yaml
var KwokConfig []byte
