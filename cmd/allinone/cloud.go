package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// defaultCloudURL is the default URL of `allinone cloudsim`.
const defaultCloudURL = "http://127.0.0.1:8180"

// callTimeout is the longest time for one call. The cloud delays the answer to a call that
// waits for an operation by at most ten seconds.
const callTimeout = 30 * time.Second

// concurrent is the number of idle connections to the cloud that the client keeps open.
const concurrent = 64

// cloudCLI contains the environment and the flags that all commands of the cloud share.
type cloudCLI struct {
	env
	url, tokenFile, caFile, project, dataDir string
}

func newCloudCommand(e env) *cobra.Command {
	c := &cloudCLI{env: e}
	cmd := &cobra.Command{
		Use:   "cloud",
		Short: "Look at a cloud and change it",
		Long: `Look at a cloud and change it, over the same API that the subsystems use.

Which cloud: --cloud-url, else CLOUDSIM_URL, else the lab that runs in the data
dir, else ` + defaultCloudURL + `. Either may be a socket of this machine,
unix:///run/cloudsim.sock; see cloudsim --listen-socket. A flag beats its
environment variable. A token is read from a file and never taken from the
command line.

A resource is called by its name or by its id.`,
		Example: `  # What is there
  allinone cloud instances list
  allinone cloud load-balancers list -o wide

  # A new machine, and what happens to it
  allinone cloud instances create node-4 --zone sim-1a --wait
  allinone cloud events --watch --kind instance`,
	}
	c.connectionFlags(cmd)
	cmd.AddCommand(
		newInstancesCommand(c), newLoadBalancersCommand(c), newAddressesCommand(c),
		newDisksCommand(c), newSnapshotsCommand(c), newSnapshotGroupsCommand(c), newDiskPoolsCommand(c),
		newNetworksCommand(c), newSubnetsCommand(c), newRoutesCommand(c),
		newCloudMetadataCommand(c), newSigningKeysCommand(c),
		newRegistryCommand(c), newRepositoriesCommand(c), newWorkloadTrustsCommand(c),
		newRegionsCommand(c), newZonesCommand(c), newInstanceTypesCommand(c), newDiskTypesCommand(c),
		newOperationsCommand(c), newEventsCommand(c),
		newProjectsCommand(c), newTokensCommand(c), newServiceAccountsCommand(c), newRolesCommand(c), newRoleBindingsCommand(c), newWhoAmICommand(c), newQuotasCommand(c),
		newRateLimitsCommand(c), newBillCommand(c), newAuditCommand(c),
		newFaultsCommand(c),
		newClockCommand(c), newHoldsCommand(c), newDurationsCommand(c), newWhyCommand(c), newStateCommand(c), newApplyCommand(c), newReplayCommand(c),
	)
	return cmd
}

// connectionFlags adds the flags that choose the cloud and the project.
func (c *cloudCLI) connectionFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&c.url, "cloud-url", "", "URL of the cloud (CLOUDSIM_URL)")
	f.StringVar(&c.tokenFile, "token-file", "", "file with the token to call with (CLOUDSIM_TOKEN_FILE)")
	f.StringVar(&c.caFile, "ca-file", "", "file with the certificate authority of an https --cloud-url (PEM); the system's authorities if empty (CLOUDSIM_CA_FILE)")
	f.StringVar(&c.project, "project", "", "project to work in, by name or id; for admin tokens (CLOUDSIM_PROJECT)")
	f.StringVar(&c.dataDir, "data-dir", "", "data dir of the lab whose cloud to use (CLOUDSIM_DATA_DIR)")
	_ = cmd.RegisterFlagCompletionFunc("project", names(c, projects)) // error only for an unknown flag name
}

// whereCloud is the content of DATADIR/cloud.yaml. A running lab writes the URL and
// the token file of its cloud into this file. TokenFile is relative to the data dir unless it is absolute.
type whereCloud struct {
	URL       string `json:"url"`
	TokenFile string `json:"tokenFile"`
}

