// Package labcli contains the commands of the lab: up, down, status, enter, images, reset,
// doctor, lab and compose.
package labcli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/console"
	"github.com/cloudsim-dev/allinone/csidriver"
	"github.com/cloudsim-dev/allinone/internal/logging"
	"github.com/cloudsim-dev/allinone/internal/shell"
	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/process"
)

type upFlags struct {
	process.Config
	dataDir   string
	portBase  int
	detach    bool
	verbose   bool
	reportTo  int // in a detached lab: file descriptor for messages to the process that started the lab
	logFormat logging.Format
}

// NewUpCommand returns the command "allinone up".
func NewUpCommand(e cli.Env) *cobra.Command {
	f := upFlags{Config: process.Default(), logFormat: logging.Text}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster on a simulated cloud",
		Long: `Start a cluster on a simulated cloud: the cloud, etcd, the Kubernetes control
plane, the cloud controller manager, and nodes. It needs no Docker and no
download, and needs root only with --nodes real. Ctrl-C stops the lab. A second Ctrl-C
kills the lab.

If some nodes are not Ready within --timeout, 'up' prints how many nodes are Ready
and why the others are not. The lab keeps running. With --detach, the exit code is
then 10. Without --detach, 'up' waits and reports when all nodes are Ready. If they
never become Ready, the exit code is 10 when the lab is stopped.

Real nodes reach the internet if this host has a default route. Their pulls of images
use the proxy in HTTP_PROXY, HTTPS_PROXY and NO_PROXY.

The data dir stores the cluster and the cloud. The next 'up' starts the same cluster
and cloud again.`,
		Example: `  # Three nodes in three zones
  allinone up

  # In the background, with another cluster beside it
  allinone up --detach
  allinone up --detach --data-dir ./second --port-base 0
  allinone status --data-dir ./second
  allinone down --data-dir ./second`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(cmd.Flags(), e); err != nil {
				return err
			}
			if f.detach {
				return f.runDetached(cmd.Context(), e, cmd.Flags())
			}
			return f.runLab(cmd.Context(), e)
		},
	}
	fl := cmd.Flags()
	dataDirFlag(fl, &f.dataDir, e)
	fl.StringVar((*string)(&f.Nodes), "nodes", string(f.Nodes), "kind of nodes: hollow (kwok keeps the Node alive), real (a machine with a kubelet; needs Linux and root) or none (only a record in the cloud)")
	fl.StringVar((*string)(&f.CCM), "ccm", string(f.CCM), "cloud controller manager: own, or none, so that you can start another one; with none, 'up' does not wait for nodes")
	fl.StringSliceVar(&f.Dialects, "dialect", nil, "`NAME` of another cloud's API to serve, for the programs of that cloud: "+cli.Join(cli.DialectNames())+"; may be repeated; see 'allinone dialect env'")
	fl.StringVar(&f.ECRPlugin, "ecr-credential-provider", "", "`FILE` with AWS's program ecr-credential-provider for real nodes; needs --dialect aws")
	fl.IntVar(&f.Instances, "instances", f.Instances, "number of instances that the first start of a data dir creates")
	fl.StringVar(&f.Profile, "profile", f.Profile, "durations of the cloud's operations: instant or realistic")
	fl.StringVar(&f.Catalogue, "catalogue", "", "`FILE` with the regions, zones and types of the cloud; see 'allinone cloudsim'")
	fl.IntVar(&f.portBase, "port-base", process.DefaultPortBase, "first port of the lab; 0 chooses free ports; without this flag, a lab keeps the ports of its last start")
	fl.StringVar(&f.KubeBinDir, "kube-bin-dir", "", "folder with the programs of a Kubernetes release, instead of the program bin/kube")
	fl.StringVar(&f.Archives, "image-archives", "", "folder with images for real nodes: OCI or Docker archives, *.tar")
	noInternetFlag(fl, &f.NoInternet)
	mirrorFlag(fl, &f.Mirrors)
	fl.BoolVar(&f.NetworkProxy, "network-proxy", f.NetworkProxy, "connect kube-apiserver to nodes through the lab's network proxy")
	fl.StringVar(&f.EgressConfig, "egress-selector-config-file", "", "file with the EgressSelectorConfiguration of an existing network proxy, instead of the lab's network proxy")
	fl.StringSliceVar(&f.ServeAs, "serve-as", nil, "CSI drivers of other clouds whose in-tree volumes the lab's CSI driver also serves (CSI migration, KEP-625): "+cli.Join(csidriver.LegacyNames()))
	fl.BoolVar(&f.Volumes, "volumes", f.Volumes, "start the CSI driver and its sidecars for pods on real nodes; 'make csi' builds the sidecars")
	fl.DurationVar(&f.Timeout, "timeout", f.Timeout, "time limit until everything is ready")
	fl.DurationVar(&f.Grace, "grace", f.Grace, "time limit for a process to stop, before the lab kills it")
	fl.BoolVarP(&f.detach, "detach", "d", false, "run in the background, and return when the lab is ready")
	fl.Var(&f.logFormat, "log-format", "format of the lab's own log: text or json")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "verbose logging")
	fl.IntVar(&f.reportTo, "report-to", 0, "")
	_ = fl.MarkHidden("report-to") // error only for an unknown flag name
	_ = cmd.RegisterFlagCompletionFunc("nodes", cli.Fixed(lab.Hollow, lab.Real, lab.None))
	_ = cmd.RegisterFlagCompletionFunc("ccm", cli.Fixed(process.OwnCCM, process.NoCCM))
	_ = cmd.RegisterFlagCompletionFunc("dialect", cli.Fixed(cli.DialectNames()...))
	_ = cmd.RegisterFlagCompletionFunc("profile", cli.Fixed("instant", "realistic"))
	return cmd
}

