package cloudcli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var projects = kind[cloudsim.Project, cloudsim.ProjectID]{
	kind: cloudsim.KindProject, noun: "project", plural: "projects", command: "projects", prefix: "proj-",
	sample: "workshop",
	id:     func(p cloudsim.Project) string { return string(p.ID) },
	columns: []cli.Column[cloudsim.Project]{
		{Head: "ID", Cell: func(p cloudsim.Project) string { return string(p.ID) }},
		{Head: "NAME", Cell: func(p cloudsim.Project) string { return p.Name }},
	},
	get:  (*client.Client).GetProject,
	list: (*client.Client).ListProjects,
}

func newProjectsCommand(c *cli.Connection) *cobra.Command {
	cmd := projects.groupCommand("Manage projects, which own resources and have quotas", "project")
	cmd.AddCommand(
		projects.listCommand(c),
		projects.getCommand(c),
		projects.createCommand(c, "Create a project",
			func(ctx context.Context, cl *client.Client, name string, labels map[string]string) (cloudsim.Project, error) {
				req := cloudsim.CreateProject{Name: name, Labels: labels}
				return cl.CreateProject(ctx, req)
			}),
		projects.deleteCommand(c, false, readFirst(projects, (*client.Client).DeleteProject)),
	)
	return cmd
}
