package componentcli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/credprovider/doctor"
)

// pluginTimeout is the time for which a kubelet waits for a plugin.
const pluginTimeout = time.Minute

type credproviderDoctor struct {
	config, image, account, binDir string
	annotations                    []string
}

func newCredproviderDoctorCommand(e cli.Env) *cobra.Command {
	d := credproviderDoctor{}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check whether the kubelet would run the plugin for an image",
		Long: `Explain whether a kubelet with this configuration would run the plugin for this
image. If the kubelet would not run the plugin, the command prints the reason, such
as a different port, capital letters, a pattern in a path, an IPv6 address, or a scheme
in the pattern. With --bin-dir the command also runs the plugin, as the kubelet would. The
command checks the response as strictly as the kubelet, and prints the response without
the password.`,
		Example: `  allinone credprovider doctor --config kubelet.yaml --image 127.0.0.1:5000/team-a/web:v1
  kubectl create token web --audience registry.cloudsim --bound-object-kind Pod --bound-object-name web-0 >token.txt
  allinone credprovider doctor --config kubelet.yaml --image 127.0.0.1:5000/team-a/web --service-account token.txt --bin-dir ./bin`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.diagnose(cmd.Context(), e)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&d.config, "config", "", "file with the kubelet's CredentialProviderConfig")
	fl.StringVar(&d.image, "image", "", "image name, as in the specification of a pod")
	fl.StringVar(&d.account, "service-account", "", "`FILE` with a token of the pod's service account (kubectl create token)")
	fl.StringArrayVar(&d.annotations, "annotation", nil, "annotation `KEY=VALUE` of the pod's service account; may be repeated")
	fl.StringVar(&d.binDir, "bin-dir", "", "folder of the plugin, as in the kubelet's --image-credential-provider-bin-dir; with this flag, the command runs the plugin")
	for _, name := range []string{"config", "image"} {
		_ = cmd.MarkFlagRequired(name) // error only for an unknown flag name
	}
	return cmd
}

// diagnose prints the steps that the kubelet takes to get credentials for the image. It returns an
// error if the kubelet would pull without credentials. It also returns an error if the
// configuration or a plugin has problems.
func (d credproviderDoctor) diagnose(ctx context.Context, e cli.Env) error {
	raw, err := os.ReadFile(d.config)
	if err != nil {
		return cloudsim.Errorf(cloudsim.Invalid, "--config: %w", err)
	}
	annotations, err := cli.ParseLabels("annotation", d.annotations)
	if err != nil {
		return err
	}
	c, err := doctor.Read(raw)
	if err != nil {
		return cloudsim.Errorf(cloudsim.Invalid, "%w", err)
	}
	problems := append(c.Lint(), writableByOthers(d.config)...)
	for _, p := range problems {
		fmt.Fprintln(e.Stdout, "problem:", p)
	}
	name, err := doctor.Normalize(d.image)
	if err != nil {
		return cloudsim.Errorf(cloudsim.Invalid, "%w", err)
	}
	fmt.Fprintf(e.Stdout, "image: the kubelet requests credentials for %s\n", name)
	providerCount := 0
	for _, provider := range c.Providers {
		p := doctor.Provider(provider)
		all, ok := p.Matches(name)
		for _, m := range all {
			fmt.Fprintf(e.Stdout, "provider %s: %s: %s\n", p.Name, m.Pattern, m.Reason)
		}
		if !ok {
			continue
		}
		if why := d.passesOver(p, annotations); why != "" {
			fmt.Fprintf(e.Stdout, "provider %s: %s\n", p.Name, why)
			continue
		}
		providerCount++
		if t := p.TokenAttributes; t != nil {
			fmt.Fprintf(e.Stdout, "provider %s: gets tokens for the audience %s if kubelets may request such tokens; to check this permission: kubectl auth can-i request-serviceaccounts-token-audience %s --as system:node:NODE --as-group system:nodes\n", p.Name, t.ServiceAccountTokenAudience, t.ServiceAccountTokenAudience)
		}
		if d.binDir == "" {
			continue
		}
		if err := d.runPlugin(ctx, e, p, name, annotations); err != nil {
			return err
		}
	}
	switch {
	case providerCount == 0:
		return cloudsim.Errorf(cloudsim.NotFound, "the kubelet runs no provider for %s: it pulls without credentials and reports no error", name)
	case len(problems) > 0:
		return cloudsim.Errorf(cloudsim.Invalid, "problems of the configuration: %d; see the lines with 'problem:' above", len(problems))
	}
	return nil
}

