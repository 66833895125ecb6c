package lab

import (
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/credprovider"
	"github.com/cloudsim-dev/allinone/credprovider/node"
	"github.com/cloudsim-dev/allinone/lab/real"
)

// Settings for image pulls with the identity of a node or of a service account.
const (
	// pullAudience is the audience of the service account tokens that the kubelet
	// presents to the cloud.
	pullAudience = "registry.cloudsim"
	// PullAnnotation is an annotation of a Kubernetes service account. With this annotation, the
	// pods of the account pull images with the account's identity, and not with the node's
	// identity. The cloud must trust the account: see `allinone cloud workload-trusts`.
	PullAnnotation = "cloudsim.dev/pull-as-itself"
)

// PullFiles returns the files that a machine's kubelet needs to pull images from the registry. The
// keys of the result are the names of the files. The file node.RBACFile contains RBAC objects for
// the cluster. The argument cloud is the URL of the cloud, and registry is the host:port of its
// registry. The argument ecr describes AWS's credential provider. If ecr is nil, machines do not
// run this provider.
func PullFiles(cloud, registry string, ecr *node.ECR) (map[string][]byte, error) {
	return node.Config{
		Config: credprovider.Config{
			CloudURL: cloud, MetadataURL: client.DefaultMetadataURL, Registries: []string{registry},
			CacheDir: "/var/lib/cloudsim/credprovider", OptInAnnotation: PullAnnotation,
		},
		Dir: real.CredentialDir, Audience: pullAudience, Optional: true, ECR: ecr,
	}.Files()
}

// Images that every real machine has.
const (
	// TestImage is Kubernetes' test server.
	TestImage = real.TestImage
	// ShellImage has a shell and common tools.
	ShellImage = real.ShellImage
)
