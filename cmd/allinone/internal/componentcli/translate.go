package componentcli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/csidriver/translate"
)

func newCSITranslateCommand(e cli.Env) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use:   "translate [FILE]",
		Short: "Translate in-tree volumes to CSI, as Kubernetes does (KEP-625)",
		Long: `Translate in-tree volumes to CSI volumes, and CSI volumes of the same drivers back to
in-tree volumes. The command uses the same library as the kubelet,
kube-controller-manager, kube-scheduler and the sidecars. It calls no cluster and
no cloud.

FILE contains PersistentVolumes, StorageClasses and Pods, or a List of such objects.
Without FILE, the command reads standard input. If an object cannot be translated,
the output contains the reason.

The output is YAML for kubectl. Comments in it name the plugin, the driver, and the
fields that were lost or changed. With -o table the output has one line for each object.
With -o json it has all fields.`,
		Example: `  # Translate all volumes and StorageClasses of a cluster
  kubectl get pv,sc -o yaml | allinone csi translate -o table

  # Print the CSI StorageClass that replaces an in-tree StorageClass
  allinone csi translate old-class.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, name := e.Stdin, "standard input"
			if len(args) == 1 {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				in, name = f, args[0]
			}
			all, err := translate.Read(io.LimitReader(in, maxManifest))
			if err != nil {
				return cloudsim.Errorf(cloudsim.Invalid, "%s: %w", name, err)
			}
			if o.Format == cli.FormatYAML {
				return writeTranslations(e.Stdout, all)
			}
			return translationPrinter(e.Stdout, o).List(all)
		},
	}
	o.Flags(cmd)
	o.Format = cli.FormatYAML
	cmd.Flags().Lookup("output").DefValue = string(cli.FormatYAML)
	return cmd
}

// maxManifest is the largest size of a manifest in bytes. It is large enough for all volumes of a
// large cluster.
const maxManifest = 64 << 20

func translationPrinter(w io.Writer, o cli.Output) cli.Printer[translate.Answer] {
	return cli.Printer[translate.Answer]{
		Output: o, Writer: w, ID: func(a translate.Answer) string { return a.From },
		Columns: []cli.Column[translate.Answer]{
			{Head: "FROM", Cell: func(a translate.Answer) string { return a.From }},
			{Head: "PLUGIN", Cell: func(a translate.Answer) string { return a.Plugin }},
			{Head: "DRIVER", Cell: func(a translate.Answer) string { return a.Driver }},
			{Head: "TRANSLATES", Cell: func(a translate.Answer) string {
				if a.Object == nil {
					return "no: " + a.Why
				}
				return strings.Join(append([]string{"yes"}, a.Notes...), "; ")
			}},
		},
	}
}

// writeTranslations writes a YAML document for each translated object. Comments before a document
// contain the notes about the translation.
func writeTranslations(w io.Writer, all []translate.Answer) error {
	var b strings.Builder
	for i, a := range all {
		if i > 0 {
			b.WriteString("---\n")
		}
		if a.Object == nil {
			fmt.Fprintf(&b, "# %s cannot be translated: %s\n", a.From, a.Why)
			continue
		}
		fmt.Fprintf(&b, "# %s: in-tree plugin %s, CSI driver %s\n", a.From, a.Plugin, a.Driver)
		for _, n := range a.Notes {
			fmt.Fprintf(&b, "# %s\n", n)
		}
		raw, err := yaml.Marshal(a.Object)
		if err != nil {
			return err
		}
		b.Write(raw)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
