package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateProject creates a project. The caller must be an admin.
func (c *Client) CreateProject(ctx context.Context, req cloudsim.CreateProject) (cloudsim.Project, error) {
	return call[cloudsim.Project](ctx, c, "POST", "/v1/projects", req)
}

// GetProject returns a project.
func (c *Client) GetProject(ctx context.Context, id cloudsim.ProjectID) (cloudsim.Project, error) {
	return call[cloudsim.Project](ctx, c, "GET", "/v1/projects/"+seg(id), nil)
}

// ListProjects returns one page of the projects that the caller may see.
func (c *Client) ListProjects(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Project], error) {
	return call[cloudsim.List[cloudsim.Project]](ctx, c, "GET", "/v1/projects"+listQuery(o), nil)
}

// DeleteProject removes a project with its default network, quota limits, service accounts, role
// bindings, workload trusts, access keys and tokens. It returns Conflict in these cases: the
// project is the default project, the project has other resources, or an instance of another
// project uses a service account of the project.
func (c *Client) DeleteProject(ctx context.Context, id cloudsim.ProjectID) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/projects/"+seg(id), nil)
	return err
}

// CreateToken creates a token. Only the answer of this call contains the token's Secret.
func (c *Client) CreateToken(ctx context.Context, req cloudsim.CreateToken) (cloudsim.Token, error) {
	return call[cloudsim.Token](ctx, c, "POST", "/v1/tokens", req)
}

// GetToken returns a token, without its secret.
func (c *Client) GetToken(ctx context.Context, id cloudsim.TokenID) (cloudsim.Token, error) {
	return call[cloudsim.Token](ctx, c, "GET", "/v1/tokens/"+seg(id), nil)
}

// ListTokens returns one page of tokens, without their secrets.
func (c *Client) ListTokens(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Token], error) {
	return call[cloudsim.List[cloudsim.Token]](ctx, c, "GET", "/v1/tokens"+listQuery(o), nil)
}

// DeleteToken revokes a token at once.
func (c *Client) DeleteToken(ctx context.Context, id cloudsim.TokenID) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/tokens/"+seg(id), nil)
	return err
}
