package labcli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/lab/compose"
	"github.com/cloudsim-dev/allinone/lab/process"
	"github.com/cloudsim-dev/allinone/lab/real"
	"github.com/cloudsim-dev/allinone/lab/real/archive"
)

// imagesCLI contains the environment and the flag --nodes of all commands for images.
type imagesCLI struct {
	cli.Env
	nodes []string
	// open returns the images of the nodes.
	open func(nodes []string) (real.Images, error)
	// prefix is the text before the word "images" in example commands, for example
	// "sudo allinone".
	prefix string
	loads  []string // examples of the command "images load"
}

// NewImagesCommand returns the command "allinone images".
func NewImagesCommand(e cli.Env) *cobra.Command {
	var dataDir string
	c := &imagesCLI{Env: e, prefix: "sudo allinone", loads: []string{
		"sudo allinone images load web:v1",
		"sudo allinone images load web.tar.gz --nodes node-1",
		"docker save web:v1 | sudo allinone images load -",
	}}
	c.open = func(nodes []string) (real.Images, error) { return labImages(dataDir, nodes) }
	cmd := c.command()
	cmd.Long = `Load, list and remove container images on the real nodes of a running lab. The
commands need root. With Compose, use 'allinone compose images' instead.`
	cmd.PersistentFlags().StringVar(&dataDir, "data-dir", cli.DefaultDataDir(e.Getenv), "folder of the lab (CLOUDSIM_DATA_DIR)")
	return cmd
}

func newComposeImagesCommand(e cli.Env) *cobra.Command {
	const prefix = "docker compose exec -T node-sim-1a allinone compose"
	c := &imagesCLI{Env: e, prefix: prefix, loads: []string{"docker save web:v1 | " + prefix + " images load -"}, open: compose.Images}
	cmd := c.command()
	cmd.Long = `Load, list and remove container images on the real nodes of one host. Run this
command in the container of the host, once for each host.`
	return cmd
}

func (c *imagesCLI) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "images", Short: "Load, list and remove images on real nodes",
		Example: "  " + c.loads[0] + "\n  " + c.prefix + " images list",
	}
	cmd.PersistentFlags().StringSliceVar(&c.nodes, "nodes", nil, "names of the nodes, separated by commas (default: all nodes)")
	cmd.AddCommand(c.load(), c.list(), c.remove())
	return cmd
}

// labImages returns the images on the machines of a running lab.
func labImages(dataDir string, nodes []string) (real.Images, error) {
	dir, err := labDir(dataDir)
	if err != nil {
		return real.Images{}, err
	}
	if os.Geteuid() != 0 {
		return real.Images{}, errors.New("only root can change the images of machines: run the command with sudo")
	}
	r, err := process.Status(dir)
	if err != nil {
		return real.Images{}, err
	}
	if r.PID == 0 {
		return real.Images{}, fmt.Errorf("%w, or use 'allinone compose images' for a lab of Docker Compose", noLab(r))
	}
	if r.Nodes != "real" {
		return real.Images{}, fmt.Errorf("the lab runs with --nodes %s, and only real nodes have images; 'sudo allinone up --detach --nodes real --data-dir ANOTHER --port-base 0' starts another lab with real nodes", r.Nodes)
	}
	return dir.Images(nodes), nil
}

func (c *imagesCLI) load() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "load IMAGE|ARCHIVE...",
		Short: "Load images into real nodes",
		Long: `Load images into the running machines of real nodes. An argument is

- the path of a docker-archive or OCI archive, also compressed with gzip or zstd,
- the path of an OCI layout directory,
- "-" for an archive from stdin, or
- the name of an image in a Docker or Podman engine on this host. A container of
  Compose has no engine.

Without --nodes, machines that are created later also have the images. Pods that use
the tag latest need imagePullPolicy: Never or IfNotPresent.`,
		Example: "  " + strings.Join(c.loads, "\n  "),
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := c.open(c.nodes)
			if err != nil {
				return err
			}
			for _, arg := range args {
				names, off, err := loadOne(cmd.Context(), c.Env, m, arg, name)
				if err != nil {
					return fmt.Errorf("loading %s: %w", arg, err)
				}
				for _, n := range names {
					fmt.Fprintf(c.Stdout, "loaded %s\n", n)
				}
				if len(off) > 0 {
					fmt.Fprintf(c.Stderr, "These nodes are off and do not have the images: %s. Start them, then run the command again.\n", strings.Join(off, ", "))
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "image name for an archive that contains no name")
	return cmd
}

// loadOne loads the images of one argument of "images load".
func loadOne(ctx context.Context, e cli.Env, m real.Images, arg, name string) (names, off []string, err error) {
	if arg == "-" {
		return m.Load(ctx, "", e.Stdin, name)
	}
	_, err = os.Stat(arg)
	if err == nil {
		return m.Load(ctx, arg, nil, name)
	}
	if !errors.Is(err, os.ErrNotExist) || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") {
		return nil, nil, err
	}
	sockets, err := archive.Sockets(e.Getenv)
	if err != nil {
		return nil, nil, err
	}
	body, err := archive.Save(ctx, sockets, arg)
	if err != nil {
		return nil, nil, err
	}
	defer func(c io.Closer) { err = errors.Join(err, c.Close()) }(body)
	return m.Load(ctx, "", body, name)
}

func (c *imagesCLI) list() *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "list", Short: "List the images on real nodes", Args: cobra.NoArgs,
		Example: "  " + c.prefix + " images list\n  " + c.prefix + " images list --nodes node-1 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := c.open(c.nodes)
			if err != nil {
				return err
			}
			all, err := m.List(cmd.Context())
			if err != nil {
				return err
			}
			return cli.Printer[process.ImageReport]{
				Output: o, Writer: c.Stdout, ID: func(i process.ImageReport) string { return i.Name },
				Columns: []cli.Column[process.ImageReport]{
					{Head: "IMAGE", Cell: func(i process.ImageReport) string { return i.Name }},
					{Head: "SIZE", Cell: func(i process.ImageReport) string { return i.Size }},
					{Head: "NODES", Cell: func(i process.ImageReport) string { return strings.Join(i.Nodes, ",") }},
					{Head: "DIGEST", Wide: true, Cell: func(i process.ImageReport) string { return i.Digest }},
				},
			}.List(all)
		},
	}
	o.Flags(cmd)
	return cmd
}

func (c *imagesCLI) remove() *cobra.Command {
	return &cobra.Command{
		Use: "remove IMAGE...", Short: "Remove images from real nodes", Args: cobra.MinimumNArgs(1),
		Long: `Remove images from the running machines of real nodes. Containers that run continue
to run. Without --nodes, machines that are created later do not have the images either.
The command does not change the folder of 'up --image-archives', so later machines still
get the images of the archives in this folder. A machine that is off keeps its images.`,
		Example: "  " + c.prefix + " images remove web:v1",
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := c.open(c.nodes)
			if err != nil {
				return err
			}
			for _, image := range args {
				if err := m.Remove(cmd.Context(), image); err != nil {
					return err
				}
				fmt.Fprintf(c.Stdout, "removed %s\n", image)
			}
			return nil
		},
	}
}
