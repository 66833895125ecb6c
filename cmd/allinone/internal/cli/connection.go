package cli

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
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// DefaultCloudURL is the default URL of `allinone cloudsim`.
const DefaultCloudURL = "http://127.0.0.1:8180"

// callTimeout is the longest time for one call. A call that waits for an operation does not exceed
// this time, because the client asks the cloud to wait for at most ten seconds.
const callTimeout = 30 * time.Second

const maxIdleConns = 64

// Connection contains the environment of a command (Env) and the flags that choose the cloud and
// the project. All commands that call the cloud have these flags.
type Connection struct {
	Env
	URL, TokenFile, CAFile, Project, DataDir string
}

// ConnectionFlags adds to cmd the flags that choose the cloud and the project.
func (c *Connection) ConnectionFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&c.URL, "cloud-url", "", "URL of the cloud (CLOUDSIM_URL)")
	f.StringVar(&c.TokenFile, "token-file", "", "file with the token for the cloud (CLOUDSIM_TOKEN_FILE)")
	f.StringVar(&c.CAFile, "ca-file", "", "PEM file with the certificate authority of the cloud, for an https URL; empty for the system's authorities (CLOUDSIM_CA_FILE)")
	f.StringVar(&c.Project, "project", "", "project of the command (name or id); for callers with a role in several projects (CLOUDSIM_PROJECT)")
	f.StringVar(&c.DataDir, "data-dir", "", "data dir of a lab, to use the cloud of this lab (CLOUDSIM_DATA_DIR)")
	_ = cmd.RegisterFlagCompletionFunc("project", c.Complete(projectNames)) // error only for an unknown flag name
}

// whereCloud is the content of the file cloud.yaml in a lab's data dir. A running lab writes the
// URL and the token file of its cloud into cloud.yaml. TokenFile is an absolute path or a path
// relative to the data dir.
type whereCloud struct {
	URL       string                  `json:"url"`
	TokenFile string                  `json:"tokenFile"`
	Console   string                  `json:"console,omitempty"`  // URL of the console that also shows the cluster
	Dialects  map[string]whereDialect `json:"dialects,omitempty"` // by name
}

// whereDialect is the URL of a dialect, and the file with a token for its callers. TokenFile is
// an absolute path.
type whereDialect struct {
	URL       string `json:"url"`
	TokenFile string `json:"tokenFile"`
}

// DialectOfLab returns the URL of a dialect of the running lab, and the file with a token for its
// callers. If the flag --data-dir selects a folder without a running lab, DialectOfLab returns
// Unavailable. If this flag is not set and no lab runs, it returns empty strings. It also returns
// empty strings if the lab does not have the dialect.
func (c *Connection) DialectOfLab(name string) (url, tokenFile string, err error) {
	w, err := c.lab()
	return w.Dialects[name].URL, w.Dialects[name].TokenFile, err
}

// ConsoleOfLab returns the URL of the console of the running lab. It returns "" if the command
// uses another cloud, or if the lab has no console. If the flag --data-dir selects a folder without
// a running lab, ConsoleOfLab returns Unavailable.
func (c *Connection) ConsoleOfLab() (string, error) {
	w, err := c.lab()
	at := c.URL
	if c.DataDir == "" {
		at = cmp.Or(at, c.Getenv("CLOUDSIM_URL"))
	}
	if at != "" && at != w.URL {
		return "", err
	}
	return w.Console, err
}

