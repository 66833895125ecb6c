package componentcli

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/csidriver"
	"github.com/cloudsim-dev/allinone/internal/logging"
)

// csiFlags contains the flags of the csi command.
type csiFlags struct {
	csidriver.Config
	cli.Connection
	instance  string
	logFormat logging.Format
	verbose   bool
}

// NewCSICommand returns the command "allinone csi".
func NewCSICommand(e cli.Env) *cobra.Command {
	f := csiFlags{Config: csidriver.Default(), Connection: cli.Connection{Env: e}, logFormat: logging.Text}
	cmd := &cobra.Command{
		Use:   "csi",
		Short: "Serve the cloud's disks as volumes (CSI 1.13)",
		Long: `Serve the cloud's disks as volumes, for Kubernetes or anything else that speaks
CSI 1.13. A volume is a disk of the cloud; on a node it is a loop device on the
disk's file, with ext4 or XFS or as it is.

One controller serves a cluster, beside external-provisioner, -attacher, -resizer
and -snapshotter; a node serves each machine, beside its kubelet, as root, and
registers itself there with --kubelet-registration-dir. It needs mkfs.ext4, e2fsck
and resize2fs, and for XFS mkfs.xfs and xfs_growfs.

--disks-dir is where the machine's disks show up: the folder disks of the cloud's
data directory, as /dev/disk/by-id is elsewhere. Only what the cloud says is
attached to --node-instance is used.

StorageClass parameters: type (a disk type), iops, throughputMiBps, replication
(zonal or regional). A VolumeAttributesClass has the first three.`,
		Example: `  # Both halves on one machine, for a trial
  allinone csi --endpoint unix:///run/csi.sock --node-instance node-1 \
    --disks-dir ./cloud/disks

  # Beside the sidecars of a cluster
  allinone csi --mode controller --endpoint unix:///csi/csi.sock \
    --cloud-url http://192.0.2.1:8180 --cloud-token-file /etc/cloud/token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), logging.New(e.Stderr, logging.Level(f.verbose), f.logFormat))
		},
	}
	cmd.AddCommand(newCSITranslateCommand(e))
	fl := cmd.Flags()
	fl.StringVar(&f.Endpoint, "endpoint", "unix:///run/csi.sock", "socket to serve on")
	fl.StringVar((*string)(&f.Mode), "mode", string(f.Mode), "services to run: controller, node or all")
	fl.StringVar(&f.Name, "driver-name", f.Name, "name of the driver in StorageClasses and PersistentVolumes")
	fl.StringSliceVar(&f.ServeAs, "serve-as", nil, "answer as these legacy drivers too, each on NAME.sock beside the endpoint (KEP-625): "+strings.Join(csidriver.LegacyNames(), ", "))
	fl.StringVar(&f.DiskType, "default-type", f.DiskType, "disk type of volumes whose StorageClass has no type")
	fl.StringVar(&f.instance, "node-instance", "", "instance that this machine is, by id or name; for a node")
	fl.StringVar(&f.Node.DisksDir, "disks-dir", "", "folder in which this machine's disks show up (default cloud/disks in the data dir)")
	fl.StringVar(&f.Node.RegistrationDir, "kubelet-registration-dir", "", "register with the kubelet in this folder, e.g. /var/lib/kubelet/plugins_registry; for a node without node-driver-registrar")
	fl.StringVar(&f.Node.KubeletSocketDir, "kubelet-socket-dir", "", "folder of the endpoint as the kubelet sees it, if that differs")
	fl.StringVar(&f.HealthAddress, "health-bind-address", "", "host:port to serve /healthz and /readyz on, as livenessprobe would")
	fl.StringVar(&f.URL, "cloud-url", "", "URL of the cloud (CLOUDSIM_URL)")
	fl.StringVar(&f.TokenFile, "cloud-token-file", "", "file with the token to call it with, read again for each call (CLOUDSIM_TOKEN_FILE)")
	fl.StringVar(&f.CAFile, "cloud-ca-file", "", "file with the certificate authority of an https --cloud-url (PEM); the system's authorities if empty (CLOUDSIM_CA_FILE)")
	fl.StringVar(&f.Project, "cloud-project", "", "project of the disks, by name or id; for admin tokens (CLOUDSIM_PROJECT)")
	fl.StringVar(&f.DataDir, "data-dir", "", "data dir of the lab whose cloud to use (CLOUDSIM_DATA_DIR)")
	fl.Var(&f.logFormat, "log-format", "log as text or json")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log every call")
	_ = cmd.RegisterFlagCompletionFunc("serve-as", cli.Fixed(csidriver.LegacyNames()...))
	_ = cmd.RegisterFlagCompletionFunc("mode", cli.Fixed(csidriver.Modes()...)) // error only for an unknown flag name
	return cmd
}

func (f *csiFlags) run(ctx context.Context, log *slog.Logger) error {
	cl, err := f.Client()
	if err != nil {
		return err
	}
	if cl.Token != nil {
		if _, err := cl.Token(); err != nil {
			log.Warn("there is no token to call the cloud with, see --cloud-token-file; it is read again for each call", "error", err)
		}
	}
	f.Cloud, f.Version = cl, cmp.Or(cli.Release, f.Version)
	if dir := cmp.Or(f.DataDir, cli.DefaultDataDir(f.Getenv)); f.Node.DisksDir == "" && dir != "" {
		f.Node.DisksDir = filepath.Join(dir, "cloud", "disks")
	}
	if f.Node.InstanceName = f.instance; strings.HasPrefix(f.instance, "i-") {
		f.Node.Instance = cloudsim.InstanceID(f.instance)
	}
	return cli.Advise(cl, csidriver.Run(ctx, log, f.Config))
}