func dataDirFlag(fl *pflag.FlagSet, dir *string, e cli.Env) {
	fl.StringVar(dir, "data-dir", cli.DefaultDataDir(e.Getenv), "folder of the lab (CLOUDSIM_DATA_DIR)")
}

// labDir converts dir, the value of the flag --data-dir, to a process.Dir. It returns an error if
// dir is empty.
func labDir(dir string) (process.Dir, error) {
	if dir == "" {
		return "", errors.New("--data-dir is required: there is no home directory (HOME) for the default folder")
	}
	return process.DirAt(dir)
}

// complete validates the flags. It stores the path of this binary in f. It also stores the paths of
// the program kube and of the folders machine and csi, which must be in the same folder as this
// binary.
func (f *upFlags) complete(fl *pflag.FlagSet, e cli.Env) (err error) {
	if f.DataDir, err = labDir(f.dataDir); err != nil {
		return err
	}
	if f.Self, err = os.Executable(); err != nil {
		return err
	}
	f.Kube = filepath.Join(filepath.Dir(f.Self), "kube")
	f.MachineDir = filepath.Join(filepath.Dir(f.Self), "machine")
	f.CSIDir = filepath.Join(filepath.Dir(f.Self), "csi")
	for _, path := range []*string{&f.KubeBinDir, &f.Archives, &f.EgressConfig, &f.Catalogue, &f.ECRPlugin} {
		if *path != "" {
			if *path, err = filepath.Abs(*path); err != nil {
				return err
			}
		}
	}
	f.Proxy = proxyFrom(e.Getenv)
	if fl.Changed("port-base") {
		f.PortBase = &f.portBase
	}
	for _, name := range f.ServeAs {
		if !slices.Contains(csidriver.LegacyNames(), name) {
			return cli.BadFlag("serve-as", name, "one of "+cli.Join(csidriver.LegacyNames()))
		}
	}
	if len(f.ServeAs) > 0 && f.Nodes != lab.Real {
		return cli.BadFlag("serve-as", strings.Join(f.ServeAs, ","), "--nodes real with this flag, because only real nodes mount volumes")
	}
	f.DiskLinks, f.RegistryHosts, f.MetadataTrees = cli.DiskLinks(f.Dialects), cli.RegistryHosts(f.Dialects), cli.MetadataTrees(f.Dialects)
	return cloudsim.Misuse(f.Validate())
}

// proxyFrom returns the HTTP proxy from the environment variables. Like curl, it also reads
// variables with names in lower case.
func proxyFrom(getenv func(string) string) lab.Proxy {
	value := func(name string) string { return cmp.Or(getenv(name), getenv(strings.ToLower(name))) }
	return lab.Proxy{HTTP: value("HTTP_PROXY"), HTTPS: value("HTTPS_PROXY"), No: value("NO_PROXY")}
}

// runLab runs the lab in this process until ctx ends.
func (f *upFlags) runLab(ctx context.Context, e cli.Env) error {
	tell := startReporter(terminalReporter{e.Stdout, f.dataDir})
	if f.reportTo != 0 {
		syscall.CloseOnExec(f.reportTo) // else, this file would stay open in the components
		parent := os.NewFile(uintptr(f.reportTo), "report-to")
		defer parent.Close()
		tell = detachedReporter{json.NewEncoder(parent), parent}
	}
	err := f.runTelling(ctx, tell)
	if err != nil && ctx.Err() == nil {
		tell.failed(err)
	}
	if errors.Is(err, process.ErrNodesNotReady) {
		return cloudsim.Errorf(cloudsim.Unavailable, "%w", err)
	}
	return err
}

