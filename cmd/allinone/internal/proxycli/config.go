package proxycli

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/internal/shell"
	"github.com/cloudsim-dev/allinone/netproxy/certs"
	"github.com/cloudsim-dev/allinone/netproxy/egress"
)

type proxyConfigFlags struct {
	Out    string
	Socket string
	TCP    string
	Hosts  []string
	Image  string
}

//go:embed manifests.yaml
var proxyManifests string

func newProxyConfigCommand(e cli.Env) *cobra.Command {
	var f proxyConfigFlags
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Write the configuration of kube-apiserver, a server and agents",
		Long: `Write into a folder the files that kube-apiserver, a network proxy server and its
agents need:

  *.crt, *.key    certificates and keys (mode 0600). Agents and clients have
                  different certificate authorities, so an agent cannot act as a
                  client
  egress.yaml     for kube-apiserver's flag --egress-selector-config-file
  manifests.yaml  for agents in the cluster

The command does not replace existing files.`,
		Example: `  allinone proxy config --out ./proxy --host proxy.example
  kube-apiserver --egress-selector-config-file ./proxy/egress.yaml …

  # kube-apiserver on another machine than the server
  allinone proxy config --out ./proxy --host proxy.example --tcp proxy.example:8090`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return f.run(e.Stdout) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Out, "out", "", "folder for the files")
	fl.StringVar(&f.Socket, "uds-name", "", "Unix socket between kube-apiserver and server (default proxy.sock in the folder)")
	fl.StringVar(&f.TCP, "tcp", "", "HOST:PORT of the server, for HTTP CONNECT over TCP instead of a socket")
	fl.StringSliceVar(&f.Hosts, "host", nil, "host names and addresses at which agents and clients reach the server")
	fl.StringVar(&f.Image, "image", "allinone", "image with allinone, for the manifests")
	_ = cmd.MarkFlagRequired("out") // error only for an unknown flag name
	_ = cmd.MarkFlagDirname("out")
	return cmd
}

func (f *proxyConfigFlags) run(w io.Writer) (err error) {
	if f.Out, err = filepath.Abs(f.Out); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return cloudsim.Misuse(err)
	}
	if f.Socket == "" {
		f.Socket = f.File("proxy.sock")
	}
	way := egress.Selector{Socket: f.Socket}
	if f.TCP != "" {
		way = egress.Selector{
			URL: "https://" + f.TCP, CABundle: f.File(certs.FrontendCA + ".crt"),
			ClientCert: f.File(certs.Client + ".crt"), ClientKey: f.File(certs.Client + ".key"),
		}
	}
	config, err := way.YAML()
	if err != nil {
		return err
	}
	var manifests bytes.Buffer
	t, err := template.New("manifests").Parse(proxyManifests)
	if err != nil {
		return err
	}
	for _, name := range []string{"egress.yaml", "manifests.yaml"} { // before certs.Make, which makes the first files
		switch _, err := os.Lstat(f.File(name)); {
		case err == nil:
			return cloudsim.Errorf(cloudsim.Exists, "file %s already exists: choose another folder or delete the file", f.File(name))
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	if err := errors.Join(certs.Make(f.Out, f.Hosts, time.Now()), t.Execute(&manifests, f)); err != nil {
		return err
	}
	if err := errors.Join(
		os.WriteFile(f.File("egress.yaml"), config, 0o600),
		os.WriteFile(f.File("manifests.yaml"), manifests.Bytes(), 0o600),
	); err != nil {
		return err
	}
	_, err = fmt.Fprint(w, f.nextCommands())
	return err
}

// check returns the errors of all invalid flags in one error.
func (f *proxyConfigFlags) check() error {
	var bad []error
	if f.TCP != "" && !cli.IsHostPort(f.TCP) {
		bad = append(bad, cli.BadFlag("tcp", f.TCP, "HOST:PORT, such as proxy.example:8090"))
	}
	for _, h := range f.Hosts {
		name := strings.TrimPrefix(strings.ToLower(h), "*.")
		if net.ParseIP(h) == nil && len(validation.IsDNS1123Subdomain(name)) > 0 {
			bad = append(bad, cli.BadFlag("host", h, "a name or an address, such as proxy.example"))
		}
	}
	return errors.Join(bad...)
}

// File returns the path of a file in the output folder. The template of the manifests also calls
// File.
func (f *proxyConfigFlags) File(name string) string { return filepath.Join(f.Out, name) }

// Host returns the host name that agents use for the server.
func (f *proxyConfigFlags) Host() string {
	if len(f.Hosts) > 0 {
		return f.Hosts[0]
	}
	return "127.0.0.1"
}

// nextCommands returns the text with the next commands for the user. These commands start
// kube-apiserver, the proxy server and the agents.
func (f *proxyConfigFlags) nextCommands() string {
	front := "--uds-name " + shell.Word(f.Socket) + " --server-port 0"
	if f.TCP != "" {
		_, port, _ := net.SplitHostPort(f.TCP) // run has checked the address
		front = "--mode http-connect --server-port " + shell.Word(port) + " --server-cert " + shell.Word(f.File(certs.Frontend+".crt")) + " --server-key " + shell.Word(f.File(certs.Frontend+".key")) +
			" \\\n    --server-ca-cert " + shell.Word(f.File(certs.FrontendCA+".crt"))
	}
	file := func(name string) string { return shell.Word(f.File(name)) }
	return fmt.Sprintf(`Wrote keys, certificates, egress.yaml and manifests.yaml into %s. Start the components:

  allinone proxy server %s \
    --cluster-cert %s --cluster-key %s --cluster-ca-cert %s
  allinone proxy agent --proxy-server-host %s \
    --ca-cert %s --agent-cert %s --agent-key %s
  kube-apiserver --egress-selector-config-file %s …

Or run agents in the cluster: see the comments at the top of %s. Then start
the server with these flags instead of --cluster-ca-cert:

  --agent-namespace kube-system --agent-service-account network-proxy-agent \
    --authentication-audience network-proxy --kubeconfig FILE
`, shell.Word(f.Out), front, file("server.crt"), file("server.key"), file("agents-ca.crt"), shell.Word(f.Host()),
		file("agents-ca.crt"), file("agent.crt"), file("agent.key"), file("egress.yaml"), file("manifests.yaml"))
}
