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
		Short: "Run the kubelet's image credential provider: request on stdin, answer on stdout",
		Long: `The kubelet's image credential provider (KEP-2133, KEP-4412): it reads a request
on standard input, and writes short-lived credentials for the cloud's registry
to standard output. A failure is one line on stderr with a code, such as
E_METADATA, and exit code 1; the kubelet logs it and pulls without credentials.

The file ` + node.Plugin + ` is the same in a file of its own, which starts in a
fraction of the time: that is what a kubelet should run.`,
		Example: `  # What a kubelet on a node needs: two files, and a role for its tokens
  allinone credprovider config --registry 127.0.0.1:5000 --node-cloud-url http://127.0.0.1:8180 --dir ./node

  # Would the kubelet ask it for this image, and what would it say?
  allinone credprovider doctor --config ./node/kubelet.yaml --image 127.0.0.1:5000/team-a/web:v1 --bin-dir ./bin`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := credprovider.Main(cmd.Context(), config, args, e.Stdin, e.Stdout)
			if failed, ok := errors.AsType[*credprovider.Error](err); ok && failed.Code == credprovider.CodeConfig {
				return fmt.Errorf("%w; 'allinone credprovider config' writes one", err)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&config, "config", credprovider.DefaultConfigFile, "the plugin's configuration")
	cmd.AddCommand(newCredproviderConfigCommand(e), newCredproviderDoctorCommand(e))
	return cmd
}

// credproviderConfig contains the flags of the config command.
type credproviderConfig struct {
	node.Config
	to string
}

func newCredproviderConfigCommand(e cli.Env) *cobra.Command {
	f := credproviderConfig{}
	cmd := &cobra.Command{
		Use: "config", Short: "Write the kubelet's configuration for the plugin",
		Long: `Write what a kubelet needs to run the plugin, into a folder:

  kubelet.yaml       for its flag --image-credential-provider-config
  credprovider.json  the plugin's own configuration
  rbac.yaml          with --audience: lets kubelets ask for tokens for it

With --audience the plugin gets the token of the pod's service account instead
of the node's identity (KEP-4412). The cloud must trust it: see
'allinone cloud workload-trusts create'. With --opt-in-annotation that is so for
service accounts that carry the annotation; what they may not, their node is
never asked for.`,
		Example: `  allinone credprovider config --registry 127.0.0.1:5000 --node-cloud-url http://127.0.0.1:8180 --dir ./node
  allinone credprovider config --registry 127.0.0.1:5000 --node-cloud-url http://127.0.0.1:8180 --dir ./node --audience registry.cloudsim`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			names, err := f.write()
			for _, name := range names {
				fmt.Fprintln(e.Stdout, name)
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.Registries, "registry", nil, "registry to answer for: host[:port]; may be repeated")
	fl.StringVar(&f.CloudURL, "node-cloud-url", "", "the cloud's URL, as nodes reach it")
	fl.StringVar(&f.CloudCAFile, "node-cloud-ca-file", "", "its authority, on nodes")
	fl.StringVar(&f.MetadataURL, "metadata-url", client.DefaultMetadataURL, "where nodes reach their metadata service")
	fl.StringVar(&f.CacheDir, "cache-dir", "/var/lib/cloudsim/credprovider", "where nodes keep answers; empty for nowhere")
	fl.StringVar(&f.to, "dir", "", "folder to write to; made when missing")
	fl.StringVar(&f.Dir, "node-dir", "", "folder that nodes have the files in (default --dir)")
	fl.StringVar(&f.Audience, "audience", "", "use the tokens of pods' service accounts, for this audience")
	fl.BoolVar(&f.Optional, "allow-no-service-account", false, "with --audience: pods without a service account, such as static ones, use the node's identity")
	fl.StringVar(&f.OptInAnnotation, "opt-in-annotation", "", "with --audience: only service accounts with this annotation are used; pods of others use the node's identity")
	for _, name := range []string{"registry", "node-cloud-url", "dir"} {
		_ = cmd.MarkFlagRequired(name) // error only for an unknown flag name
	}
	return cmd
}

// write writes the files into the folder and returns the paths of the files.
func (f credproviderConfig) write() (names []string, err error) {
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