func (c *Connection) lab() (w whereCloud, err error) {
	dir := cmp.Or(c.DataDir, DefaultDataDir(c.Getenv))
	if dir == "" {
		return w, nil
	}
	path := filepath.Join(dir, "cloud.yaml")
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.DataDir != "":
		return w, cloudsim.Errorf(cloudsim.Unavailable, "--data-dir %s: no lab runs in this folder (it has no cloud.yaml)", c.DataDir)
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

// Client returns a client of the cloud. It takes the URL and the token from the flags, the
// environment or the running lab, in this order. With --data-dir, it ignores the URL and the token
// in the environment. If none of these sources contains a URL, Client uses DefaultCloudURL.
// The client sends the lab's token only to the lab's cloud.
func (c *Connection) Client() (*client.Client, error) {
	at, tokenFile, caFile := c.URL, c.TokenFile, c.CAFile
	if c.DataDir == "" { // if a flag selects a lab, the lab takes precedence over the environment
		at = cmp.Or(at, c.Getenv("CLOUDSIM_URL"))
		tokenFile = cmp.Or(tokenFile, c.Getenv("CLOUDSIM_TOKEN_FILE"))
		caFile = cmp.Or(caFile, c.Getenv("CLOUDSIM_CA_FILE"))
	}
	if at == "" {
		lab, err := c.lab()
		if err != nil {
			return nil, err
		}
		at, tokenFile = lab.URL, cmp.Or(tokenFile, lab.TokenFile)
	}
	if at == "" {
		at, tokenFile = DefaultCloudURL, cmp.Or(tokenFile, c.ownToken())
	}
	if !client.ValidURL(at) {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "cloud URL %q: want http://HOST:PORT, https://HOST:PORT or unix:///PATH, without a user or a query", redactURL(at))
	}
	cl := &client.Client{
		URL:       at,
		HTTP:      &http.Client{Timeout: callTimeout},
		Project:   cloudsim.ProjectID(cmp.Or(c.Project, c.Getenv("CLOUDSIM_PROJECT"))),
		UserAgent: "allinone/" + Version(),
		Retries:   3,
	}
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if usual, ok := http.DefaultTransport.(*http.Transport); ok {
		t = usual.Clone()
	}
	t.MaxIdleConnsPerHost = maxIdleConns
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

// redactURL returns the URL without its password, so that an error can contain the URL.
func redactURL(at string) string {
	u, err := url.Parse(at)
	if err != nil || u.User == nil {
		return at
	}
	return u.Redacted()
}

// ownToken returns the path of the admin token in the default folder of `allinone cloudsim`. It
// returns "" if the file does not exist.
func (c *Connection) ownToken() string {
	dir := DefaultCloudDir(c.Getenv)
	if dir == "" {
		return ""
	}
	path := filepath.Join(dir, "admin.token")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// Run returns a RunE function for a command. The RunE function creates a client and calls fn with
// this client.
func (c *Connection) Run(fn func(ctx context.Context, cl *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		return Advise(cl, fn(cmd.Context(), cl, args))
	}
}

// Advise adds advice for the user to a connection error, to an error about the cloud's certificate,
// and to the error for a missing token. It does not change other errors.
func Advise(cl *client.Client, err error) error {
	var dial *net.OpError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return cloudsim.Errorf(cloudsim.Unavailable, "no cloud answers at %s: %w; start a cloud with "+
			"'allinone up' or 'allinone cloudsim', or set --cloud-url to the URL of a running cloud", cl.URL, dial.Err)
	case errors.As(err, &unknown):
		return cloudsim.Errorf(cloudsim.Unavailable, "%w; set --ca-file to the cloud's certificate authority (CLOUDSIM_CA_FILE)", err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return cloudsim.Errorf(cloudsim.Unavailable, "%w; the cloud at %s has no certificate: use http://", http.ErrSchemeMismatch, cl.URL)
	case errors.Is(err, cloudsim.Unauthenticated) && cl.Token == nil:
		return cloudsim.Errorf(cloudsim.Unauthenticated, "the cloud at %s requires a token: set --token-file", cl.URL)
	}
	return err
}

// CompletionTimeout is the longest time for a shell completion.
const CompletionTimeout = 2 * time.Second

// Complete returns a shell completion for the names that listFn returns. It omits names that the
// command line already contains.
func (c *Connection) Complete(listFn func(context.Context, *client.Client) ([]Candidate, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), CompletionTimeout)
		defer cancel()
		cl, err := c.Client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		candidates, err := listFn(ctx, cl)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var words []cobra.Completion
		for _, n := range candidates {
			if !slices.Contains(given, n.Name) {
				words = append(words, cobra.CompletionWithDesc(n.Name, n.About))
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// Candidate is a name for a shell completion, with a description.
type Candidate struct{ Name, About string }

func projectNames(ctx context.Context, cl *client.Client) (all []Candidate, err error) {
	projects, err := cl.ListProjects(ctx, cloudsim.ListOptions{})
	for _, p := range projects.Items {
		all = append(all, Candidate{p.Name, string(p.ID)})
	}
	return all, err
}
