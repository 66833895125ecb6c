package cloudcli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var metadataTrees = kind[cloudsim.MetadataTree, string]{
	kind: cloudsim.KindMetadataTree, noun: "metadata tree", plural: "metadata trees", command: "metadata-trees",
	sample: "hetzner",
	id:     func(t cloudsim.MetadataTree) string { return t.Name },
	columns: []cli.Column[cloudsim.MetadataTree]{
		{Head: "NAME", Cell: func(t cloudsim.MetadataTree) string { return t.Name }},
		{Head: "PREFIX", Cell: func(t cloudsim.MetadataTree) string { return t.Prefix }},
		{Head: "SESSION", Cell: func(t cloudsim.MetadataTree) string { return yesNo(t.Session != nil) }},
		{Head: "PATHS", Cell: func(t cloudsim.MetadataTree) string { return strconv.Itoa(len(t.Leaves)) }},
	},
	get:  (*client.Client).GetMetadataTree,
	list: (*client.Client).ListMetadataTrees,
}

func newMetadataTreesCommand(c *cli.Connection) *cobra.Command {
	cmd := metadataTrees.groupCommand("Manage additional paths of the metadata service, such as the paths of another cloud", "metadata-tree")
	cmd.AddCommand(
		metadataTrees.listCommand(c),
		metadataTrees.getCommand(c),
		newSetMetadataTreeCommand(c),
		metadataTrees.deleteCommand(c, false, readFirst(metadataTrees, (*client.Client).DeleteMetadataTree)),
	)
	return cmd
}

// maxTreeFile is the maximum size of a file with a metadata tree, in bytes.
const maxTreeFile = 1 << 20

func newSetMetadataTreeCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var file string
	cmd := &cobra.Command{
		Use: "set NAME --file FILE", Short: "Create or replace a metadata tree",
		Long: `Create or replace a metadata tree from a YAML or JSON file. The metadata service
serves the paths of the tree to every instance. The field text of a leaf can contain
variables such as ${id}, ${id.number}, ${zone}, ${internal-ip} and ${labels.KEY}.`,
		Example: `  # hetzner.yaml
  #   prefix: /hetzner/v1/metadata
  #   leaves:
  #   - {path: /instance-id, text: "${id.number}"}
  #   - {path: /hostname, text: "${hostname}"}
  allinone cloud metadata-trees set hetzner --file hetzner.yaml`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: inOrder(completeNames(c, metadataTrees)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			req, err := readMetadataTree(c, file)
			if err != nil {
				return err
			}
			if err := req.Validate(); err != nil {
				return err
			}
			t, err := cl.SetMetadataTree(ctx, args[0], req)
			if err != nil {
				return err
			}
			return metadataTrees.printer(c, o).One(t)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().StringVar(&file, "file", "", "`FILE` with the tree in YAML or JSON; - for standard input")
	_ = cmd.MarkFlagRequired("file")
	return cmd
}

// readMetadataTree reads a metadata tree from a YAML or JSON file.
func readMetadataTree(c *cli.Connection, path string) (req cloudsim.SetMetadataTree, err error) {
	from := c.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return req, cloudsim.Errorf(cloudsim.Invalid, "--file: %w", err)
		}
		defer f.Close()
		from = f
	}
	raw, err := io.ReadAll(io.LimitReader(from, maxTreeFile+1))
	if err != nil {
		return req, fmt.Errorf("--file: %w", err)
	}
	if len(raw) > maxTreeFile {
		return req, cloudsim.Errorf(cloudsim.Invalid, "--file %s: the file is longer than %d bytes", path, maxTreeFile)
	}
	var v any
	if err := yaml.Unmarshal(raw, &v); err != nil {
		return req, cloudsim.Errorf(cloudsim.Invalid, "--file %s: %w", path, err)
	}
	plain, err := json.Marshal(v)
	if err != nil {
		return req, cloudsim.Errorf(cloudsim.Invalid, "--file %s: %w", path, err)
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return req, cloudsim.Errorf(cloudsim.Invalid, "--file %s: %w", path, err)
	}
	return req, nil
}
