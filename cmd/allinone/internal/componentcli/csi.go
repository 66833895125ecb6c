package componentcli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/csidriver"
	"github.com/cloudsim-dev/allinone/internal/logging"
)

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
		Long: `Serve the cloud's disks as volumes, for Kubernetes and all other clients of
CSI 1.13. A volume is a disk of the cloud. On a node, the volume is a loop device on
the disk's file: a block device, or a filesystem of type ext4 or XFS.

--mode controller serves a cluster. The sidecars external-provisioner,
external-attacher, external-resizer and external-snapshotter run beside it.
--mode node serves one machine. It runs as root beside the kubelet. With
--kubelet-registration-dir it registers itself with the kubelet. It needs the
programs mkfs.ext4, e2fsck and resize2fs, and for XFS mkfs.xfs and xfs_growfs.

--disks-dir is the folder that contains the disks' files: the folder disks in the
cloud's data directory. The node service uses only the disks that are attached to
--node-instance. If the hypervisor of the machine makes the devices of attached disks,
--disks-dir is /dev/disk/by-id, which contains links to these devices.

StorageClass parameters: type (a disk type), iops, throughputMiBps, replication
(zonal or regional). A VolumeAttributesClass can have the first three.`,
		Example: `  # Both services on one machine, for a trial
  allinone csi --endpoint unix:///run/csi.sock --node-instance node-1 \
    --disks-dir ./cloud/disks

  # The controller service for the sidecars of a cluster
  allinone csi --mode controller --endpoint unix:///csi/csi.sock \
    --cloud-url http://192.0.2.1:8180 --cloud-token-file /etc/cloud/token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), logging.New(e.Stderr, logging.Level(f.verbose), f.logFormat))
		},
	}
	cmd.AddCommand(newCSITranslateCommand(e), newCSIRegisterCommand(e))
	fl := cmd.Flags()
	fl.StringVar(&f.Endpoint, "endpoint", "unix:///run/csi.sock", "socket on which the driver serves")
	fl.StringVar((*string)(&f.Mode), "mode", string(f.Mode), "services to run: controller, node or all")
	fl.StringVar(&f.Name, "driver-name", f.Name, "name of the driver in StorageClasses and PersistentVolumes")
	fl.StringSliceVar(&f.ServeAs, "serve-as", nil, "CSI drivers of other clouds whose in-tree volumes this driver also serves (KEP-625), each at the socket NAME.sock in the folder of the endpoint: "+strings.Join(csidriver.LegacyNames(), ", "))
	fl.StringVar(&f.DiskType, "default-type", f.DiskType, "disk type of volumes whose StorageClass has no type")
	fl.StringVar(&f.instance, "node-instance", "", "instance (id or name) of this machine; required by the node service")
	fl.StringVar(&f.Node.DisksDir, "disks-dir", "", "folder of the disks' files, or /dev/disk/by-id if the hypervisor creates the devices (default cloud/disks in the data dir)")
	fl.StringVar(&f.Node.RegistrationDir, "kubelet-registration-dir", "", "folder in which the node service registers with the kubelet, such as /var/lib/kubelet/plugins_registry; not needed if node-driver-registrar runs")
	fl.StringVar(&f.Node.KubeletSocketDir, "kubelet-socket-dir", "", "path of the endpoint's folder in the kubelet's filesystem, if the path differs there")
	fl.StringVar(&f.HealthAddress, "health-bind-address", "", "host:port for /healthz and /readyz, in place of the sidecar livenessprobe")
	fl.StringVar(&f.URL, "cloud-url", "", "URL of the cloud (CLOUDSIM_URL)")
	fl.StringVar(&f.TokenFile, "cloud-token-file", "", "file with the token for the cloud, read again for each call (CLOUDSIM_TOKEN_FILE)")
	fl.StringVar(&f.CAFile, "cloud-ca-file", "", "file with the certificate authority of an https --cloud-url (PEM); the system's authorities if empty (CLOUDSIM_CA_FILE)")
	fl.StringVar(&f.Project, "cloud-project", "", "project of the disks, by name or id; for admin tokens (CLOUDSIM_PROJECT)")
	fl.StringVar(&f.DataDir, "data-dir", "", "data dir of a lab, to use the cloud of this lab (CLOUDSIM_DATA_DIR)")
	fl.Var(&f.logFormat, "log-format", "log format: text or json")
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
			log.Warn("cannot read the token for the cloud: see --cloud-token-file; the driver reads the file again for each call", "error", err)
		}
	}
	f.Cloud, f.Version = cl, cmp.Or(cli.Release, f.Version)
	if dir := cmp.Or(f.DataDir, cli.DefaultDataDir(f.Getenv)); f.Node.DisksDir == "" && dir != "" {
		f.Node.DisksDir = filepath.Join(dir, "cloud", "disks")
	}
	if f.Node.InstanceName = f.instance; isInstanceID(f.instance) {
		f.Node.Instance = cloudsim.InstanceID(f.instance)
	}
	return cli.Advise(cl, csidriver.Run(ctx, log, f.Config))
}

// isInstanceID reports whether s is the id of an instance of this cloud, such as i-00002a. Other
// texts can also begin with "i-", for example the host names of AWS's instances. The driver regards
// these texts as names.
func isInstanceID(s string) bool {
	rest, _ := strings.CutPrefix(s, "i-")
	n, err := strconv.ParseUint(rest, 16, 63)
	return err == nil && s == fmt.Sprintf("i-%06x", n)
}

func newCSIRegisterCommand(e cli.Env) *cobra.Command {
	r := csidriver.Registration{Dir: "/var/lib/kubelet/plugins_registry"}
	logFormat := logging.Text
	cmd := &cobra.Command{
		Use:   "register --endpoint unix://SOCKET",
		Short: "Register a third-party CSI driver with the kubelet",
		Long: `Register a third-party CSI driver with the kubelet of this machine, in place of the
sidecar node-driver-registrar. The command waits until the driver answers, and reads
the name of the driver. The driver is registered until the command ends.

The node service of 'allinone csi' registers itself: see --kubelet-registration-dir.`,
		Example: `  allinone csi register --endpoint unix:///var/lib/kubelet/plugins/csi.hetzner.cloud/csi.sock`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return csidriver.Register(cmd.Context(), logging.New(e.Stderr, logging.Level(false), logFormat), r)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&r.Endpoint, "endpoint", "", "socket of the driver, such as unix:///var/lib/kubelet/plugins/NAME/csi.sock")
	fl.StringVar(&r.Dir, "kubelet-registration-dir", r.Dir, "folder of the kubelet for registrations")
	fl.StringVar(&r.KubeletSocketDir, "kubelet-socket-dir", "", "path of the endpoint's folder in the kubelet's filesystem, if the path differs there")
	fl.Var(&logFormat, "log-format", "log format: text or json")
	return cmd
}