func (f *upFlags) runTelling(ctx context.Context, tell startReporter) error {
	file, err := process.OpenLog(f.DataDir)
	if err != nil {
		return err
	}
	defer file.Close()
	log := logging.New(file, logging.Level(f.verbose), f.logFormat)
	logging.Klog(log)
	f.Progress = tell.progress
	f.OnReady = func(r process.Report) { tell.ready(ctx, r) }
	return process.Run(ctx, log, f.Config)
}

// A startReporter gets messages about the start of a lab.
type startReporter interface {
	progress(line string)
	ready(context.Context, process.Report)
	failed(error)
}

// terminalReporter implements startReporter for a user at a terminal. It does not print the error
// of a failed start, because main.main prints this error.
type terminalReporter struct {
	w       io.Writer
	dataDir string
}

func (p terminalReporter) progress(line string) { fmt.Fprintln(p.w, line) }
func (p terminalReporter) failed(error)         {}
func (p terminalReporter) ready(ctx context.Context, r process.Report) {
	summarize(ctx, p.w, r, true)
}

// summarize prints the running components and the next commands for the user.
func summarize(ctx context.Context, w io.Writer, r process.Report, foreground bool) {
	heading := "The lab is ready."
	if unready := unreadyNodes(r); unready != nil {
		heading = "The lab runs, but it is not ready: " + r.Machines.String() + "."
	}
	fmt.Fprintf(w, "\n%s These components run:\n\n", heading)
	_ = componentPrinter(w, cli.Output{}).List(r.Components) // fails only if writing to w fails, and then summarize cannot write a message
	image, shellHint := "--image=web", ""
	if r.Nodes == lab.Real {
		image = "--image=" + lab.TestImage + " -- /agnhost netexec"
		shellHint = "Start a shell in a pod:\n\n  kubectl run -it --rm shell --image=" + lab.ShellImage + " -- sh\n\n"
	}
	stop := "Ctrl-C stops the lab."
	if !foreground {
		stop = "'allinone down' stops the lab."
	}
	fmt.Fprintf(w, `
Set the kubeconfig for kubectl:

  export KUBECONFIG=%s

or set all variables, and put kubectl and allinone into the PATH:

  . %s

Three things to try:

  # 1. The nodes, with the zones that the CCM read from the cloud
  kubectl get nodes -o wide -L topology.kubernetes.io/zone

  # 2. A load balancer that forwards connections
  kubectl create deployment web --replicas=3 %s
  kubectl expose deployment web --type=LoadBalancer --port=8080
  kubectl wait service web --for=jsonpath='{.status.loadBalancer.ingress[0].ip}'
  curl http://$(kubectl get service web -o jsonpath='{.status.loadBalancer.ingress[0].ip}'):8080/

  # 3. Stop an instance, and watch its Node
  allinone cloud instances stop node-1
  kubectl get nodes --watch

%s

%s%s
`, shell.Word(r.Kubeconfig), shell.Word(r.EnvFile), image, consoleHint(ctx, r), shellHint, stop)
}

// linkTimeout limits the time of the call that creates a link to the web console.
const linkTimeout = 5 * time.Second

// consoleHint returns the text about the web console. It contains a new link.
func consoleHint(ctx context.Context, r process.Report) string {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	link, err := console.RequestLink(ctx, lab.Administrator(r.CloudURL, r.DataDir.AdminToken()), r.ConsoleURL, console.CreateLink{})
	if err != nil {
		return "'allinone console open' opens the web console. The lab could not create a link: " + err.Error()
	}
	return "Open the web console. This link works once, within two minutes. 'allinone console open' creates another link:\n\n  " + link
}

// unreadyNodes returns an error if the lab in the report runs but some of its nodes are not
// Ready.
func unreadyNodes(r process.Report) error {
	if r.Machines == nil || r.Machines.AllReady() {
		return nil
	}
	return cloudsim.Errorf(cloudsim.Unavailable, "%s. The lab keeps running. Find the cause with 'kubectl get nodes' and 'allinone cloud why INSTANCE', "+
		"and in the logs: 'allinone status -o wide' prints their paths. 'allinone down' stops the lab, and 'allinone up --timeout' waits longer", r.Machines)
}
