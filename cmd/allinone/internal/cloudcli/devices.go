package cloudcli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// newReportDevicesCommand returns a command that reports the devices of an instance. Normally the
// hypervisor of the instance sends this report.
func newReportDevicesCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var failed []string
	cmd := &cobra.Command{
		Use: "report-devices INSTANCE [DISK]...", Short: "Report the disks that an instance's machine has as devices",
		Long: `Report all disks that the machine of an instance has as devices now. Use the command if
your own program is the hypervisor that runs the machine.

From the first report on, the cloud completes an attachment to the instance only after a
report with the disk, and a detachment only after a report without the disk. An
operation fails if the report does not arrive within a minute. After the command
forget-devices, the cloud does not wait for reports.`,
		Example: `  allinone cloud instances report-devices node-1
  allinone cloud instances report-devices node-1 data-1 data-2
  allinone cloud instances report-devices node-1 --failed 'data-1=no free device'`,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			i, err := instances.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			req := cloudsim.ReportDevices{Devices: []cloudsim.DeviceReport{}}
			for _, name := range args[1:] {
				d, err := disks.findResource(ctx, cl, name)
				if err != nil {
					return err
				}
				req.Devices = append(req.Devices, cloudsim.DeviceReport{Disk: d.ID, Ready: true})
			}
			for _, f := range failed {
				name, reason, ok := strings.Cut(f, "=")
				if !ok || reason == "" {
					return cli.BadFlag("failed", f, "DISK=REASON")
				}
				d, err := disks.findResource(ctx, cl, name)
				if err != nil {
					return err
				}
				req.Devices = append(req.Devices, cloudsim.DeviceReport{Disk: d.ID, Error: reason})
			}
			if i, err = cl.ReportDevices(ctx, i.ID, req); err != nil {
				return err
			}
			return printResult(instances.printer(c, o), true, []cloudsim.Instance{i})
		}),
	}
	o.Flags(cmd)
	cmd.Flags().StringArrayVar(&failed, "failed", nil, "`DISK=REASON` for a disk that the machine could not add as a device; may be repeated")
	return cmd
}
