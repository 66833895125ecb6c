package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateRepository makes a repository.
func (c *Client) CreateRepository(ctx context.Context, req cloudsim.CreateRepository) (cloudsim.Repository, error) {
	return call[cloudsim.Repository](ctx, c, "POST", "/v1/repositories", req)
}

// GetRepository returns a repository.
func (c *Client) GetRepository(ctx context.Context, id cloudsim.RepositoryID) (cloudsim.Repository, error) {
	return call[cloudsim.Repository](ctx, c, "GET", "/v1/repositories/"+seg(id), nil)
}

// ListRepositories returns one page of repositories.
func (c *Client) ListRepositories(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Repository], error) {
	return call[cloudsim.List[cloudsim.Repository]](ctx, c, "GET", "/v1/repositories"+listQuery(o), nil)
}

// DeleteRepository removes a repository and its images.
func (c *Client) DeleteRepository(ctx context.Context, id cloudsim.RepositoryID) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/repositories/"+seg(id), nil)
	return err
}

// CreateRegistryCredential creates a registry password for the caller. At each use of the
// password, the registry checks the current permissions of the caller.
func (c *Client) CreateRegistryCredential(ctx context.Context, req cloudsim.CreateRegistryCredential) (cloudsim.RegistryCredential, error) {
	return call[cloudsim.RegistryCredential](ctx, c, "POST", "/v1/registry/credentials", req)
}

// ListRegistryDecisions returns the recent decisions of the registry to allow or refuse a request,
// newest last. The caller must have the permission registry.decisions in all projects.
func (c *Client) ListRegistryDecisions(ctx context.Context) (cloudsim.List[cloudsim.RegistryDecision], error) {
	return call[cloudsim.List[cloudsim.RegistryDecision]](ctx, c, "GET", "/v1/registry/decisions", nil)
}