// passesOver returns the reason why the kubelet would not run a provider although a pattern of the
// provider matches the image. It returns "" if the kubelet would run the provider. If the user has
// set none of the flags --service-account, --annotation and --bin-dir, passesOver returns ""
// without a check.
func (d credproviderDoctor) passesOver(p doctor.Provider, annotations map[string]string) string {
	t := p.TokenAttributes
	if t == nil || d.binDir == "" && d.account == "" && len(annotations) == 0 {
		return ""
	}
	if t.RequireServiceAccount != nil && *t.RequireServiceAccount && d.account == "" {
		return "needs a service account: the kubelet does not run the provider for a pod without a service account. Set --service-account"
	}
	if key := p.MissingAnnotation(annotations); key != "" {
		return "needs the annotation " + key + " of the pod's service account: the kubelet does not run the provider without the annotation. Set --annotation"
	}
	return ""
}

// writableByOthers returns a problem for each file or folder that other users can change. It also
// returns a problem for a path that does not exist. A user that can change the kubelet's
// configuration or the plugin can get the credentials of the kubelet.
func writableByOthers(paths ...string) (problems []string) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			problems = append(problems, err.Error())
		} else if info.Mode().Perm()&0o022 != 0 {
			problems = append(problems, fmt.Sprintf("other users can change %s (mode %04o): run chmod go-w on this path", path, info.Mode().Perm()))
		}
	}
	return problems
}

// runPlugin runs a plugin as the kubelet does.
func (d credproviderDoctor) runPlugin(ctx context.Context, e cli.Env, p doctor.Provider, image string, annotations map[string]string) error {
	path := p.Binary(d.binDir)
	if bad := writableByOthers(filepath.Clean(d.binDir), path); len(bad) > 0 {
		return cloudsim.Errorf(cloudsim.Invalid, "provider %s: %s", p.Name, strings.Join(bad, "; "))
	}
	in, err := d.request(p, image, annotations)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()
	run := exec.CommandContext(ctx, path, p.Args...)
	var out, stderr bytes.Buffer
	run.Stdin, run.Stdout, run.Stderr = bytes.NewReader(in), &out, &stderr
	run.WaitDelay = time.Second
	for _, v := range p.Env {
		run.Env = append(run.Environ(), v.Name+"="+v.Value)
	}
	if err := run.Run(); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("the plugin did not end within %s", pluginTimeout)
		}
		text := strings.TrimSpace(stderr.String())
		if text != "" {
			text = "; the plugin wrote: " + text
		}
		return cloudsim.Errorf(cloudsim.Unavailable, "provider %s: the plugin failed (%w), so the kubelet would pull without credentials%s", p.Name, err, text)
	}
	a, err := p.ReadAnswer(out.Bytes(), image)
	if err != nil {
		return cloudsim.Errorf(cloudsim.Denied, "provider %s: %w: the kubelet would pull without credentials", p.Name, err)
	}
	for key, user := range a.Users {
		fmt.Fprintf(e.Stdout, "provider %s: returns credentials for %s with the user name %q; cache duration: %s, cache key type: %s\n", p.Name, key, user, a.CacheDuration, a.CacheKeyType)
	}
	return nil
}

// request returns the request that the kubelet sends to the plugin.
func (d credproviderDoctor) request(p doctor.Provider, image string, annotations map[string]string) ([]byte, error) {
	req := map[string]any{"apiVersion": p.APIVersion, "kind": "CredentialProviderRequest", "image": image}
	if d.account != "" && p.TokenAttributes != nil {
		token, err := os.ReadFile(d.account)
		if err != nil {
			return nil, cloudsim.Errorf(cloudsim.Invalid, "--service-account: %w", err)
		}
		req["serviceAccountToken"] = strings.TrimSpace(string(token))
		req["serviceAccountAnnotations"] = p.PassedAnnotations(annotations)
	}
	return json.Marshal(req)
}