func (c *cloudCLI) lab() (w whereCloud, err error) {
	dir := cmp.Or(c.dataDir, defaultDataDir(c.getenv))
	if dir == "" {
		return w, nil
	}
	path := filepath.Join(dir, "cloud.yaml")
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.dataDir != "":
		return w, cloudsim.Errorf(cloudsim.Unavailable, "--data-dir %s: no lab runs there (it has no cloud.yaml)", c.dataDir)
	case errors.Is(err, fs.ErrNotExist):
		return w, nil
	case err != nil:
		return w, fmt.Errorf("data dir: %w", err)
	}
	if err := yaml.UnmarshalStrict(raw, &w); err != nil {
		return w, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if w.TokenFile != "" && !filepath.IsAbs(w.TokenFile) {
		w.TokenFile = filepath.Join(dir, w.TokenFile)
	}
	return w, nil
}

// client returns a client according to the flags, the environment and the lab. It sends the
// lab's token only to the lab's cloud.
func (c *cloudCLI) client() (*client.Client, error) {
	at, tokenFile, caFile := c.url, c.tokenFile, c.caFile
	if c.dataDir == "" { // flags override the environment, including a flag that names a lab
		at = cmp.Or(at, c.getenv("CLOUDSIM_URL"))
		tokenFile = cmp.Or(tokenFile, c.getenv("CLOUDSIM_TOKEN_FILE"))
		caFile = cmp.Or(caFile, c.getenv("CLOUDSIM_CA_FILE"))
	}
	if at == "" {
		lab, err := c.lab()
		if err != nil {
			return nil, err
		}
		at, tokenFile = lab.URL, cmp.Or(tokenFile, lab.TokenFile)
	}
	if at == "" {
		at, tokenFile = defaultCloudURL, cmp.Or(tokenFile, c.ownToken())
	}
	if !client.ValidURL(at) {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "cloud URL %q: want http://HOST:PORT or unix:///PATH, without a user or a query", redacted(at))
	}
	cl := &client.Client{
		URL:       at,
		HTTP:      &http.Client{Timeout: callTimeout},
		Project:   cloudsim.ProjectID(cmp.Or(c.project, c.getenv("CLOUDSIM_PROJECT"))),
		UserAgent: "allinone/" + version(),
		Retries:   3,
	}
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if usual, ok := http.DefaultTransport.(*http.Transport); ok {
		t = usual.Clone()
	}
	t.MaxIdleConnsPerHost = concurrent
	client.Reach(t, at)
	if err := client.Trust(t, caFile); err != nil {
		return nil, err
	}
	cl.HTTP.Transport = t
	if tokenFile != "" {
		cl.Token = client.TokenFile(tokenFile)
	}
	return cl, nil
}

// redacted returns a URL without its password.
func redacted(at string) string {
	u, err := url.Parse(at)
	if err != nil || u.User == nil {
		return at
	}
	return u.Redacted()
}

// ownToken returns the file with the admin token of this user's `allinone cloudsim` in the
// default data dir. It returns "" if there is no such file.
func (c *cloudCLI) ownToken() string {
	dir := defaultCloudDir(c.getenv)
	if dir == "" {
		return ""
	}
	path := filepath.Join(dir, "admin.token")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// run makes a command's RunE from a function that calls the cloud.
func (c *cloudCLI) run(fn func(ctx context.Context, cl *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		return advise(cl, fn(cmd.Context(), cl, args))
	}
}

// advise adds the next step for the user to an error about the connection to the cloud.
func advise(cl *client.Client, err error) error {
	var dial *net.OpError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return cloudsim.Errorf(cloudsim.Unavailable, "no cloud answers at %s: %w; is it running? "+
			"Start one with 'allinone up' or 'allinone cloudsim', or set --cloud-url", cl.URL, dial.Err)
	case errors.As(err, &unknown):
		return cloudsim.Errorf(cloudsim.Unavailable, "%w; set --ca-file to the cloud's certificate authority (CLOUDSIM_CA_FILE)", err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return cloudsim.Errorf(cloudsim.Unavailable, "%w; the cloud at %s has no certificate: use http://", http.ErrSchemeMismatch, cl.URL)
	case errors.Is(err, cloudsim.Unauthenticated) && cl.Token == nil:
		return cloudsim.Errorf(cloudsim.Unauthenticated, "the cloud at %s wants a token: set --token-file", cl.URL)
	}
	return err
}
