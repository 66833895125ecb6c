// Package node makes what a kubelet needs to run the image credential provider:
// its own configuration, the plugin's, and a role. It is no part of the plugin,
// so that the plugin starts without a YAML library, and it writes no files.
package node

import (
	"encoding/json"
	"errors"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1 "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/credprovider"
	"github.com/cloudsim-dev/allinone/credprovider/doctor"
)

// Plugin is the name of the file that the kubelet runs.
const Plugin = "allinone-credprovider"

// Names of the files.
const (
	KubeletFile = "kubelet.yaml"      // for --image-credential-provider-config
	PluginFile  = "credprovider.json" // the plugin's own
	RBACFile    = "rbac.yaml"         // for the cluster
)

// Config says how nodes pull.
type Config struct {
	credprovider.Config
	// Dir is where nodes have the files.
	Dir string
	// Audience is what the tokens of pods' service accounts are for; "" never
	// asks for them: pods pull as their node. With it and without
	// OptInAnnotation every pod pulls as its service account.
	Audience string
	// Optional lets pods without a service account, such as static ones, pull
	// as their node.
	Optional bool
}

// Files are the contents by name. There is no RBACFile without an Audience.
func (c Config) Files() (map[string][]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Audience == "" && (c.OptInAnnotation != "" || c.Optional) {
		return nil, errors.New("an annotation to opt in by, and pods without a service account, are for tokens of service accounts: they need an audience")
	}
	own, err := json.MarshalIndent(c.Config, "", "  ")
	if err != nil {
		return nil, err
	}
	p := kubeletv1.CredentialProvider{
		Name: Plugin, APIVersion: credprovider.APIVersion, MatchImages: c.Registries, DefaultCacheDuration: &metav1.Duration{},
		Args: []string{"--config=" + path.Join(c.Dir, PluginFile)},
	}
	if c.Audience != "" {
		// The kubelet knows no answer of one account for another: an opt-in is
		// asked again for each.
		p.TokenAttributes = &kubeletv1.ServiceAccountTokenAttributes{
			ServiceAccountTokenAudience: c.Audience,
			CacheType:                   kubeletv1.TokenServiceAccountTokenCacheType,
			RequireServiceAccount:       new(!c.Optional),
		}
		if c.OptInAnnotation != "" {
			p.TokenAttributes.OptionalServiceAccountAnnotationKeys = []string{c.OptInAnnotation}
		}
	}
	kubelet, err := yaml.Marshal(kubeletv1.CredentialProviderConfig{
		TypeMeta:  metav1.TypeMeta{APIVersion: doctor.ConfigVersion, Kind: "CredentialProviderConfig"},
		Providers: []kubeletv1.CredentialProvider{p},
	})
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{KubeletFile: kubelet, PluginFile: append(own, '\n')}
	if c.Audience != "" {
		if files[RBACFile], err = rbac(c.Audience); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// rbac lets kubelets ask for tokens for an audience, which the API server
// refuses otherwise since Kubernetes 1.33.
func rbac(audience string) ([]byte, error) {
	const group, name = "rbac.authorization.k8s.io", "cloudsim:credential-provider"
	meta := map[string]string{"name": name}
	role, err := yaml.Marshal(map[string]any{"apiVersion": group + "/v1", "kind": "ClusterRole", "metadata": meta, "rules": []any{map[string]any{
		"apiGroups": []string{""}, "resources": []string{audience}, "verbs": []string{"request-serviceaccounts-token-audience"},
	}}})
	if err != nil {
		return nil, err
	}
	binding, err := yaml.Marshal(map[string]any{"apiVersion": group + "/v1", "kind": "ClusterRoleBinding", "metadata": meta,
		"roleRef":  map[string]string{"apiGroup": group, "kind": "ClusterRole", "name": name},
		"subjects": []any{map[string]string{"apiGroup": group, "kind": "Group", "name": "system:nodes"}}})
	return append(append(role, "---\n"...), binding...), err
}
