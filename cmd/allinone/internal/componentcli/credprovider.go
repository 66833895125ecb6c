package componentcli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/credprovider"
	"github.com/cloudsim-dev/allinone/credprovider/node"
)

// NewCredproviderCommand returns the command "allinone credprovider".
func NewCredproviderCommand(e cli.Env) *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "credprovider",
		Short: "Run the kubelet's image credential provider (request on stdin, response on stdout)",
		Long: `Run the kubelet's image credential provider (KEP-2133, KEP-4412). The program
reads a request from standard input. It writes short-lived credentials for the
cloud's registry to standard output. If it fails, it writes one line with an error
code such as E_METADATA to standard error, and exits with code 1. The kubelet then
logs this line and pulls the image without credentials.

The separate program ` + node.Plugin + ` does the same and starts faster.
Configure the kubelet to run that program.`,
		Example: `  # Write the two configuration files for the kubelet of a node
  allinone credprovider config --registry 127.0.0.1:5000 --node-cloud-url http://127.0.0.1:8180 --dir ./node

  # Check whether the kubelet would run the plugin for an image, and run the plugin
  allinone credprovider doctor --config ./node/kubelet.yaml --image 127.0.0.1:5000/team-a/web:v1 --bin-dir ./bin`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := credprovider.Main(cmd.Context(), config, args, e.Stdin, e.Stdout)
			if failed, ok := errors.AsType[*credprovider.Error](err); ok && failed.Code == credprovider.CodeConfig {
				return fmt.Errorf("%w; 'allinone credprovider config' writes a configuration file", err)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&config, "config", credprovider.DefaultConfigFile, "configuration file of the plugin")
	cmd.AddCommand(newCredproviderConfigCommand(e), newCredproviderDoctorCommand(e))
	return cmd
}

type credproviderConfig struct {
	node.Config
	to string
}

func newCredproviderConfigCommand(e cli.Env) *cobra.Command {
	f := credproviderConfig{}
	cmd := &cobra.Command{
		Use: "config", Short: "Write the kubelet's configuration for the plugin",
		Long: `Write files into a folder. A kubelet needs kubelet.yaml and credprovider.json to run
the plugin. Apply rbac.yaml to the cluster with kubectl:

  kubelet.yaml       for the kubelet's flag --image-credential-provider-config
  credprovider.json  configuration of the plugin
  rbac.yaml          only with --audience: permission of kubelets to request
                     tokens for this audience

With --audience the plugin uses the token of the pod's service account instead of
the node's identity (KEP-4412). The cloud must trust this service account: see
'allinone cloud workload-trusts create'. With --opt-in-annotation the plugin uses
only the tokens of service accounts with this annotation, and the node's identity for
pods of other service accounts. For pods without a service account, the kubelet runs
the plugin only with --allow-no-service-account. If the cloud refuses a service account
with this annotation, the plugin does not try the node's identity instead.`,
		Example: `  allinone credprovider config --registry 127.0.0.1:5000 --node-cloud-url http://127.0.0.1:8180 --dir ./node
  allinone credprovider config --registry 127.0.0.1:5000 --node-cloud-url http://127.0.0.1:8180 --dir ./node --audience registry.cloudsim`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			names, err := f.writeFiles()
			for _, name := range names {
				fmt.Fprintln(e.Stdout, name)
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.Registries, "registry", nil, "registry that gets credentials, as host[:port]; may be repeated")
	fl.StringVar(&f.CloudURL, "node-cloud-url", "", "URL at which nodes reach the cloud")
	fl.StringVar(&f.CloudCAFile, "node-cloud-ca-file", "", "file on nodes with the certificate authority of an https --node-cloud-url (PEM)")
	fl.StringVar(&f.MetadataURL, "metadata-url", client.DefaultMetadataURL, "URL at which nodes reach their metadata service")
	fl.StringVar(&f.CacheDir, "cache-dir", "/var/lib/cloudsim/credprovider", "folder on nodes for cached credentials; empty for no cache")
	fl.StringVar(&f.to, "dir", "", "folder for the files; the command creates a missing folder")
	fl.StringVar(&f.Dir, "node-dir", "", "folder of the files on nodes (default --dir)")
	fl.StringVar(&f.Audience, "audience", "", "use the tokens of pods' service accounts, with this audience")
	fl.BoolVar(&f.Optional, "allow-no-service-account", false, "with --audience: use the node's identity for pods without a service account, such as static pods")
	fl.StringVar(&f.OptInAnnotation, "opt-in-annotation", "", "with --audience: use only the tokens of service accounts with this annotation, and the node's identity for pods of other service accounts")
	for _, name := range []string{"registry", "node-cloud-url", "dir"} {
		_ = cmd.MarkFlagRequired(name) // error only for an unknown flag name
	}
	return cmd
}

// writeFiles writes the configuration files into the folder f.to and returns the paths of the
// files.
func (f credproviderConfig) writeFiles() (names []string, err error) {
	dir, err := filepath.Abs(f.to)
	if err != nil {
		return nil, err
	}
	f.Dir = cmp.Or(f.Dir, dir)
	files, err := f.Files()
	if err != nil {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "%w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the folder has no secrets, and kubelets of other users read it
		return nil, err
	}
	for name, raw := range files {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			return nil, err
		}
		names = append(names, filepath.Join(dir, name))
	}
	slices.Sort(names)
	return names, nil
}
