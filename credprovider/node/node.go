// Package node generates the files that a kubelet needs to run the image
// credential provider: the kubelet's configuration, the plugin's configuration,
// and an RBAC role. The method Config.Files returns the contents of these
// files, but writes no files. The plugin does not import this package, because
// the YAML library would make the start of the plugin slow.
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

// Plugin is the file name of this project's credential provider.
const Plugin = "allinone-credprovider"

// ECRPlugin is the file name of AWS's credential provider for ECR.
const ECRPlugin = "ecr-credential-provider"

// These are the names of the files that Config.Files returns.
const (
	KubeletFile = "kubelet.yaml"      // file of the kubelet's flag --image-credential-provider-config
	PluginFile  = "credprovider.json" // configuration of the plugin
	RBACFile    = "rbac.yaml"         // objects for the API server of the cluster
)

// Config describes the files for nodes. The embedded Config is the
// configuration of the plugin.
type Config struct {
	credprovider.Config
	// Dir is the folder on each node that contains KubeletFile and PluginFile.
	Dir string
	// Audience is the audience of the service account tokens that the kubelet
	// requests for the plugin. If Audience is empty, the kubelet requests no
	// tokens, and pods pull with the identity of their node. Otherwise, pods with
	// a service account pull with the identity of this account. The field
	// OptInAnnotation can limit this to some accounts.
	Audience string
	// If Optional is true, pods without a service account, for example static
	// pods, pull with the identity of their node. If Optional is false and
	// Audience is set, the kubelet does not run the plugin for these pods.
	Optional bool
	// ECR describes AWS's credential provider, which the kubelet runs for images
	// from ECR.Hosts. If ECR is nil, the kubelet does not run this provider.
	ECR *ECR
}

// ECR describes AWS's credential provider. The provider gets its credentials
// from the metadata service of the node.
type ECR struct {
	URL   string   // URL of the server that translates the API of AWS (the dialect aws)
	Hosts []string // host names of the registry in image names
}

// provider returns the configuration of AWS's credential provider for the
// kubelet. The default cache duration is 0, because each answer of this
// provider contains its own cache duration.
func (e ECR) provider() kubeletv1.CredentialProvider {
	return kubeletv1.CredentialProvider{
		Name: ECRPlugin, APIVersion: credprovider.APIVersion, MatchImages: e.Hosts, DefaultCacheDuration: &metav1.Duration{},
		Env: []kubeletv1.ExecEnvVar{{Name: "AWS_ENDPOINT_URL", Value: e.URL}},
	}
}

// Files returns a map from file names to the contents of the files. If Audience
// is empty, the result has no RBACFile. Files returns an error if c is not
// valid. It also returns an error if OptInAnnotation or Optional is set, but
// Audience is empty.
func (c Config) Files() (map[string][]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	switch {
	case c.Audience == "" && c.OptInAnnotation != "":
		return nil, errors.New("an opt-in annotation (--opt-in-annotation) needs an audience of service account tokens: set --audience")
	case c.Audience == "" && c.Optional:
		return nil, errors.New("the permission for pods without a service account (--allow-no-service-account) needs an audience of service account tokens: set --audience")
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
		// With the cache type Token, the kubelet reuses an answer only for requests with the same
		// token, and therefore never for another service account.
		p.TokenAttributes = &kubeletv1.ServiceAccountTokenAttributes{
			ServiceAccountTokenAudience: c.Audience,
			CacheType:                   kubeletv1.TokenServiceAccountTokenCacheType,
			RequireServiceAccount:       new(!c.Optional),
		}
		if c.OptInAnnotation != "" {
			p.TokenAttributes.OptionalServiceAccountAnnotationKeys = []string{c.OptInAnnotation}
		}
	}
	providers := []kubeletv1.CredentialProvider{p}
	if c.ECR != nil {
		providers = append(providers, c.ECR.provider())
	}
	kubelet, err := yaml.Marshal(kubeletv1.CredentialProviderConfig{
		TypeMeta:  metav1.TypeMeta{APIVersion: doctor.ConfigVersion, Kind: "CredentialProviderConfig"},
		Providers: providers,
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

// rbac returns a ClusterRole and its binding. The role allows kubelets to
// request service account tokens with the given audience. Without this role,
// API servers since Kubernetes 1.33 refuse these requests.
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
