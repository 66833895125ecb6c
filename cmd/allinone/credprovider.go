package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/credprovider"
	"github.com/cloudsim-dev/allinone/credprovider/doctor"
	"github.com/cloudsim-dev/allinone/credprovider/node"
)

func newCredproviderCommand(e env) *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "credprovider",
		Short: "The kubelet's image credential provider: a request on stdin, an answer on stdout",
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
			err := credprovider.Main(cmd.Context(), config, args, e.stdin, e.stdout)
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

// credproviderConfig is what a person may say of a node's files.
type credproviderConfig struct {
	node.Config
	to string
}

func newCredproviderConfigCommand(e env) *cobra.Command {
	f := credproviderConfig{}
	cmd := &cobra.Command{
		Use: "config", Short: "Write what a kubelet needs to run the plugin",
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
				fmt.Fprintln(e.stdout, name)
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
		_ = cmd.MarkFlagRequired(name) // fails for an unknown flag only
	}
	return cmd
}

// write makes the files and returns their names.
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
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // no secrets are in it, and kubelets of others read it
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

func newCredproviderDoctorCommand(e env) *cobra.Command {
	var config, image, account, binDir string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Explain whether a kubelet would ask the plugin for an image, and try it",
		Long: `Explain whether a kubelet with this configuration would ask the plugin for this
image, and if not, why: the port, capitals, a pattern in a path, IPv6, a scheme.
With --bin-dir the plugin is run as the kubelet would run it; what it answers is
shown without the password.`,
		Example: `  allinone credprovider doctor --config kubelet.yaml --image 127.0.0.1:5000/team-a/web:v1
  allinone credprovider doctor --config kubelet.yaml --image 127.0.0.1:5000/team-a/web --service-account token.txt --bin-dir ./bin`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := os.ReadFile(config)
			if err != nil {
				return cloudsim.Errorf(cloudsim.Invalid, "--config: %w", err)
			}
			return diagnose(cmd, e, raw, image, account, binDir)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&config, "config", "", "the kubelet's CredentialProviderConfig")
	fl.StringVar(&image, "image", "", "image as a pod has it")
	fl.StringVar(&account, "service-account", "", "`FILE` with a token of the pod's service account (kubectl create token)")
	fl.StringVar(&binDir, "bin-dir", "", "the kubelet's --image-credential-provider-bin-dir; run the plugin from there")
	for _, name := range []string{"config", "image"} {
		_ = cmd.MarkFlagRequired(name) // fails for an unknown flag only
	}
	return cmd
}

// diagnose says what the kubelet would do, in its order, and is an error if the
// pull would have no credentials.
func diagnose(cmd *cobra.Command, e env, raw []byte, image, account, binDir string) error {
	c, err := doctor.Read(raw)
	if err != nil {
		return cloudsim.Errorf(cloudsim.Invalid, "%w", err)
	}
	problems := c.Lint()
	for _, p := range problems {
		fmt.Fprintln(e.stdout, "problem:", p)
	}
	name, err := doctor.Normalize(image)
	if err != nil {
		return cloudsim.Errorf(cloudsim.Invalid, "%w", err)
	}
	fmt.Fprintf(e.stdout, "image: the kubelet asks for %s\n", name)
	asked := 0
	for _, p := range c.Providers {
		all, ok := p.Matches(name)
		for _, m := range all {
			fmt.Fprintf(e.stdout, "provider %s: %s: %s\n", p.Name, m.Pattern, m.Reason)
		}
		if !ok {
			continue
		}
		asked++
		if binDir == "" {
			continue
		}
		if err := tryPlugin(cmd, e, p, name, account, binDir); err != nil {
			return err
		}
	}
	switch {
	case asked == 0:
		return cloudsim.Errorf(cloudsim.NotFound, "no provider is asked for %s: the kubelet pulls without credentials, and says nothing", name)
	case len(problems) > 0:
		return cloudsim.Errorf(cloudsim.Invalid, "%d problems, see above", len(problems))
	}
	return nil
}

// tryPlugin runs a plugin as the kubelet does.
func tryPlugin(cmd *cobra.Command, e env, p doctor.Provider, image, account, binDir string) error {
	req := map[string]string{"apiVersion": p.APIVersion, "kind": "CredentialProviderRequest", "image": image}
	if account != "" {
		token, err := os.ReadFile(account)
		if err != nil {
			return cloudsim.Errorf(cloudsim.Invalid, "--service-account: %w", err)
		}
		req["serviceAccountToken"] = strings.TrimSpace(string(token))
	} else if t := p.TokenAttributes; t != nil && t.Require != nil && *t.Require {
		fmt.Fprintf(e.stdout, "provider %s: needs a service account: the kubelet does not run it for a pod without one. Try with --service-account\n", p.Name)
		return nil
	}
	in, err := json.Marshal(req)
	if err != nil {
		return err
	}
	run := exec.CommandContext(cmd.Context(), p.Binary(binDir), p.Args...)
	var out, said bytes.Buffer
	run.Stdin, run.Stdout, run.Stderr = bytes.NewReader(in), &out, &said
	for _, v := range p.Env {
		run.Env = append(run.Environ(), v.Name+"="+v.Value)
	}
	if err := run.Run(); err != nil {
		return cloudsim.Errorf(cloudsim.Unavailable, "provider %s: %s (%w): the kubelet would pull without credentials", p.Name, strings.TrimSpace(said.String()), err)
	}
	var a struct {
		CacheKeyType, CacheDuration string
		Auth                        map[string]struct{ Username string }
	}
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		return cloudsim.Errorf(cloudsim.Unavailable, "provider %s: its answer is no JSON: the kubelet would not take it", p.Name)
	}
	for host, cred := range a.Auth {
		if own, _, _ := strings.Cut(image, "/"); own != host {
			fmt.Fprintf(e.stdout, "provider %s: answers for %s, which the image is not of\n", p.Name, host)
		}
		fmt.Fprintf(e.stdout, "provider %s: answers for %s as %q, kept %s by %s\n", p.Name, host, cred.Username, a.CacheDuration, a.CacheKeyType)
	}
	if len(a.Auth) == 0 {
		return cloudsim.Errorf(cloudsim.Denied, "provider %s: answers without credentials", p.Name)
	}
	return nil
}
