// Package node generates the files that a kubelet needs to run the image
// credential provider: the kubelet's configuration, the plugin's configuration,
// and an RBAC role. It returns the contents and writes no files. It is separate
// from the plugin, so that the plugin does not need a YAML library.
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

// Plugin is the file name of the program that the kubelet runs.
const Plugin = "allinone-credprovider"

// These are the names of the files.
const (
	KubeletFile = "kubelet.yaml"      // for --image-credential-provider-config
	PluginFile  = "credprovider.json" // for the plugin
	RBACFile    = "rbac.yaml"         // for the cluster
)

// Config describes how nodes authenticate image pulls.
type Config struct {
	credprovider.Config
	// Dir is the directory of the files on nodes.
	Dir string
	// Audience is the audience of service account tokens. If it is empty, the
	// kubelet requests no tokens and pods pull as their node. If it is set and
	// OptInAnnotation is empty, every pod pulls as its service account.
	Audience string
	// Optional allows pods without a service account, such as static pods, to
	// pull as their node.
	Optional bool
}

// Files returns the contents by file name. It omits RBACFile if Audience is
// empty.
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
		// The cache type Token prevents the reuse of an answer for another
		// service account. With an opt-in annotation the kubelet asks for each
		// account.
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

// rbac returns a role that allows kubelets to request tokens with this audience.
// Since Kubernetes 1.33 the API server refuses such requests otherwise.
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
